from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.python.distributed.runs import make_samples


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("samples")
    make_samples(directory)
    return directory


@pytest.fixture(scope="session", autouse=True)
def own_run_directories() -> Iterator[None]:
    """Directories of runs lie where no other run of this machine has its own; short, for paths of sockets in them."""
    with (
        tempfile.TemporaryDirectory(prefix="tesser-d-", dir="/tmp") as directory,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", directory)
        yield
