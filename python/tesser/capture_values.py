"""What a recording is made of: values, and the nodes that make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tesser.capture_error import CaptureError
from tesser.program import DTYPE_NAMES


@dataclass(eq=False, slots=True)
class Value:
    """A tensor of the program. `name` is given when the program is built, for inputs at once."""

    dtype: str
    shape: list[int]
    producer: RecordedNode | None = None
    name: str = ""
    scalar: bool | int | float | None = None  # the content, where it is one known number
    differentiable: bool = False  # depends on a parameter that is trained


@dataclass(eq=False, slots=True)
class RecordedNode:
    op: str
    args: list[Any]
    outputs: list[Value | None]
    phase: str
    index: int
    forward: RecordedNode | None = None
    module: str | None = None
    source: str | None = None
    recurrence: str | None = None
    timestep: int | None = None
    micro_batch: int | None = None
    is_view: bool = False
    label: str = ""  # name to give the node, where it is not made from the operator's


def dtype_name(dtype: torch.dtype, what: str, source: str | None = None) -> str:
    if dtype.is_complex:
        raise CaptureError(
            f"{what} is {dtype}, which programs cannot hold: their numbers are real. Compute with real and imaginary "
            "parts as tensors of their own; a Fourier transform is a product with a matrix of cosines and one of sines",
            source,
        )
    if dtype not in DTYPE_NAMES:
        raise CaptureError(
            f"{what} is {dtype}, which programs cannot hold; use one of {', '.join(DTYPE_NAMES.values())}", source
        )
    return DTYPE_NAMES[dtype]


def values_in(argument: Any) -> list[Value]:
    if isinstance(argument, Value):
        return [argument]
    if isinstance(argument, list):
        return [entry for entry in argument if isinstance(entry, Value)]
    return []
