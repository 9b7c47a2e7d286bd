"""Writes golden.txt: numbers of the Python reference of the random operators (python/tesser/operators.py), for
philox_test.cc.

    PYTHONPATH=python python tests/kernels/make_golden.py

Lines are `NAME VALUE...`; floats are written as their bits in hexadecimal.
"""

from pathlib import Path

import numpy as np
import torch

import tesser.operators  # noqa: F401

COUNT = 301
STREAMS = [(0, 0, 0), (42, 7, 3), (-6148914691236517206, 4294967299, 2)]  # seed, step, id


def bits(tensor: torch.Tensor) -> str:
    array = tensor.numpy().reshape(-1)
    return " ".join(f"{value:x}" for value in array.view({4: np.uint32, 8: np.uint64}[array.itemsize]))


def golden_text() -> str:
    operators = torch.ops.tesser
    lines = [f"count {COUNT}"]
    for index, (seed, step, id) in enumerate(STREAMS):
        stream = (torch.tensor(seed), torch.tensor(step), id)
        ramp = torch.arange(1, COUNT + 1, dtype=torch.float32) / 7
        probability = torch.arange(COUNT, dtype=torch.float32) / COUNT
        results = {
            "dropout": operators.dropout(ramp, 0.3, *stream),
            "dropout_double": operators.dropout(ramp.double(), 0.3, *stream),
            "dropout_channels": operators.dropout.channels(ramp.reshape(43, 7), 0.5, *stream, 1),
            "uniform": operators.uniform([COUNT], -0.3, 2.1, *stream),
            "normal": operators.normal([COUNT], 0.5, 2.0, *stream),
            "bernoulli": operators.bernoulli(probability, *stream),
            "bernoulli_double": operators.bernoulli(probability.double(), *stream),
            "randint": operators.randint([COUNT], -5, 1 << 31, *stream),
        }
        lines += [f"{index}/{name} {bits(values)}" for name, values in results.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "golden.txt").write_text(golden_text())
