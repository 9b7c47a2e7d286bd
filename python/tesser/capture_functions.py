"""Functions of PyTorch that address memory by strides, in a form with the same numbers that does not."""

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


_REPLACEMENTS = {
    function: _pooling(function, dimensions)
    for function, dimensions in (
        (F.adaptive_avg_pool1d, 1),
        (F.adaptive_avg_pool2d, 2),
        (F.adaptive_avg_pool3d, 3),
        (torch._C._nn.adaptive_avg_pool2d, 2),
        (torch._C._nn.adaptive_avg_pool3d, 3),
    )
}


class WithoutStrides(TorchFunctionMode):
    """While active, the functions above run in their other form."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _REPLACEMENTS.get(function, function)(*args, **(kwargs or {}))
