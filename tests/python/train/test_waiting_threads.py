"""What `tesser` tells OpenMP's library of how long waiting threads spin, before it becomes `tesser-runtime`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.python.commands import binary

SPINS, POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"


def seen_by_the_runtime(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of what stands in for `tesser-runtime`."""
    shutil.copy(binary(), folder / "tesser")
    runtime = folder / "tesser-runtime"
    runtime.write_text("#!/bin/sh\nenv\n")
    runtime.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in (SPINS, POLICY)} | variables
    run = subprocess.run([folder / "tesser", "train"], env=environment, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in run.stdout.splitlines() if "=" in line)


def test_spinning_is_bounded(tmp_path: Path) -> None:
    # 0.1 ms of pauses, of 10 to 150 cycles each.
    assert 100 < int(seen_by_the_runtime(tmp_path)[SPINS]) < 100_000


@pytest.mark.parametrize("variables", [{SPINS: "7"}, {POLICY: "ACTIVE"}, {POLICY: "PASSIVE", SPINS: "0"}])
def test_what_the_user_says_stays(tmp_path: Path, variables: dict[str, str]) -> None:
    seen = seen_by_the_runtime(tmp_path, **variables)
    assert {name: seen[name] for name in (SPINS, POLICY) if name in seen} == variables
