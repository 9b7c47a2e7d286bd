"""Recurrent layers as their cells: :class:`RecurrentMode` unrolls nn.LSTM, nn.GRU and nn.RNN, and their cells, over the
timesteps.

For each layer and direction the input product of the whole sequence is one matrix product before the loop, and the
gradients of the weights are one product each after the backward loop. Inside the loop a timestep is one product of the
hidden state with the hidden weights and one fused cell operator, forward and backward. Numbers are those of PyTorch's
layers within float32 rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import tesser.operators  # noqa: F401  (registers the operators)

_timestep: ContextVar[tuple[str, int] | None] = ContextVar("tesser_timestep", default=None)
_active: ContextVar[RecurrentMode | None] = ContextVar("tesser_recurrent_mode", default=None)

_LAYERS = {torch.lstm: "lstm", torch.gru: "gru", torch.rnn_tanh: "rnn_tanh", torch.rnn_relu: "rnn_relu"}
_CELLS = {
    torch.lstm_cell: "lstm",
    torch.gru_cell: "gru",
    torch.rnn_tanh_cell: "rnn_tanh",
    torch.rnn_relu_cell: "rnn_relu",
}
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def current_timestep() -> tuple[str, int] | None:
    """Recurrence and time index of the cell that is being run, such as ``("lstm/0", 3)`` for layer 0; None outside a
    loop.

    A reverse direction is a recurrence of its own, ``"lstm/0/reverse"``, whose index 0 is the first timestep it runs,
    the last of the sequence.
    """
    return _timestep.get()


@contextmanager
def _at_timestep(recurrence: str, index: int) -> Iterator[None]:
    token = _timestep.set((recurrence, index))
    try:
        yield
    finally:
        _timestep.reset(token)


def _hidden_weight_gradient(gradient: Tensor, states: list[Tensor]) -> Tensor:
    """dW_hh of a whole loop as one product; states are h before the first step[B, H] and h of all steps[T, B, H]."""
    first, following = states
    before = torch.cat((first.unsqueeze(0), following[:-1]))
    return gradient.t().mm(before.view(gradient.shape[0], -1))


class _InputGates(torch.autograd.Function):
    """x W_ih' + bias for all timesteps at once: x is [T * B, I], the result [T * B, G * H]. W_ih' is given beside W_ih.

    The gradient of these gates is all that dW_hh needs besides the hidden states. So it is taken here, as one product
    over all timesteps, instead of a product and a sum in every one. `states` is filled by the loop.
    """

    @staticmethod
    def forward(ctx, x, input_weight, input_weight_transposed, bias, hidden_weight, states):
        ctx.states = states
        ctx.save_for_backward(x, input_weight)
        return x.mm(input_weight_transposed) if bias is None else torch.addmm(bias, x, input_weight_transposed)

    @staticmethod
    def backward(ctx, gradient):
        x, input_weight = ctx.saved_tensors
        needs_x, needs_input_weight, _, needs_bias, needs_hidden_weight, _ = ctx.needs_input_grad
        return (
            gradient.mm(input_weight) if needs_x else None,
            gradient.t().mm(x) if needs_input_weight else None,
            None,
            gradient.sum(0) if needs_bias else None,
            _hidden_weight_gradient(gradient, ctx.states) if needs_hidden_weight else None,
            None,
        )


class _RepeatedBias(torch.autograd.Function):
    """The hidden bias (zeros where there is none) in each of [T * B] rows, for the loop to add its hidden products to.

    As in _InputGates the gradient of the rows gives dW_hh.
    """

    @staticmethod
    def forward(ctx, bias, hidden_weight, rows, states):
        ctx.states = states
        bias = hidden_weight.new_zeros(hidden_weight.shape[0]) if bias is None else bias
        return bias.expand(rows, -1)

    @staticmethod
    def backward(ctx, gradient):
        needs_bias, needs_hidden_weight, _, _ = ctx.needs_input_grad
        return (
            gradient.sum(0) if needs_bias else None,
            _hidden_weight_gradient(gradient, ctx.states) if needs_hidden_weight else None,
            None,
            None,
        )


class _HiddenProduct(torch.autograd.Function):
    """gates + h W_hh', [B, G * H]; W_hh' is given beside W_hh so that no timestep transposes it.

    W_hh gets no gradient here: see _InputGates.
    """

    @staticmethod
    def forward(ctx, gates, h, hidden_weight, hidden_weight_transposed):
        ctx.save_for_backward(hidden_weight)
        return torch.addmm(gates, h, hidden_weight_transposed)

    @staticmethod
    def backward(ctx, gradient):
        (hidden_weight,) = ctx.saved_tensors
        return gradient, gradient.mm(hidden_weight) if ctx.needs_input_grad[1] else None, None, None


def _sum_of_biases(input_bias: Tensor | None, hidden_bias: Tensor | None) -> Tensor | None:
    return None if input_bias is None or hidden_bias is None else input_bias + hidden_bias


def _run_direction(
    kind: str,
    recurrence: str,
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    weights: tuple[Tensor | None, ...],
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One layer in one direction over x[T, B, I] from h[B, H] (and c).

    Returns the hidden states[T, B, H] in time order, the last h and the last c.
    """
    input_weight, hidden_weight, input_bias, hidden_bias = weights
    steps, batch, _ = x.shape
    gate_count, hidden_size = GATES[kind], h.shape[-1]
    gate_shape = (batch, gate_count, hidden_size)
    detached_weight = hidden_weight.detach()
    transposed_weight = detached_weight.t()
    transposed_input_weight = input_weight.detach().t()
    # In the order in which the steps run, whatever the direction.
    states: list[Tensor] = []
    if reverse:
        x = x.flip(0)
    x = x.reshape(steps * batch, -1)
    if kind == "gru":
        # r multiplies the hidden product alone, so its bias stays with it.
        hidden = _RepeatedBias.apply(hidden_bias, hidden_weight, steps * batch, states)
        hidden = hidden.view(steps, batch, -1).unbind(0)
        gates = _InputGates.apply(x, input_weight, transposed_input_weight, input_bias, None, states)
        gates = gates.view(steps, *gate_shape).unbind(0)
    else:
        bias = _sum_of_biases(input_bias, hidden_bias)
        gates = _InputGates.apply(x, input_weight, transposed_input_weight, bias, hidden_weight, states)
        gates = gates.view(steps, batch, -1).unbind(0)
    first = h
    outputs = []
    for t in range(steps):
        with _at_timestep(recurrence, t):
            if kind == "gru":
                hidden_gates = _HiddenProduct.apply(hidden[t], h, detached_weight, transposed_weight)
                h, _ = torch.ops.tesser.gru_cell(gates[t], hidden_gates.view(gate_shape), h)
            else:
                sums = _HiddenProduct.apply(gates[t], h, detached_weight, transposed_weight)
                if kind == "lstm":
                    h, c, _ = torch.ops.tesser.lstm_cell(sums.view(gate_shape), c)
                else:
                    h = torch.tanh(sums) if kind == "rnn_tanh" else torch.relu(sums)
            outputs.append(h)
    output = torch.stack(outputs)
    states += [first.detach(), output.detach()]
    return output.flip(0) if reverse else output, h, c


