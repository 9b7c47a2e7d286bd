"""The table of layouts says what PyTorch's kernels take and give: a sample of the sweep, and the whole on demand."""

from __future__ import annotations

import os
from functools import cache

import pytest

from tests.python.layout_sweep import sweep, table
from tests.python.layout_sweep.calls import Calls
from tests.python.layout_sweep.images import from_images
from tests.python.layout_sweep.trial import Outcome, try_operator
from tests.python.layout_sweep.words import Line, violations

SAMPLE = (
    "aten::add.Tensor",
    "aten::mul.Tensor",
    "aten::cat",
    "aten::convolution",
    "aten::convolution_backward",
    "aten::max_pool2d_with_indices",
    "aten::native_group_norm",
    "aten::_softmax",
    "aten::sum.dim_IntList",
    "aten::bmm",
)


@cache
def _calls() -> Calls:
    calls = Calls()
    from_images(calls)
    return calls


@cache
def _outcomes(operator: str) -> list[Outcome]:
    known = sweep.varied(list(_calls().by_operator[operator].values()))
    return try_operator(known[:2])


@pytest.mark.parametrize("operator", SAMPLE)
def test_a_line_of_the_table_holds(operator: str) -> None:
    line = table.read()[operator]
    outcomes = _outcomes(operator)
    assert any(map(line.covers, outcomes))
    assert violations(line, outcomes) == []


def test_a_wrong_line_is_caught() -> None:
    wrong = Line("aten::native_group_norm", (("*", "any"),), ("unknown",) * 3)
    assert any("wrong" in text for text in violations(wrong, _outcomes("aten::native_group_norm")))


def test_a_wrong_result_is_caught() -> None:
    wrong = Line("aten::convolution", (("input", "image"),), ("rows",))
    assert any("not rows" in text for text in violations(wrong, _outcomes("aten::convolution")))


def test_a_line_written_again_says_the_same() -> None:
    lines = table.read()
    assert table.text_of(lines.values()) == table.PATH.read_text(encoding="utf-8")
    layer_norm = lines["aten::native_layer_norm_backward"]
    assert layer_norm.words(["input", "mean", "rstd"]) == ["any", "rows", "rows"]


@pytest.mark.skipif(os.environ.get("TESSER_ALL_OPERATORS") != "1", reason="the whole sweep: ./x test --operators")
def test_the_whole_table_is_what_the_sweep_finds() -> None:
    assert sweep.run(write=False) == 0
