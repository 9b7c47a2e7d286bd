"""python/tesser/data.py and the runtime hold themselves against the same orders."""

from __future__ import annotations

from tesser.data import order
from tests.python.commands import ROOT


def test_order_equals_the_recorded_ones() -> None:
    lines = (ROOT / "tests" / "runtime" / "data_order.txt").read_text().splitlines()
    assert len(lines) >= 8
    for line in lines:
        seed, epoch, samples, *expected = map(int, line.split())
        assert order(seed, epoch, samples).tolist() == expected
