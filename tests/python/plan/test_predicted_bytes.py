"""The bytes that a plan says are moved in a step are those that its lowered programs move: equal, to the byte.

For all models with three presets on two and four workers; with TESSER_ALL_PLANS=1 also for the architectures and more
workers.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import models
from models import architectures
from tests.python.models.equality import binary

ALL_PLANS = os.environ.get("TESSER_ALL_PLANS", "") not in ("", "0")
NAMES = [*models.names(), *(architectures.names() if ALL_PLANS else [])]
WORKERS = "2,3,4,6,8" if ALL_PLANS else "2,4"
PRESETS = "tofu,default,dp"


@pytest.mark.parametrize("name", NAMES)
def test_lowered_programs_move_what_the_plan_says(name: str, captured: Callable[[str], Path]) -> None:
    program = binary().parent / "predicted_bytes"  # tests/lowering/predicted_bytes.cc
    done = subprocess.run(
        [program, PRESETS, WORKERS, captured(name)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert any(int(predicted) > 0 for *_, predicted, _ in rows)
    assert [row for row in rows if row[-2] != row[-1]] == [], "program, preset, workers, predicted, lowered"
