"""Functions of PyTorch that depend on strides, or read or fill memory themselves, in a form with the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tesser.capture_error import CaptureError


def _pooling(function: Callable[..., Tensor], dimensions: int) -> Callable[..., Tensor]:
    """Pooling to one element is a mean; after it PyTorch sets the strides of activations that lie channels-last."""

    def pool(input: Tensor, output_size: Any) -> Tensor:
        sizes = output_size if isinstance(output_size, (list, tuple)) else (output_size,) * dimensions
        if all(size == 1 for size in sizes):
            return input.mean(tuple(range(-dimensions, 0)), keepdim=True)
        return function(input, output_size)

    return pool


def _of_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a factorised matrix has one form for matrices that lie row-major and one for others. Here each
    matrix lies row-major when the function is traced, and so when the program runs (docs/layouts.md)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        matrices = [argument.contiguous() if isinstance(argument, Tensor) else argument for argument in args]
        named = {name: value.contiguous() if isinstance(value, Tensor) else value for name, value in kwargs.items()}
        return function(*matrices, **named)

    return call


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str | int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """As PyTorch's C++ does on the processor, which reads lengths from tensors too."""
    reduction = {"none": 0, "mean": 1, "sum": 2}.get(reduction, reduction)
    batched = log_probs.dim() == 3
    losses, _ = torch.ops.aten._ctc_loss.default(
        log_probs if batched else log_probs.unsqueeze(1),
        targets.long(),
        _lengths(input_lengths, "input_lengths"),
        _lengths(target_lengths, "target_lengths"),
        blank,
        zero_infinity,
    )
    if zero_infinity:
        losses = torch.where(losses == float("inf"), torch.zeros((), dtype=losses.dtype), losses)
    if reduction == 1:
        lengths = torch.tensor(_lengths(target_lengths, "target_lengths"), dtype=losses.dtype)
        return (losses / lengths.clamp_min(1)).mean()
    return losses.sum() if reduction == 2 else losses if batched else losses.squeeze(0)


def _lengths(lengths: Any, name: str) -> list[int]:
    if not isinstance(lengths, Tensor):
        return [int(length) for length in lengths]
    try:
        values = lengths.tolist()
    except CaptureError:
        raise CaptureError(
            f"{name} of ctc_loss depends on the data, but sizes the tables of its gradient, and a program's shapes are "
            "fixed. Give the lengths as numbers, the same in every batch: F.ctc_loss(..., (50, 50), (9, 7))"
        ) from None
    return values if isinstance(values, list) else [values]


def _gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Without the look at whether a variance is negative."""
    if not isinstance(var, Tensor):
        return F.gaussian_nll_loss(input, target, var, full, eps, reduction)
    if var.size() != input.size() and input.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    elif var.size() != input.size():
        other = [size for size, whole in zip(var.size(), input.size()) if size != whole]
        if var.dim() != input.dim() or sum(other) != 1:
            raise ValueError("var is of incorrect size")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return {"none": lambda: loss, "mean": loss.mean, "sum": loss.sum}[reduction]()


def _tensor_split(input: Tensor, *sections: Any, **named: Any) -> tuple[Tensor, ...]:
    """PyTorch's C++ takes numbers out of a tensor's memory, which a traced one does not have."""

    def read(argument: Any) -> Any:
        return argument.tolist() if isinstance(argument, Tensor) else argument

    named = {name.replace("tensor_indices_or", "indices_or"): read(entry) for name, entry in named.items()}
    return torch.tensor_split(input, *(read(entry) for entry in sections), **named)


def _polygamma_in_place(x: Tensor, n: int) -> Tensor:
    return x.copy_(torch.polygamma(n, x.clone()))  # whose derivative needs it as it was


_REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {torch.ctc_loss: _ctc_loss, F.ctc_loss: _ctc_loss} | {
    function: _pooling(function, dimensions)
    for function, dimensions in (
        (F.adaptive_avg_pool1d, 1),
        (F.adaptive_avg_pool2d, 2),
        (F.adaptive_avg_pool3d, 3),
        (torch._C._nn.adaptive_avg_pool2d, 2),
        (torch._C._nn.adaptive_avg_pool3d, 3),
    )
}
_REPLACEMENTS |= {
    function: _of_rows(function)
    for function in (
        *(torch.det, torch.logdet, torch.slogdet, torch.Tensor.det, torch.Tensor.logdet, torch.Tensor.slogdet),
        *(torch.linalg.det, torch.linalg.slogdet, torch.linalg.solve, torch.linalg.solve_ex, torch.linalg.tensorsolve),
    )
}
_REPLACEMENTS |= {
    F.gaussian_nll_loss: _gaussian_nll_loss,
    torch.tensor_split: _tensor_split,
    Tensor.tensor_split: _tensor_split,
    Tensor.polygamma_: _polygamma_in_place,  # has no functional form to trace
}


class CapturableForms(TorchFunctionMode):
    """While active, the functions above run in their other form."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _REPLACEMENTS.get(function, function)(*args, **(kwargs or {}))
