"""The page's own arithmetic (parts.js): texts of times and amounts, thinning, terminals' colours, axes, drawing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.python.page.browser import Tab

SOURCE = (Path(__file__).parent / "parts.js").read_text()


@pytest.fixture(scope="module")
def page(chromium, cluster) -> Iterator[Page]:
    tab = Tab(chromium, cluster.url)
    yield tab.open("")
    tab.close()


@pytest.mark.parametrize("name", re.findall(r'^  "(.+)": \(', SOURCE, re.MULTILINE))
def test_part(page: Page, name: str) -> None:
    assert page.evaluate(f"async (name) => {{ {SOURCE}; return run(name); }}", name) == ""
