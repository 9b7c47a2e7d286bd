from __future__ import annotations

from pathlib import Path

import pytest

from tests.python.distributed.runs import make_samples


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("samples")
    make_samples(directory)
    return directory
