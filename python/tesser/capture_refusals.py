"""Operators that cannot stand in a program, and what to use instead."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from tesser.capture_error import CaptureError

STRIDED = {"aten::as_strided", "aten::as_strided_copy", "aten::as_strided_scatter"}
READS_A_VALUE = {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal", "aten::allclose"}

WHY_NO_VALUES = (
    "the program is fixed before any data is seen, so Python cannot read a tensor's value: with item(), float(), "
    "int(), bool(), tolist(), numpy() or an `if` on a tensor. Choose between tensors with torch.where, and return what "
    "you want to look at as a metric. Where a function of PyTorch's reads one for a size, give it that: num_classes of "
    "one_hot"
)
WHY_NO_SIZES = (
    "the size of its result depends on the data, and a program's shapes are fixed. Keep the full size and use a mask: "
    "torch.where(mask, x, 0), or (loss * mask).sum() / mask.sum()"
)

_SIZE_DEPENDS = "the size of its result depends on the data, and a program's shapes are fixed. "
_INSTEAD = {
    "aten::bincount": _SIZE_DEPENDS + "Count into a tensor of fixed size: zeros(n).scatter_add(0, x, ones)",
    "aten::repeat_interleave": _SIZE_DEPENDS + "Give it output_size, where the repeats always have the same sum",
    "aten::linalg_lstsq": _SIZE_DEPENDS + "Solve the normal equations: torch.linalg.solve(a.mT @ a, a.mT @ b)",
    "aten::multinomial": "take the argmax of logits - log(-log(torch.rand(...))), which draws alike",
    "transformers::grouped_mm_fallback": 'Give the model\'s configuration experts_implementation="batched_mm", which '
    "computes experts with PyTorch's operators",
}


def needs_values(func: OpOverload, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the operator gives Python a tensor's value, or a result whose size depends on values."""
    base = name.split(".")[0]
    if base in READS_A_VALUE or torch.Tag.data_dependent_output in func.tags:
        return True
    if name == "aten::_ctc_loss" or (base == "aten::repeat_interleave" and kwargs.get("output_size") is not None):
        return False  # the sizes are given
    if base == "aten::index":
        return any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return torch.Tag.dynamic_output_shape in func.tags and base != "aten::index_put"


def refuse_unsupported(
    func: OpOverload, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], source: str | None
) -> None:
    """CaptureError when the operator has no place in a program."""
    base = name.split(".")[0]
    if func.namespace not in ("aten", "tesser"):
        remedy = _INSTEAD.get(base, "Write it with PyTorch's own operators, or switch it off in the library's settings")
        raise CaptureError(
            f"operator {name} is not supported: programs hold aten:: and tesser:: operators only. {remedy}", source
        )
    if base in READS_A_VALUE or torch.Tag.data_dependent_output in func.tags:
        raise CaptureError(WHY_NO_VALUES, source)
    if needs_values(func, name, args, kwargs):
        what = "indexing with a boolean mask, x[mask]" if base == "aten::index" else base
        raise CaptureError(f"{what}: {_INSTEAD.get(base, WHY_NO_SIZES)}", source)
    if base in STRIDED:
        raise CaptureError(
            f"{base} addresses memory by strides, which programs do not have; "
            "use slicing, view, expand, unfold or gather instead, and torch.where with a mask for fill_diagonal_",
            source,
        )
    if func._schema.is_mutable:
        raise CaptureError(
            f"{name} changes a tensor in place and has no functional form; use the operator that returns a new tensor",
            source,
        )
    if torch.Tag.nondeterministic_seeded in func.tags and not (
        func.namespace == "tesser" or base == "aten::_scaled_dot_product_flash_attention_for_cpu"
    ):
        raise CaptureError(
            f"{base} draws random numbers in a way that has no counter-based form; "
            + _INSTEAD.get(base, "use dropout, rand, randn, randint or bernoulli"),
            source,
        )


class OtherGenerators:
    """Python's and numpy's own generators: a program would repeat what was drawn from them in every step."""

    def __init__(self) -> None:
        self._before = self._states()

    @staticmethod
    def _states() -> dict[str, tuple[int, int]]:
        """A number that a draw changes, and one that changes when that starts anew."""
        python, numpy = random.getstate()[1], np.random.get_state(legacy=False)["state"]
        return {"random": (python[-1], python[0]), "numpy.random": (numpy["pos"], int(numpy["key"][0]))}

    def refuse_draws(self, source: str | None) -> None:
        """CaptureError when something has been drawn since this was made; `source` is the line that runs now."""
        drawn = [name for name, state in self._states().items() if state != self._before[name]]
        if drawn:
            raise CaptureError(
                f"numbers are drawn with {' and '.join(drawn)}, which would be the same ones in every step of the "
                "program. Draw them with torch.rand, randn, randint or bernoulli, or switch off what needs them",
                source,
            )
