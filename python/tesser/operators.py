"""The operators of the ``tesser`` namespace (docs/formats/operators.md), registered with torch.library.

Each has a reference implementation for the CPU that is exact to that document, an implementation for fake tensors, and
a derivative where it has one, so that PyTorch runs, traces and differentiates programs that use them. Importing this
module registers them. All are functional: no result shares memory with an argument, and results are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    "dropout.region(Tensor x, float p, Tensor seed, Tensor step, int id, int channels, int[] whole, int[] begin)"
    " -> Tensor",
    "uniform.region(int[] size, float low, float high, Tensor seed, Tensor step, int id, int[] whole, int[] begin)"
    " -> Tensor",
    "normal.region(int[] size, float mean, float std, Tensor seed, Tensor step, int id, int[] whole, int[] begin)"
    " -> Tensor",
    "bernoulli.region(Tensor p, Tensor seed, Tensor step, int id, int[] whole, int[] begin) -> Tensor",
    "randint.region(int[] size, int low, int high, Tensor seed, Tensor step, int id, int[] whole, int[] begin)"
    " -> Tensor",
    "batch_norm_sums(Tensor x) -> (Tensor sum, Tensor square_sum)",
    "batch_norm_statistics(Tensor sum, Tensor square_sum, Tensor? running_mean, Tensor? running_var, int count,"
    " float momentum, float eps) -> (Tensor mean, Tensor rstd, Tensor? running_mean, Tensor? running_var)",
    "batch_norm_apply(Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor rstd) -> Tensor",
    "batch_norm_backward_sums(Tensor dy, Tensor x, Tensor mean, Tensor rstd) -> (Tensor sum_dy, Tensor sum_dy_xhat)",
    "batch_norm_backward_apply(Tensor dy, Tensor x, Tensor? weight, Tensor mean, Tensor rstd, Tensor sum_dy,"
    " Tensor sum_dy_xhat, int count) -> Tensor",
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


# Parts of a random tensor: the numbers that the elements [begin, begin + size) of a tensor of shape `whole` have.


def _part(
    operator: str, whole: Sequence[int], begin: Sequence[int], size: Sequence[int], numbers: Callable[[int], np.ndarray]
) -> Tensor:
    """Those elements of the whole tensor that `numbers(element count)` gives in row-major order."""
    if len(whole) != len(size) or len(begin) != len(size):
        raise ValueError(f"tesser::{operator}.region: whole and begin must have {len(size)} dimensions, as the part")
    if any(b < 0 or b + s > w for b, s, w in zip(begin, size, whole, strict=True)):
        raise ValueError(
            f"tesser::{operator}.region: a part of shape {list(size)} at {list(begin)} lies outside {list(whole)}"
        )
    elements = numbers(_element_count(whole)).reshape(tuple(whole))
    part = elements[tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))]
    return torch.from_numpy(np.ascontiguousarray(part)).reshape(tuple(size))


def _dropout_region(
    x: Tensor,
    p: float,
    seed: Tensor,
    step: Tensor,
    id: int,
    channels: int,
    whole: Sequence[int],
    begin: Sequence[int],
) -> Tensor:
    if not 0 <= channels <= x.dim() or len(whole) != x.dim() or len(begin) != x.dim():
        raise ValueError(
            f"tesser::dropout.region: whole and begin must have {x.dim()} dimensions, channels is 0 to {x.dim()}"
        )
    uniform = _part(
        "dropout",
        whole[:channels],
        begin[:channels],
        x.shape[:channels],
        lambda count: philox.uniforms(count, int(seed), int(step), id),
    )
    return _drop(x, p, (uniform.double() >= p).reshape(tuple(x.shape[:channels]) + (1,) * (x.dim() - channels)))


def _uniform_region(
    size: Sequence[int],
    low: float,
    high: float,
    seed: Tensor,
    step: Tensor,
    id: int,
    whole: Sequence[int],
    begin: Sequence[int],
) -> Tensor:
    return _part("uniform", whole, begin, size, lambda count: _uniform([count], low, high, seed, step, id).numpy())


def _normal_region(
    size: Sequence[int],
    mean: float,
    std: float,
    seed: Tensor,
    step: Tensor,
    id: int,
    whole: Sequence[int],
    begin: Sequence[int],
) -> Tensor:
    return _part("normal", whole, begin, size, lambda count: _normal([count], mean, std, seed, step, id).numpy())


def _bernoulli_region(
    p: Tensor, seed: Tensor, step: Tensor, id: int, whole: Sequence[int], begin: Sequence[int]
) -> Tensor:
    uniform = _part("bernoulli", whole, begin, p.shape, lambda count: philox.uniforms(count, int(seed), int(step), id))
    return (uniform.double() < p.double()).to(p.dtype).contiguous()


def _randint_region(
    size: Sequence[int],
    low: int,
    high: int,
    seed: Tensor,
    step: Tensor,
    id: int,
    whole: Sequence[int],
    begin: Sequence[int],
) -> Tensor:
    return _part("randint", whole, begin, size, lambda count: _randint([count], low, high, seed, step, id).numpy())


def _meta_like(x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


def _meta_float32(
    size: Sequence[int], low: float, high: float, seed: Tensor, step: Tensor, id: int, *_: object
) -> Tensor:
    return seed.new_empty(tuple(size), dtype=torch.float32)


def _meta_int64(size: Sequence[int], low: int, high: int, seed: Tensor, step: Tensor, id: int, *_: object) -> Tensor:
    return seed.new_empty(tuple(size), dtype=torch.int64)


# Batch normalisation in steps that can each be cut over the batch


def _by_channel(vector: Tensor, x: Tensor) -> Tensor:
    """A vector of [C] that broadcasts over x[N, C, ...]."""
    return vector.reshape((1, -1) + (1,) * (x.dim() - 2))


def _check_batch_norm(operator: str, x: Tensor, *vectors: Tensor | None) -> None:
    if x.dim() < 2 or any(vector is not None and vector.shape != x.shape[1:2] for vector in vectors):
        shapes = [None if vector is None else list(vector.shape) for vector in vectors]
        raise ValueError(f"tesser::{operator}: x must be [N, C, ...], the others [C], not {list(x.shape)} and {shapes}")


def _over_all_but_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _batch_norm_sums(x: Tensor) -> tuple[Tensor, Tensor]:
    _check_batch_norm("batch_norm_sums", x)
    wide = x.double()
    return wide.sum(_over_all_but_channels(x)), (wide * wide).sum(_over_all_but_channels(x))


def _batch_norm_statistics(
    sum: Tensor,
    square_sum: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    count: int,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    dtype = torch.float32 if running_mean is None else running_mean.dtype
    mean = sum / count
    variance = (square_sum / count - mean * mean).clamp_min(0)
    new_mean = new_variance = None
    if running_mean is not None:
        new_mean = (momentum * mean + (1 - momentum) * running_mean.double()).to(running_mean.dtype)
    if running_var is not None:
        # Of one element there is no unbiased variance: nan, as PyTorch's.
        unbiased = variance * count / (count - 1) if count > 1 else torch.full_like(variance, torch.nan)
        new_variance = (momentum * unbiased + (1 - momentum) * running_var.double()).to(running_var.dtype)
    return mean.to(dtype), (1 / (variance + eps).sqrt()).to(dtype), new_mean, new_variance


def _batch_norm_scale(weight: Tensor | None, rstd: Tensor, x: Tensor) -> Tensor:
    return (rstd.double() if weight is None else rstd.double() * weight.double()).to(x.dtype)


def _batch_norm_apply(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, rstd: Tensor) -> Tensor:
    _check_batch_norm("batch_norm_apply", x, weight, bias, mean, rstd)
    scale = _batch_norm_scale(weight, rstd, x)
    shift = -mean.double() * scale.double()
    if bias is not None:
        shift = bias.double() + shift
    return (x * _by_channel(scale, x) + _by_channel(shift.to(x.dtype), x)).contiguous()


def _batch_norm_backward_sums(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    _check_batch_norm("batch_norm_backward_sums", x, mean, rstd)
    wide = dy.double()
    products = (wide * (x.double() - _by_channel(mean.double(), x))).sum(_over_all_but_channels(x))
    return wide.sum(_over_all_but_channels(x)), products * rstd.double()


def _batch_norm_backward_apply(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    sum_dy: Tensor,
    sum_dy_xhat: Tensor,
    count: int,
) -> Tensor:
    _check_batch_norm("batch_norm_backward_apply", x, weight, mean, rstd, sum_dy, sum_dy_xhat)
    mean_dy = (sum_dy / count).to(x.dtype)
    slope = (sum_dy_xhat * rstd.double() / count).to(x.dtype)
    centred = (x - _by_channel(mean, x)) * _by_channel(slope, x)
    return ((dy - _by_channel(mean_dy, x) - centred) * _by_channel(_batch_norm_scale(weight, rstd, x), x)).contiguous()


def _meta_batch_norm_sums(x: Tensor) -> tuple[Tensor, Tensor]:
    _check_batch_norm("batch_norm_sums", x)
    return x.new_empty(x.shape[1:2], dtype=torch.float64), x.new_empty(x.shape[1:2], dtype=torch.float64)


def _meta_batch_norm_statistics(
    sum: Tensor, square_sum: Tensor, running_mean: Tensor | None, running_var: Tensor | None, *_: object
) -> tuple[Tensor | None, ...]:
    dtype = torch.float32 if running_mean is None else running_mean.dtype
    statistics = sum.new_empty(sum.shape, dtype=dtype), sum.new_empty(sum.shape, dtype=dtype)
    return *statistics, _empty_of(running_mean), _empty_of(running_var)


def _meta_batch_norm_backward_sums(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    return _meta_batch_norm_sums(x)


def _meta_batch_norm_backward_apply(dy: Tensor, x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


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
    ("dropout.region", _dropout_region, _meta_like),
    ("uniform.region", _uniform_region, _meta_float32),
    ("normal.region", _normal_region, _meta_float32),
    ("bernoulli.region", _bernoulli_region, _meta_like),
    ("randint.region", _randint_region, _meta_int64),
    ("batch_norm_sums", _batch_norm_sums, _meta_batch_norm_sums),
    ("batch_norm_statistics", _batch_norm_statistics, _meta_batch_norm_statistics),
    ("batch_norm_apply", _batch_norm_apply, _meta_like),
    ("batch_norm_backward_sums", _batch_norm_backward_sums, _meta_batch_norm_backward_sums),
    ("batch_norm_backward_apply", _batch_norm_backward_apply, _meta_batch_norm_backward_apply),
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
