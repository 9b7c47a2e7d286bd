"""Whether numbers are eager's but for rounding, whose size float64 tells."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tests.python.operator_sweep.samples import Numbers

# Of what float64 says is eager's own error; at most this share of the largest change counts as error.
ERROR_FACTOR = 4
LARGEST_ERROR = 1e-2


def difference(ours: Numbers, eager: Numbers, exact: Numbers | None, before: Mapping[str, Tensor]) -> str | None:
    """What is further from eager than rounding explains. `exact` is eager in float64, `before` the state a step ago."""
    found = tensor_difference(
        _scalar(ours.loss), _scalar(eager.loss), _scalar(exact.loss) if exact else None, torch.zeros(()), eager.size
    )
    if found:
        return f"loss: {found}"
    for name, expected in eager.state.items():
        reference = exact.state.get(name) if exact else None
        found = tensor_difference(ours.state[name], expected, reference, before[name])
        if found:
            return f"{name}: {found}"
    return None


def _scalar(number: float) -> Tensor:
    return torch.tensor(number if math.isfinite(number) else math.nan, dtype=torch.float64)


def tensor_difference(
    ours: Tensor, eager: Tensor, exact: Tensor | None, before: Tensor, size: float | None = None
) -> str | None:
    """`size` is the magnitude of the terms of which `eager` is a sum; without it the largest change stands for that."""
    if ours.shape != eager.shape or ours.dtype != eager.dtype:
        return f"{ours.dtype} of shape {list(ours.shape)} instead of {eager.dtype} of shape {list(eager.shape)}"
    if not eager.dtype.is_floating_point:
        return None if torch.equal(ours, eager) else f"{ours.tolist()} instead of {eager.tolist()}"
    if eager.numel() == 0:
        return None
    ours, eager, before = ours.double(), eager.double(), before.double()
    change = (eager - before).abs()
    largest = _largest(change) if size is None else size
    error = 0.0
    if exact is not None:
        error = min(_largest(exact.double() - eager), LARGEST_ERROR * largest)
    allowed = ERROR_FACTOR * error + 1e-5 * change + 5e-7 * largest + 2.4e-7 * eager.abs() + 1e-8
    distance = (ours - eager).abs()
    same = (eager.isfinite() & (distance <= allowed)) | (ours == eager) | (ours.isnan() & eager.isnan())
    if exact is not None:
        # Where eager overflows in float32 alone, another order of sums may or may not.
        same |= eager.isfinite() != exact.isfinite()
    if bool(same.all()):
        return None
    worst = int((distance / allowed).masked_fill(same, -1).nan_to_num(nan=float("inf")).argmax())
    return (
        f"{int((~same).sum())} of {eager.numel()} elements differ, most the {worst}th: {ours.flatten()[worst].item()!r}"
        f" instead of {eager.flatten()[worst].item()!r}; {allowed.expand_as(eager).flatten()[worst].item():.3g} allowed"
    )


def _largest(tensor: Tensor) -> float:
    finite = tensor.abs()[tensor.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0
