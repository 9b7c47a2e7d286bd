"""Writes what tesser needs to run a model of the benchmark: its program, and a data directory that holds exactly one batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Runs in a process of its own, so that nothing of PyTorch is in the one that measures.
WRITE = """
import sys
import numpy
import torch
import models
import tesser

model, folder = sys.argv[1:]
torch.manual_seed(0)
step = models.load(model, "bench")
for name, value in step.batch.items():
    numpy.save(f"{folder}/data/{name}.npy", value.numpy())
tesser.capture(step).write(f"{folder}/{model}.tesser")
"""


def write_inputs(model: str, folder: Path) -> None:
    (folder / "data").mkdir(parents=True)
    command = [sys.executable, "-c", WRITE, model, str(folder)]
    subprocess.run(command, cwd=ROOT, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}, check=True)
