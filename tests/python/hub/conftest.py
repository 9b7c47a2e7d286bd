from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.python.hub.processes import HubProcess, Replicas


@pytest.fixture(scope="session")
def replicas() -> Iterator[Replicas]:
    made = Replicas()
    yield made
    made.close()


@pytest.fixture(scope="session")
def hub() -> Iterator[str]:
    with HubProcess() as made:
        yield made.url
