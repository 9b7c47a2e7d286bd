"""Functions of PyTorch whose operators depend on strides, in a form with the same numbers that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


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


_REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
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


class WithoutStrides(TorchFunctionMode):
    """While active, the functions above run in their other form."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _REPLACEMENTS.get(function, function)(*args, **(kwargs or {}))
