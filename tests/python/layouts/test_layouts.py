"""Kernels get arguments in a layout that they take (docs/layouts.md): the numbers of a run are PyTorch's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tesser
from tests.python.commands import run_tesser, train
from tests.python.layouts.layout_steps import BODIES, step
from tests.python.models.equality import train_with_interpreter, train_with_pytorch, write_data

STEPS = 3
WAYS = {"one": [], "two": ["--workers", 2, "--preset", "tofu"]}


@pytest.mark.parametrize("kind", BODIES)
def test_numbers_are_those_of_pytorch(kind: str, tmp_path: Path) -> None:
    program, data = tmp_path / "step.tesser", tmp_path / "data"
    tesser.capture(step(kind), program)
    samples = {name: torch.cat([tensor] * STEPS) for name, tensor in step(kind).batch.items()}
    write_data(data, samples)
    expected = train_with_pytorch(step(kind), samples)
    assert len(set(expected.losses)) == STEPS, "nothing is trained"
    interpreted = train_with_interpreter(program, step(kind), samples)
    np.testing.assert_allclose(interpreted.losses, expected.losses, rtol=1e-5, atol=1e-6)
    for way, words in WAYS.items():
        run = train(program, data, "--no-shuffle", "--steps", STEPS, "--checkpoint", tmp_path / way, *words)
        assert run.code == 0, f"{way}: {run.errors}"
        np.testing.assert_allclose(run.losses, expected.losses, rtol=1e-5, atol=1e-6, err_msg=way)
        exported = run_tesser("export", tmp_path / way, "-o", tmp_path / f"{way}.safetensors")
        assert exported.code == 0, f"{way}: {exported.errors}"
        for name, tensor in load_file(tmp_path / f"{way}.safetensors").items():
            np.testing.assert_allclose(tensor, expected.state[name], rtol=2e-5, atol=5e-6, err_msg=f"{way}, {name}")
