"""Training steps in PyTorch: the papers' models and today's. README.md lists them with their sizes."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from torch import Tensor

from models.assembly import configure, draw
from tesser.step import Step

_FILES = {
    "alexnet": "alexnet",
    "bert": "bert",
    "fcn5": "fcn5",
    "gpt": "gpt",
    "gru_lm": "language_rnn",
    "inception_v3": "inception_v3",
    "llama": "llama",
    "lstm_lm": "language_rnn",
    "mlp": "fcn5",
    "mobilenet_v2": "mobilenet_v2",
    "resnet18": "resnet",
    "resnet50": "resnet",
    "rnn": "rnn",
    "unet": "unet",
    "vgg16": "vgg16",
    "vit": "vit",
    "wresnet50": "wresnet",
    "wresnet101": "wresnet",
    "wresnet152": "wresnet",
}
_OTHER_NAMES = {"gru": "gru_lm", "lstm": "lstm_lm"}


def names() -> list[str]:
    """Every model's name, sorted."""
    return sorted(_FILES)


def sizes(name: str) -> list[str]:
    """The sizes of a model; ``tiny`` is always among them."""
    return list(_sizes(name))


def load(name: str, size: str = "tiny", **options: Any) -> Step:
    """The training step of a model; see models.assembly.assemble for the options."""
    canonical, module = _find(name)
    return module.step(size, model=canonical, **options)


def data(name: str, size: str = "tiny", samples: int = 1, seed: int = 0, **options: Any) -> dict[str, Tensor]:
    """Random samples that fit the step ``load(name, size, **options)``, dimension 0 counting them."""
    _, module = _find(name)
    return draw(module.fields(configure(_sizes(name), size, dict(options))), samples, seed)


def _find(name: str) -> tuple[str, ModuleType]:
    canonical = _OTHER_NAMES.get(name, name)
    if canonical not in _FILES:
        raise ValueError(f"no model {name!r}; there are {', '.join(names())}")
    return canonical, importlib.import_module(f"models.{_FILES[canonical]}")


def _sizes(name: str) -> dict[str, Any]:
    canonical, module = _find(name)
    return module.MODELS[canonical]
