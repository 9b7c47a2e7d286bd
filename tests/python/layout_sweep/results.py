"""What the table's words say a result looks like, from the layouts of the arguments."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch

from tests.python.layout_sweep.layouts import Layout, image_strides, ordered_strides, row_strides


def iterator_strides(shape: Sequence[int], arguments: Sequence[Layout]) -> tuple[int, ...]:
    """What TensorIterator gives a result of `shape`: its own rule, of all arguments that it walks together."""
    dims = len(shape)
    same = all(layout.shape == tuple(shape) for layout in arguments)
    if same and arguments:
        if all(layout.rows for layout in arguments):
            return row_strides(shape)
        if dims == 4 and all(layout.has_strides(image_strides(shape)) for layout in arguments):
            return image_strides(shape)
        if arguments[0].dense and all(layout == arguments[0] for layout in arguments):
            return ordered_strides(shape, _full_order(arguments[0]))
    operands = [_broadcast(layout, shape) for layout in arguments]

    def exchanged(first: int, second: int) -> int:
        for strides in operands:
            if strides[first] == 0 or strides[second] == 0:
                continue
            if strides[first] != strides[second]:
                return -1 if strides[first] < strides[second] else 1
            if shape[first] > shape[second]:
                return 1
        return 0

    order = list(range(dims))[::-1]  # the innermost first
    for i in range(1, dims):
        dim1 = i
        for dim0 in range(i - 1, -1, -1):
            comparison = exchanged(order[dim0], order[dim1])
            if comparison > 0:
                order[dim0], order[dim1] = order[dim1], order[dim0]
                dim1 = dim0
            elif comparison < 0:
                break
    return ordered_strides(shape, order[::-1])


def _converted(arguments: Sequence[Layout], result: Layout) -> list[Layout]:
    """Arguments of another type than the computation's are copied into it first, as `like` says."""
    common = result.dtype
    if common is torch.bool:
        common = functools.reduce(torch.promote_types, [layout.dtype for layout in arguments], torch.bool)
    return [
        layout if layout.dtype == common else Layout(layout.shape, like_strides(layout), common) for layout in arguments
    ]


def _full_order(layout: Layout) -> list[int]:
    """All dimensions, the outermost first; those of size one, whose stride is not counted, come first."""
    return [d for d in range(len(layout.shape)) if d not in layout.counted] + layout.order


def _broadcast(layout: Layout, shape: Sequence[int]) -> list[int]:
    shift = len(shape) - len(layout.shape)
    # A dimension of size one has no counted stride: like a broadcast one it decides nothing.
    return [
        0 if d < shift or layout.shape[d - shift] == 1 else max(layout.strides[d - shift], 0) for d in range(len(shape))
    ]


def like_strides(layout: Layout) -> tuple[int, ...]:
    """empty_like's: the argument's own if it is dense, else in the order that TensorIterator would walk it."""
    if layout.dense:
        return ordered_strides(layout.shape, _full_order(layout))
    return iterator_strides(layout.shape, [layout])


def suggests_image(layout: Layout) -> bool:
    """suggest_memory_format: whether the strides, holes allowed, are in the order of channels-last."""
    dims = len(layout.shape)
    if dims not in (4, 5) or layout.rows:
        return False
    order = [1, *range(dims - 1, 1, -1), 0]
    least = 0
    if layout.strides[1] == 0:
        return False
    for dimension in order:
        stride, size = layout.strides[dimension], layout.shape[dimension]
        if stride < 0:
            continue
        if stride < least or stride == 0:
            return False
        if dimension == 0 and least == layout.strides[1]:
            return False
        least = stride * max(size, 1)
    return True


def convolution_strides(shape: Sequence[int], arguments: Mapping[str, Layout]) -> tuple[int, ...]:
    """Channels-last where input or weight is. A sequence's input is made row-major first, so that its weight decides;
    it lies as an image of height one does."""
    if len(shape) == 3:
        image = suggests_image(_of_height_one(arguments["weight"]))
        return ordered_strides(shape, [0, 2, 1] if image else [0, 1, 2])
    image = any(suggests_image(arguments[name]) for name in ("input", "weight"))
    return image_strides(shape) if image else row_strides(shape)


def _of_height_one(layout: Layout) -> Layout:
    (first, second, third), strides = layout.shape, layout.strides
    return Layout((first, second, 1, third), (*strides[:2], 1, strides[2]))


def predicts(word: str, result: Layout, names: Sequence[str], layouts: Sequence[Layout]) -> bool:
    """Whether the result's layout is what `word` says."""
    kind, _, argument = word.rstrip(")").partition("(")
    if kind == "rows":
        return result.rows
    if kind == "iterator":
        walked = [layout for layout in layouts if len(layout.shape) <= len(result.shape)]
        return len(walked) == len(layouts) and result.has_strides(
            iterator_strides(result.shape, _converted(walked, result))
        )
    if kind == "convolution":
        return result.has_strides(convolution_strides(result.shape, dict(zip(names, layouts))))
    chosen = [layout for name, layout in zip(names, layouts) if name == argument]
    if not chosen:
        return result.rows
    if kind == "like":
        return result.shape == chosen[0].shape and result.has_strides(like_strides(chosen[0]))
    if kind == "images":
        return result.has_strides(
            image_strides(result.shape) if all(map(suggests_image, chosen)) else row_strides(result.shape)
        )
    if kind == "image":
        return result.has_strides(
            image_strides(result.shape) if suggests_image(chosen[0]) else row_strides(result.shape)
        )
    return False
