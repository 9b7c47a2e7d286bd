from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.python.page.browser import Tab, browser, program
from tests.python.page.cluster import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if program() is None:
        reason = "there is no Chromium; tools/debian-packages-browser.txt names what `./x test` installs"
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("page"))
    try:
        made.fill()
        yield made
    finally:
        made.close()


@pytest.fixture()
def tab(chromium, cluster: Cluster) -> Iterator[Callable[..., Tab]]:
    """Opens tabs of somebody at the cluster's page: `tab("ann")`; none: nobody has logged in."""
    opened: list[Tab] = []

    def make(user: str = "admin", **options: object) -> Tab:
        made = Tab(chromium, cluster.url, cluster.tokens[user] if user else "", **options)
        opened.append(made)
        return made

    yield make
    for each in opened:
        each.close()


@pytest.fixture(scope="session")
def pictures() -> Path | None:
    """Where pictures of the views go; none unless they are asked for."""
    directory = os.environ.get("TESSER_SCREENSHOTS")
    if not directory:
        return None
    Path(directory).mkdir(parents=True, exist_ok=True)
    return Path(directory)
