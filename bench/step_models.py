"""The models of ./x bench step, and what tesser needs to run one: its program, that of a replica, and a data directory
that holds exactly one batch.

python -m bench.step_models MODEL FOLDER [REPLICAS]
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import models
import tesser
from tesser.step import Step

# Size and options of models.load. ``rnn`` is the Tofu paper's at a size of which two cores compute a step in seconds:
# six layers of 1024 instead of 4096 to 8192.
_SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("bench", {}),
    "resnet18": ("bench", {}),
    "gpt": ("bench", {}),
    "lstm": ("bench", {}),
    "rnn": ("6x4k", {"hidden": 1024, "batch": 64}),
}
NAMES = tuple(_SIZES)


def load(model: str) -> Step:
    size, options = _SIZES[model]
    return models.load(model, size, device="cpu", **options)


def batch(model: str, step: Step) -> dict[str, torch.Tensor]:
    """The one batch that every system trains on."""
    size, options = _SIZES[model]
    samples = next(iter(step.batch.values())).shape[0]
    return models.data(model, size, samples=samples, **options)


def write_inputs(model: str, folder: Path, replicas: int) -> None:
    """MODEL.tesser takes the whole batch; with replicas, replica/MODEL.tesser an equal share of it."""
    torch.manual_seed(0)
    step = load(model)
    (folder / "data").mkdir(parents=True)
    for name, value in batch(model, step).items():
        np.save(folder / "data" / f"{name}.npy", value.numpy())
    tesser.capture(step, folder / f"{model}.tesser")
    if replicas == 0:
        return
    share = {name: value.tensor_split(replicas)[0] for name, value in step.batch.items()}
    (folder / "replica").mkdir()
    tesser.capture(dataclasses.replace(step, batch=share), folder / "replica" / f"{model}.tesser")


if __name__ == "__main__":
    write_inputs(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
