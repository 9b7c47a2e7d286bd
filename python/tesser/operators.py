"""The operators of the ``tesser`` namespace (docs/formats/operators.md), registered with torch.library.

Each has a reference implementation for the CPU that is exact to that document, an implementation for fake tensors, and
a derivative where it has one, so that PyTorch runs, traces and differentiates programs that use them. Importing this
module registers them. All are functional: no result shares memory with an argument, and results are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tesser import philox

SCHEMAS = (
    "dropout(Tensor x, float p, Tensor seed, Tensor step, int id) -> Tensor",
    "dropout.channels(Tensor x, float p, Tensor seed, Tensor step, int id, int channels) -> Tensor",
    "uniform(int[] size, float low, float high, Tensor seed, Tensor step, int id) -> Tensor",
    "normal(int[] size, float mean, float std, Tensor seed, Tensor step, int id) -> Tensor",
    "bernoulli(Tensor p, Tensor seed, Tensor step, int id) -> Tensor",
    "randint(int[] size, int low, int high, Tensor seed, Tensor step, int id) -> Tensor",
    "lstm_cell(Tensor gates, Tensor c) -> (Tensor h, Tensor c_next, Tensor activations)",
    "lstm_cell_backward(Tensor? dh, Tensor? dc_next, Tensor c, Tensor c_next, Tensor activations)"
    " -> (Tensor dgates, Tensor dc)",
    "gru_cell(Tensor input_gates, Tensor hidden_gates, Tensor h) -> (Tensor h_next, Tensor activations)",
    "gru_cell_backward(Tensor dh_next, Tensor hidden_gates, Tensor h, Tensor activations)"
    " -> (Tensor dinput_gates, Tensor dhidden_gates, Tensor dh)",
    "sgd(Tensor parameter, Tensor gradient, Tensor? momentum_buffer, Tensor learning_rate, Tensor step, float momentum,"
    " float dampening, float weight_decay, bool nesterov, bool maximize)"
    " -> (Tensor parameter, Tensor? momentum_buffer)",
    "adam(Tensor parameter, Tensor gradient, Tensor exp_avg, Tensor exp_avg_sq, Tensor? max_exp_avg_sq,"
    " Tensor learning_rate, Tensor step, float beta1, float beta2, float eps, float weight_decay,"
    " bool decoupled_weight_decay, bool amsgrad, bool maximize)"
    " -> (Tensor parameter, Tensor exp_avg, Tensor exp_avg_sq, Tensor? max_exp_avg_sq)",
)

_library = torch.library.Library("tesser", "DEF")
for _schema in SCHEMAS:
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


# Random numbers


def _element_count(size: Sequence[int]) -> int:
    return int(np.prod(size, dtype=np.int64))


def _keep_mask(shape: Sequence[int], p: float, seed: Tensor, step: Tensor, id: int) -> Tensor:
    """bool of `shape`, true with probability 1 - p."""
    uniform = torch.from_numpy(philox.uniforms(_element_count(shape), int(seed), int(step), id))
    return (uniform.double() >= p).reshape(tuple(shape))


def _drop(x: Tensor, p: float, keep: Tensor) -> Tensor:
    if not x.is_floating_point():
        raise ValueError(f"tesser::dropout takes a floating-point tensor, not {x.dtype}")
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"tesser::dropout: p is a probability, 0 to 1, not {p}")
    if p == 1.0:
        return torch.zeros(x.shape, dtype=x.dtype)
    scale = float(np.float32(1.0 / (1.0 - p)))
    # torch.where, not a product with the mask: a dropped infinity is 0, not nan.
    return torch.where(keep, x * scale, torch.zeros((), dtype=x.dtype)).contiguous()


def _dropout(x: Tensor, p: float, seed: Tensor, step: Tensor, id: int) -> Tensor:
    return _drop(x, p, _keep_mask(x.shape, p, seed, step, id))


def _dropout_channels(x: Tensor, p: float, seed: Tensor, step: Tensor, id: int, channels: int) -> Tensor:
    if not 0 <= channels <= x.dim():
        raise ValueError(
            f"tesser::dropout.channels: channels is 0 to {x.dim()} for a tensor of {x.dim()} dimensions, not {channels}"
        )
    keep = _keep_mask(x.shape[:channels], p, seed, step, id)
    return _drop(x, p, keep.reshape(tuple(x.shape[:channels]) + (1,) * (x.dim() - channels)))


def _uniform(size: Sequence[int], low: float, high: float, seed: Tensor, step: Tensor, id: int) -> Tensor:
    uniform = philox.uniforms(_element_count(size), int(seed), int(step), id)
    values = np.float32(low) + uniform * np.float32(high - low)
    return torch.from_numpy(values).reshape(tuple(size))


def _normal(size: Sequence[int], mean: float, std: float, seed: Tensor, step: Tensor, id: int) -> Tensor:
    return torch.from_numpy(philox.normals(_element_count(size), mean, std, int(seed), int(step), id)).reshape(
        tuple(size)
    )


def _bernoulli(p: Tensor, seed: Tensor, step: Tensor, id: int) -> Tensor:
    uniform = torch.from_numpy(philox.uniforms(p.numel(), int(seed), int(step), id)).reshape(p.shape)
    return (uniform.double() < p.double()).to(p.dtype).contiguous()


def _randint(size: Sequence[int], low: int, high: int, seed: Tensor, step: Tensor, id: int) -> Tensor:
    if not 1 <= high - low <= 1 << 32:
        raise ValueError(f"tesser::randint: high - low is 1 to 2^32, not {high - low}")
    return torch.from_numpy(philox.integers(_element_count(size), low, high, int(seed), int(step), id)).reshape(
        tuple(size)
    )


def _meta_like(x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


def _meta_float32(size: Sequence[int], low: float, high: float, seed: Tensor, step: Tensor, id: int) -> Tensor:
    return seed.new_empty(tuple(size), dtype=torch.float32)


def _meta_int64(size: Sequence[int], low: int, high: int, seed: Tensor, step: Tensor, id: int) -> Tensor:
    return seed.new_empty(tuple(size), dtype=torch.int64)


# Recurrent cells


def _check_gates(operator: str, gates: Tensor, state: Tensor, gate_count: int) -> None:
    if gates.dim() != 3 or state.dim() != 2 or gates.shape != (state.shape[0], gate_count, state.shape[1]):
        raise ValueError(
            f"tesser::{operator}: gates must be [B, {gate_count}, H] and the state [B, H],"
            f" not {list(gates.shape)} and {list(state.shape)}"
        )


def _lstm_cell(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _check_gates("lstm_cell", gates, c, 4)
    activations = torch.sigmoid(gates).contiguous()
    activations[:, 2] = torch.tanh(gates[:, 2])
    i, f, g, o = activations.unbind(1)
    c_next = f * c + i * g
    return o * torch.tanh(c_next), c_next, activations


def _lstm_cell_backward(
    dh: Tensor | None, dc_next: Tensor | None, c: Tensor, c_next: Tensor, activations: Tensor
) -> tuple[Tensor, Tensor]:
    i, f, g, o = activations.unbind(1)
    tanh_c = torch.tanh(c_next)
    dc_total = torch.zeros_like(c_next) if dc_next is None else dc_next
    doutput = torch.zeros_like(o)
    if dh is not None:
        dc_total = dc_total + dh * o * (1 - tanh_c * tanh_c)
        doutput = dh * tanh_c * (o * (1 - o))
    dgates = torch.stack(
        (dc_total * g * (i * (1 - i)), dc_total * c * (f * (1 - f)), dc_total * i * (1 - g * g), doutput),
        dim=1,
    )
    return dgates, dc_total * f


def _gru_cell(input_gates: Tensor, hidden_gates: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    _check_gates("gru_cell", input_gates, h, 3)
    _check_gates("gru_cell", hidden_gates, h, 3)
    r = torch.sigmoid(input_gates[:, 0] + hidden_gates[:, 0])
    z = torch.sigmoid(input_gates[:, 1] + hidden_gates[:, 1])
    n = torch.tanh(input_gates[:, 2] + r * hidden_gates[:, 2])
    return n + z * (h - n), torch.stack((r, z, n), dim=1)


def _gru_cell_backward(
    dh_next: Tensor, hidden_gates: Tensor, h: Tensor, activations: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r, z, n = activations.unbind(1)
    dn = dh_next * (1 - z) * (1 - n * n)
    dz = dh_next * (h - n) * (z * (1 - z))
    dr = dn * hidden_gates[:, 2] * (r * (1 - r))
    return torch.stack((dr, dz, dn), dim=1), torch.stack((dr, dz, dn * r), dim=1), dh_next * z


def _meta_lstm_cell(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _check_gates("lstm_cell", gates, c, 4)
    return c.new_empty(c.shape), c.new_empty(c.shape), gates.new_empty(gates.shape)


def _meta_lstm_cell_backward(
    dh: Tensor | None, dc_next: Tensor | None, c: Tensor, c_next: Tensor, activations: Tensor
) -> tuple[Tensor, Tensor]:
    return activations.new_empty(activations.shape), c.new_empty(c.shape)


def _meta_gru_cell(input_gates: Tensor, hidden_gates: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    _check_gates("gru_cell", input_gates, h, 3)
    _check_gates("gru_cell", hidden_gates, h, 3)
    return h.new_empty(h.shape), h.new_empty(hidden_gates.shape)


def _meta_gru_cell_backward(
    dh_next: Tensor, hidden_gates: Tensor, h: Tensor, activations: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return h.new_empty(activations.shape), h.new_empty(activations.shape), h.new_empty(h.shape)


# Updates


def _sgd(
    parameter: Tensor,
    gradient: Tensor,
    momentum_buffer: Tensor | None,
    learning_rate: Tensor,
    step: Tensor,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
) -> tuple[Tensor, Tensor | None]:
    if (momentum_buffer is None) != (momentum == 0):
        raise ValueError("tesser::sgd: a momentum buffer is given where momentum is not 0, and only there")
    if maximize:
        gradient = -gradient
    if weight_decay != 0:
        gradient = gradient.add(parameter, alpha=weight_decay)
    new_buffer = None
    if momentum_buffer is not None:
        if int(step) == 0:
            new_buffer = gradient.clone(memory_format=torch.contiguous_format)
        else:
            new_buffer = momentum_buffer.mul(momentum).add_(gradient, alpha=1 - dampening)
        gradient = gradient.add(new_buffer, alpha=momentum) if nesterov else new_buffer
    return parameter.add(gradient, alpha=-float(learning_rate)), new_buffer


def _adam(
    parameter: Tensor,
    gradient: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Tensor | None,
    learning_rate: Tensor,
    step: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled_weight_decay: bool,
    amsgrad: bool,
    maximize: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    if (max_exp_avg_sq is None) == amsgrad:
        raise ValueError("tesser::adam: max_exp_avg_sq is given where amsgrad is true, and only there")
    rate = float(learning_rate)
    t = int(step) + 1
    parameter = parameter.clone(memory_format=torch.contiguous_format)
    if maximize:
        gradient = -gradient
    if weight_decay != 0:
        if decoupled_weight_decay:
            parameter.mul_(1 - rate * weight_decay)
        else:
            gradient = gradient.add(parameter, alpha=weight_decay)
    exp_avg = exp_avg.lerp(gradient, 1 - beta1)
    exp_avg_sq = exp_avg_sq.mul(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    new_maximum = None if max_exp_avg_sq is None else torch.maximum(max_exp_avg_sq, exp_avg_sq)
    second_moment = exp_avg_sq if new_maximum is None else new_maximum
    step_size = rate / (1 - beta1**t)
    denominator = (second_moment.sqrt() / (1 - beta2**t) ** 0.5).add_(eps)
    parameter.addcdiv_(exp_avg, denominator, value=-step_size)
    return parameter, exp_avg, exp_avg_sq, new_maximum


def _empty_of(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.new_empty(tensor.shape)


def _meta_sgd(
    parameter: Tensor, gradient: Tensor, momentum_buffer: Tensor | None, *_: object
) -> tuple[Tensor | None, ...]:
    return _empty_of(parameter), _empty_of(momentum_buffer)


def _meta_adam(
    parameter: Tensor, gradient: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, max_exp_avg_sq: Tensor | None, *_: object
) -> tuple[Tensor | None, ...]:
    return tuple(_empty_of(tensor) for tensor in (parameter, exp_avg, exp_avg_sq, max_exp_avg_sq))


for _name, _reference, _meta in (
    ("dropout", _dropout, _meta_like),
    ("dropout.channels", _dropout_channels, _meta_like),
    ("uniform", _uniform, _meta_float32),
    ("normal", _normal, _meta_float32),
    ("bernoulli", _bernoulli, _meta_like),
    ("randint", _randint, _meta_int64),
    ("lstm_cell", _lstm_cell, _meta_lstm_cell),
    ("lstm_cell_backward", _lstm_cell_backward, _meta_lstm_cell_backward),
    ("gru_cell", _gru_cell, _meta_gru_cell),
    ("gru_cell_backward", _gru_cell_backward, _meta_gru_cell_backward),
    ("sgd", _sgd, _meta_sgd),
    ("adam", _adam, _meta_adam),
):
    _library.impl(_name, _reference, "CPU")
    torch.library.register_fake(f"tesser::{_name}", _meta, lib=_library)


# Derivatives


def _save_dropout(ctx, inputs, output):
    ctx.save_for_backward(inputs[2], inputs[3])
    ctx.operands = (inputs[1], *inputs[4:])


def _dropout_derivative(ctx, gradient):
    seed, step = ctx.saved_tensors
    p, id, *channels = ctx.operands
    operator = torch.ops.tesser.dropout.channels if channels else torch.ops.tesser.dropout.default
    return (operator(gradient, p, seed, step, id, *channels), None, None, None, None, *(None for _ in channels))


def _save_bernoulli(ctx, inputs, output):
    ctx.mark_non_differentiable(output)


def _no_derivative(ctx, *gradients):
    return None, None, None, None


def _save_lstm_cell(ctx, inputs, output):
    _, c_next, activations = output
    # Absent gradients stay absent (None), so that no zeros are made for them.
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(activations)
    ctx.save_for_backward(inputs[1], c_next, activations)


def _lstm_cell_derivative(ctx, dh, dc_next, _):
    if dh is None and dc_next is None:
        return None, None
    return torch.ops.tesser.lstm_cell_backward(dh, dc_next, *ctx.saved_tensors)


def _save_gru_cell(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(inputs[1], inputs[2], output[1])


def _gru_cell_derivative(ctx, dh_next, _):
    if dh_next is None:
        return None, None, None
    return torch.ops.tesser.gru_cell_backward(dh_next, *ctx.saved_tensors)


for _name, _derivative, _save in (
    ("dropout", _dropout_derivative, _save_dropout),
    ("dropout.channels", _dropout_derivative, _save_dropout),
    ("bernoulli", _no_derivative, _save_bernoulli),
    ("lstm_cell", _lstm_cell_derivative, _save_lstm_cell),
    ("gru_cell", _gru_cell_derivative, _save_gru_cell),
):
    torch.library.register_autograd(f"tesser::{_name}", _derivative, setup_context=_save, lib=_library)
