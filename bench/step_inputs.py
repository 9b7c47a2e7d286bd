"""Writes what tesser needs to run a model of the benchmark: its program, and a data directory that holds exactly one
batch.

python -m bench.step_inputs MODEL FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import models
import tesser
from bench.step_pytorch import bench_batch


def write_inputs(model: str, folder: Path) -> None:
    torch.manual_seed(0)
    step = models.load(model, "bench")
    (folder / "data").mkdir(parents=True)
    for name, value in bench_batch(model, step).items():
        np.save(folder / "data" / f"{name}.npy", value.numpy())
    tesser.capture(step, folder / f"{model}.tesser")


if __name__ == "__main__":
    write_inputs(sys.argv[1], Path(sys.argv[2]))
