"""Training steps of architectures of the ``transformers`` package, built from tiny configurations with random weights.

They are written as that package's users write them, `model(**batch).loss`, and widen the range of operators that
capture, plans and the runtime are tested with. Nothing is fetched: there are no pretrained weights.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from models.architectures import audio, decoders, encoders, images, pairs
from models.architectures.architecture import Architecture
from models.assembly import draw
from tesser.step import Step

_ARCHITECTURES: dict[str, Architecture] = {
    **encoders.ARCHITECTURES,
    **decoders.ARCHITECTURES,
    **pairs.ARCHITECTURES,
    **images.ARCHITECTURES,
    **audio.ARCHITECTURES,
}


def names() -> list[str]:
    """Every architecture's name, sorted."""
    return sorted(_ARCHITECTURES)


def load(name: str, **options: Any) -> Step:
    """The training step of an architecture; see Architecture.step for the options."""
    return _find(name).step(**options)


def data(name: str, samples: int = 1, seed: int = 0) -> dict[str, Tensor]:
    """Random samples that fit the step ``load(name)``, dimension 0 counting them."""
    return draw(_find(name).fields, samples, seed)


def _find(name: str) -> Architecture:
    if name not in _ARCHITECTURES:
        raise ValueError(f"no architecture {name!r}; there are {', '.join(names())}")
    return _ARCHITECTURES[name]