def _run_layers(
    kind: str,
    x: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    parameters: list[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    name: str,
) -> tuple[Tensor, ...]:
    directions = 2 if bidirectional else 1
    per_direction = 4 if has_biases else 2
    if len(parameters) != layers * directions * per_direction:
        raise ValueError(
            f"{name}: projections (proj_size) are not supported."
            " Leave proj_size out and add a Linear layer after the LSTM."
        )
    if batch_first:
        x = x.transpose(0, 1)
    if x.shape[0] == 0:
        raise ValueError(f"{name}: the sequence has no timestep")
    last_h, last_c = [], []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = parameters[index * per_direction : (index + 1) * per_direction]
            if not has_biases:
                weights = [*weights, None, None]
            recurrence = f"{name}/{layer}" + ("/reverse" if direction else "")
            c = None if c0 is None else c0[index]
            output, h, c = _run_direction(kind, recurrence, x, h0[index], c, tuple(weights), direction == 1)
            outputs.append(output)
            last_h.append(h)
            last_c.append(c)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout > 0 and train and layer < layers - 1:
            x = _dropout(x, dropout)
    if batch_first:
        x = x.transpose(0, 1)
    if c0 is None:
        return x, torch.stack(last_h)
    return x, torch.stack(last_h), torch.stack(last_c)


def _dropout(x: Tensor, p: float) -> Tensor:
    from tesser import random

    mode = random.active_mode()
    return torch.nn.functional.dropout(x, p) if mode is None else mode.dropout(x, p)


def default_name(function: Any) -> str:
    """Name of a recurrent layer whose module path is not known: lstm, gru or rnn."""
    return _LAYERS[function].split("_")[0]


def run_layers(function: Any, args: tuple, kwargs: dict, name: str) -> tuple[Tensor, ...]:
    """A call of torch.lstm, gru, rnn_tanh or rnn_relu, unrolled; its recurrences are named after `name`."""
    kind = _LAYERS[function]
    if kwargs or len(args) != 9:
        raise ValueError(f"{name}: call torch.{kind} with its nine arguments by position, as torch.nn's layers do")
    if isinstance(args[3], (list, tuple)):
        raise ValueError(
            f"{name}: packed sequences have shapes that depend on the data."
            " Pass the padded tensor, and leave the padding out of the loss with a mask."
        )
    x, state, parameters, *options = args
    h0, c0 = state if kind == "lstm" else (state, None)
    return _run_layers(kind, x, h0, c0, list(parameters), *options, name)


def run_cell(function: Any, args: tuple, kwargs: dict) -> Any:
    """The result of a call of torch.lstm_cell, gru_cell, rnn_tanh_cell or rnn_relu_cell."""
    kind = _CELLS[function]

    def bind(x, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        return x, hx, w_ih, w_hh, b_ih, b_hh

    x, hx, input_weight, hidden_weight, input_bias, hidden_bias = bind(*args, **kwargs)
    linear = torch.nn.functional.linear
    h, c = (hx[0], hx[1]) if kind == "lstm" else (hx, None)
    gate_shape = (h.shape[0], GATES[kind], h.shape[1])
    input_gates = linear(x, input_weight, input_bias)
    hidden_gates = linear(h, hidden_weight, hidden_bias)
    if kind == "gru":
        return torch.ops.tesser.gru_cell(input_gates.view(gate_shape), hidden_gates.view(gate_shape), h)[0]
    sums = input_gates + hidden_gates
    if kind == "lstm":
        return tuple(torch.ops.tesser.lstm_cell(sums.view(gate_shape), c)[:2])
    return torch.tanh(sums) if kind == "rnn_tanh" else torch.relu(sums)


def active_mode() -> RecurrentMode | None:
    """The innermost RecurrentMode this thread is in."""
    return _active.get()


class RecurrentMode(TorchFunctionMode):
    """While active, recurrent layers and cells run unrolled.

    `module_path` may be set to a function that returns the path of the module being run; recurrences are then named
    after it ("encoder.lstm/0" instead of "lstm/0"), a second call of the same name "lstm.1/0". Packed sequences and
    projections are refused with a ValueError.
    """

    def __init__(self, module_path: Any = None) -> None:
        super().__init__()
        self._module_path = module_path
        self._tokens: list[Any] = []
        self._calls: Counter[str] = Counter()

    def __enter__(self) -> RecurrentMode:
        self._calls.clear()
        self._tokens.append(_active.set(self))
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        _active.reset(self._tokens.pop())

    def run(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """Runs a recurrent layer's or cell's call; the function must satisfy :func:`is_recurrent`."""
        if function in _CELLS:
            return run_cell(function, args, kwargs)
        name = (self._module_path and self._module_path()) or default_name(function)
        call = self._calls[name]
        self._calls[name] += 1
        return run_layers(function, args, kwargs, f"{name}.{call}" if call else name)

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if is_recurrent(function):
            return self.run(function, args, kwargs or {})
        return function(*args, **(kwargs or {}))


def is_recurrent(function: Any) -> bool:
    """Whether a function is one of PyTorch's recurrent layers or cells."""
    return function in _LAYERS or function in _CELLS
