"""Layouts of tensors: how the sweep arranges the values of one, and which words of the table describe an arrangement.

A layout is the strides of a tensor; those of dimensions of size one are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
WORDS = ("any", "dense", "inner", "image", "rows")  # the weakest first


def arrangements(tensor: Tensor) -> dict[str, Tensor]:
    """Tensors with the values of `tensor` in each layout the sweep tries; those that are expanded repeat a part."""
    rows = tensor.detach().clone(memory_format=torch.contiguous_format)
    made = {"rows": rows}
    dims = rows.dim()
    if dims == 0 or rows.numel() == 0:
        return made
    made["shifted"] = _shifted(rows)
    if dims in CHANNELS_LAST:
        made["image"] = rows.clone(memory_format=CHANNELS_LAST[dims])
    if dims >= 2:
        made["swapped"] = _exchanged(rows, dims - 2, dims - 1)
    if dims >= 3:
        made["reversed"] = _exchanged(rows, 0, dims - 1)
        made["outer"] = _exchanged(rows, 0, 1)
        made["margin"] = _with_margin(rows)
    elif dims == 2:
        made["margin"] = _with_margin(rows)
    made["stepped"] = _stepped(rows)
    made["expanded"] = rows[:1].expand_as(rows)
    if dims >= 2:
        made["expanded_inner"] = rows[..., :1].expand_as(rows)
    kept, seen = {}, set()
    for name, arranged in made.items():
        key = (counted_strides(arranged.shape, arranged.stride()), arranged.storage_offset())
        if key not in seen:
            seen.add(key)
            kept[name] = arranged
    return kept


def _shifted(rows: Tensor) -> Tensor:
    return torch.empty(rows.numel() + 1, dtype=rows.dtype)[1:].view(rows.shape).copy_(rows)


def _exchanged(rows: Tensor, first: int, second: int) -> Tensor:
    return rows.transpose(first, second).contiguous().transpose(first, second)


def _filled(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """What lies around the values: a kernel that reads it gives what is far from right."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.full(tuple(shape), float("nan"), dtype=dtype)
    return torch.zeros(tuple(shape), dtype=dtype)


def _with_margin(rows: Tensor) -> Tensor:
    larger = _filled([size + 2 for size in rows.shape], rows.dtype)
    return larger[tuple(slice(1, 1 + size) for size in rows.shape)].copy_(rows)


def _stepped(rows: Tensor) -> Tensor:
    larger = _filled([*rows.shape[:-1], 2 * rows.shape[-1] + 1], rows.dtype)
    return larger[..., 1::2].copy_(rows)


def counted_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The strides with those of dimensions of size one left out (as -1)."""
    if 0 in shape:
        return tuple(-1 for _ in shape)
    return tuple(-1 if size == 1 else stride for size, stride in zip(shape, strides))


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return ordered_strides(shape, range(len(shape)))


def image_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Channels-last for four and five dimensions, else row-major."""
    if len(shape) not in CHANNELS_LAST:
        return row_strides(shape)
    return ordered_strides(shape, [0, *range(2, len(shape)), 1])


def ordered_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor whose dimensions lie in `order`, the outermost first."""
    strides, step = [0] * len(shape), 1
    for dimension in reversed(list(order)):
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(strides)


class Layout:
    """Shape and strides of one tensor, with what the table's words ask about it."""

    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.strides = counted_strides(shape, strides)

    @staticmethod
    def of(tensor: Tensor) -> Layout:
        return Layout(tensor.shape, tensor.stride(), tensor.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.shape == other.shape and self.strides == other.strides

    def __hash__(self) -> int:
        return hash((self.shape, self.strides))

    def __repr__(self) -> str:
        return f"{list(self.shape)} by {list(self.strides)}"

    def has_strides(self, strides: Sequence[int]) -> bool:
        return self.strides == counted_strides(self.shape, strides)

    @property
    def rows(self) -> bool:
        return self.has_strides(row_strides(self.shape))

    @property
    def image(self) -> bool:
        return self.rows or self.has_strides(image_strides(self.shape))

    @property
    def counted(self) -> list[int]:
        return [dimension for dimension, stride in enumerate(self.strides) if stride >= 0]

    @property
    def order(self) -> list[int]:
        """Dimensions of more than one, the outermost first."""
        return sorted(self.counted, key=lambda dimension: -self.strides[dimension])

    @property
    def dense(self) -> bool:
        step = 1
        for dimension in reversed(self.order):
            if self.strides[dimension] != step:
                return False
            step *= self.shape[dimension]
        return True

    @property
    def inner(self) -> bool:
        """The last dimension lies closely, and no two elements at one place."""
        if self.shape and self.strides[-1] not in (-1, 1):
            return False
        reach = 0
        for dimension in reversed(self.order):
            if self.strides[dimension] <= reach:
                return False
            reach += self.strides[dimension] * (self.shape[dimension] - 1)
        return True

    def like(self, other: Layout) -> bool:
        """Whether both are dense and their dimensions lie in one order, counted from the last."""
        if not (self.dense and other.dense):
            return False
        shift = len(other.shape) - len(self.shape)
        pairs = [d for d in self.counted if d + shift >= 0 and other.strides[d + shift] >= 0]
        return sorted(pairs, key=lambda d: -self.strides[d]) == sorted(pairs, key=lambda d: -other.strides[d + shift])

    def takes(self, word: str) -> bool:
        tests: dict[str, Callable[[], bool]] = {
            "any": lambda: True,
            "dense": lambda: self.dense,
            "inner": lambda: self.inner,
            "image": lambda: self.image,
            "rows": lambda: self.rows,
        }
        return tests[word]()
