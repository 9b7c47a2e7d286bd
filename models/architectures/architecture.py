"""What an architecture of the transformers package consists of here: a module from a tiny configuration, samples, a
loss and an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from models.assembly import OPTIMIZERS, Fields, draw
from tesser.step import LossFunction, Step

# Where a gradient is zero but for rounding (the bias of attention's keys), Adam's quotient is noise unless eps is well
# above it; then two right runs differ.
_EPSILON = {"adam": {"eps": 1e-5}, "adamw": {"eps": 1e-5}}


def own_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The loss the module computes itself, as transformers' modules do when they are given labels."""
    return model(**batch).loss


@dataclass(frozen=True)
class Architecture:
    """One architecture. `fields` are named as the module's arguments are, `batch` counts the samples of a step."""

    build: Callable[[], nn.Module]
    fields: Fields
    batch: int
    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    loss: LossFunction = own_loss

    def step(self, *, seed: int = 0, optimizer: Any = None, learning_rate: float | None = None, **options: Any) -> Step:
        """The training step; `optimizer` is a name of models.assembly.OPTIMIZERS or a function from the module to an
        optimizer, further options are fields of tesser.Step."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.build().train()
        if optimizer is None or isinstance(optimizer, str):
            kind = optimizer or self.optimizer
            settings = {**_EPSILON.get(kind, {}), **(self.optimizer_options if kind == self.optimizer else {})}
            rate = self.learning_rate if learning_rate is None else learning_rate
            made = OPTIMIZERS[kind](model.parameters(), lr=rate, **settings)
        else:
            made = optimizer(model)
        return Step(model, self.loss, draw(self.fields, self.batch, seed=0), made, **options)
