"""Programs captured once for all tests of this folder, and the command that plans them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import models
import tesser
from models import architectures
from tests.python.commands import command


@pytest.fixture(scope="session")
def run_tesser() -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command(*words), capture_output=True, text=True, timeout=120)

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
