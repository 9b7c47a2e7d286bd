"""Programs captured once for all tests of this folder, and the command that plans them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "python")]

import models  # noqa: E402
import tesser  # noqa: E402
from models import architectures  # noqa: E402

BINARY = Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))


@pytest.fixture(scope="session")
def run_tesser() -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [str(BINARY), *(str(word) for word in words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    return run


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """NAME.tesser of a model in size tiny, or of an architecture, with its state."""
    directory = tmp_path_factory.mktemp("programs")

    def capture(name: str) -> Path:
        program = directory / f"{name}.tesser"
        if not program.exists():
            torch.set_num_threads(1)
            step = models.load(name, "tiny") if name in models.names() else architectures.load(name)
            tesser.capture(step, program, name=name)
        return program

    return capture


@pytest.fixture(scope="session")
def batches_of() -> Callable[[str, tesser.Program, int], list[dict[str, Tensor]]]:
    """Random batches that fit a captured program."""

    def draw(name: str, program: tesser.Program, count: int) -> list[dict[str, Tensor]]:
        size = next(value.shape[0] for value in program.inputs if value.role == "batch")
        if name in models.names():
            return [models.data(name, "tiny", size, seed) for seed in range(count)]
        return [architectures.data(name, size, seed) for seed in range(count)]

    return draw
