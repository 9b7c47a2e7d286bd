"""RecurrentMode: recurrent layers unrolled have PyTorch's numbers, and few operators a timestep."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from tesser import recurrent
from tesser.recurrent import RecurrentMode, current_timestep

STEPS, BATCH, INPUTS, HIDDEN = 6, 4, 5, 7
LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)}
OPTIONS = {
    "one layer": {},
    "three layers": {"num_layers": 3},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "no bias": {"bias": False},
    "batch first": {"batch_first": True, "num_layers": 2},
}


def results_and_gradients(module, inputs, state):
    module.zero_grad()
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    arguments = inputs[0] if not state else (inputs[0], tuple(inputs[1:]) if len(inputs) > 2 else inputs[1])
    output, last = module(*arguments) if state else module(arguments)
    last = last if isinstance(last, tuple) else (last,)
    (output.sin().sum() + sum((t * t).sum() for t in last)).backward()
    gradients = [t.grad for t in inputs] + [p.grad.clone() for p in module.parameters()]
    return [output.detach(), *(t.detach() for t in last), *gradients]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("state", [False, True])
def test_equals_torch_forward_and_backward(layer, options, state):
    torch.manual_seed(0)
    options = OPTIONS[options]
    module = LAYERS[layer](INPUTS, HIDDEN, **options)
    shape = (BATCH, STEPS, INPUTS) if options.get("batch_first") else (STEPS, BATCH, INPUTS)
    inputs = [torch.randn(shape)]
    if state:
        rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
        inputs += [torch.randn(rows, BATCH, HIDDEN) for _ in range(2 if layer == "lstm" else 1)]
    expected = results_and_gradients(module, inputs, state)
    with RecurrentMode():
        found = results_and_gradients(module, inputs, state)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=2e-5, atol=2e-6)


def test_equals_torch_in_double_closely():
    module = nn.GRU(INPUTS, HIDDEN, 2, bidirectional=True).double()
    inputs = [torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64)]
    expected = results_and_gradients(module, inputs, False)
    with RecurrentMode():
        found = results_and_gradients(module, inputs, False)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_equal_torch(cell, bias):
    module = cell(INPUTS, HIDDEN, bias=bias)
    x = torch.randn(BATCH, INPUTS)

    def run():
        module.zero_grad()
        state = None
        for _ in range(3):
            state = module(x, state)
        result = state[0] if isinstance(state, tuple) else state
        result.sum().backward()
        return [result.detach(), *(p.grad.clone() for p in module.parameters())]

    expected = run()
    with RecurrentMode():
        found = run()
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


def test_without_gradients_and_unbatched():
    module = nn.LSTM(INPUTS, HIDDEN)
    x = torch.randn(STEPS, INPUTS)
    with torch.no_grad():
        expected = module(x)[0]
        with RecurrentMode():
            torch.testing.assert_close(module(x)[0], expected)


def test_frozen_weights_and_inputs_get_no_gradient():
    module = nn.LSTM(INPUTS, HIDDEN)
    module.weight_ih_l0.requires_grad_(False)
    module.bias_hh_l0.requires_grad_(False)
    x = torch.randn(STEPS, BATCH, INPUTS)
    module(x)[0].sum().backward()
    expected = {name: p.grad for name, p in module.named_parameters()}
    module.zero_grad()
    with RecurrentMode():
        module(x)[0].sum().backward()
    for name, parameter in module.named_parameters():
        assert (parameter.grad is None) == (expected[name] is None) == (not parameter.requires_grad)
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-5, atol=1e-6)


def test_weights_of_the_hidden_state_alone():
    # Only the hidden weights learn: their gradient must not depend on the input weights' needing one.
    module = nn.GRU(INPUTS, HIDDEN)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name == "weight_hh_l0")
    x = torch.randn(STEPS, BATCH, INPUTS)
    module(x)[0].sum().backward()
    expected, module.weight_hh_l0.grad = module.weight_hh_l0.grad, None
    with RecurrentMode():
        module(x)[0].sum().backward()
    torch.testing.assert_close(module.weight_hh_l0.grad, expected, rtol=1e-5, atol=1e-6)


def timesteps_of(call):
    """The timestep of every cell operator that runs in a call."""
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if operator in (torch.ops.tesser.lstm_cell.default, torch.ops.tesser.gru_cell.default):
                seen.append(current_timestep())
            return operator(*args, **(kwargs or {}))

    with Watch():
        call()
    assert current_timestep() is None
    return seen


def test_timesteps_are_marked():
    lstm = nn.LSTM(INPUTS, HIDDEN, 2)
    gru = nn.GRU(INPUTS, HIDDEN, bidirectional=True)
    x = torch.randn(3, BATCH, INPUTS)
    with RecurrentMode():
        assert timesteps_of(lambda: lstm(x)) == [(f"lstm/{layer}", t) for layer in range(2) for t in range(3)]
        assert timesteps_of(lambda: lstm(x))[0] == ("lstm.1/0", 0)
    with RecurrentMode(lambda: "encoder.gru"):
        names = ("encoder.gru/0", "encoder.gru/0/reverse")
        assert timesteps_of(lambda: gru(x)) == [(name, t) for name in names for t in range(3)]


def traced_operators(module, steps):
    names = [name for name, _ in module.named_parameters()]

    def gradients(x, *parameters):
        with RecurrentMode():
            output, _ = torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x,))
        return torch.autograd.grad(output.sum(), parameters)

    graph = make_fx(gradients, tracing_mode="fake")(torch.randn(steps, BATCH, INPUTS), *module.parameters())
    return Counter(
        str(node.target).split(".")[1]
        for node in graph.graph.nodes
        if node.op == "call_function" and str(node.target).startswith(("aten", "tesser"))
    )


# Operators a timestep, forward and backward together. Views and detach move no data.
PER_STEP = {
    nn.LSTM: {"addmm": 1, "lstm_cell": 1, "lstm_cell_backward": 1, "mm": 1, "add": 1},
    nn.GRU: {"addmm": 1, "gru_cell": 1, "gru_cell_backward": 1, "mm": 1, "add": 2},
    nn.RNN: {"addmm": 1, "tanh": 1, "tanh_backward": 1, "mm": 1, "add": 1},
}


@pytest.mark.parametrize("layer", PER_STEP)
def test_operators_a_timestep(layer):
    module = layer(INPUTS, HIDDEN)
    more = traced_operators(module, 9)
    more.subtract(traced_operators(module, 5))
    views = ("view", "select", "detach", "t")
    assert {name: count / 4 for name, count in more.items() if count and name not in views} == PER_STEP[layer]
    assert more["t"] == 0 and more["view"] <= 4 * 4 and more["select"] <= 4


def test_refusals_say_what_to_do():
    x = torch.randn(STEPS, BATCH, INPUTS)
    with RecurrentMode():
        with pytest.raises(ValueError, match=r"packed sequences.*padded tensor"):
            nn.LSTM(INPUTS, HIDDEN)(nn.utils.rnn.pack_padded_sequence(x, [6, 5, 4, 1]))
        with pytest.raises(ValueError, match="proj_size"):
            nn.LSTM(INPUTS, HIDDEN, proj_size=3)(x)


def test_mode_is_left_after_an_error():
    with pytest.raises(ValueError), RecurrentMode():
        nn.LSTM(INPUTS, HIDDEN, proj_size=3)(torch.randn(STEPS, BATCH, INPUTS))
    assert recurrent.active_mode() is None
