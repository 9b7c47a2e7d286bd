"""`tesser tdl explain` and `tesser tdl list`, as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))
PROGRAMS = ROOT / "tests" / "graph" / "programs"

MINE = """my::blur(x, w) -> y:
    y[n, p] = sum[r](x[n, p + r] * w[r])
"""


def tdl(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(BINARY), "tdl", *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "my.tdl"
    file.write_text(MINE, encoding="utf-8")
    return file


@pytest.fixture
def program(tmp_path: Path) -> Path:
    directory = tmp_path / "sample.tesser"
    directory.mkdir()
    shutil.copy(PROGRAMS / "step.json", directory / "program.json")
    return directory


def test_an_operator_is_explained_with_symbols(mine: Path) -> None:
    run = tdl("explain", "my::blur", "--tdl", mine)
    assert run.returncode == 0, run.stderr
    assert [line.rstrip() for line in run.stdout.splitlines()] == [
        f"{mine}:1",
        "  my::blur(x, w) -> y:",
        "      y[n, p] = sum[r](x[n, p + r] * w[r])",
        "",
        "  cut  extent         tensor  together     first of two parts",
        "  n    N       reads  x                    [0:N/2, 0:P + R - 1]",
        "               reads  w                    [0:R]",
        "               makes  y       concatenate  [0:N/2, 0:P]",
        "  p    P       reads  x                    [0:N, 0:P/2 + R - 1]",
        "               reads  w                    [0:R]",
        "               makes  y       concatenate  [0:N, 0:P/2]",
        "  r    R       reads  x                    [0:N, 0:P + R/2 - 1]",
        "               reads  w                    [0:R/2]",
        "               makes  y       sum          [0:N, 0:P]",
    ]


def test_json_holds_the_same(mine: Path) -> None:
    explained = json.loads(tdl("explain", "my::blur", "--tdl", mine, "--json").stdout)
    cuts = explained["cases"][0]["cuts"]
    assert [cut["variable"] for cut in cuts] == ["n", "p", "r"]
    assert cuts[1]["tensors"][0] == {"tensor": "x", "made": False, "region": "[0:N, 0:P/2 + R - 1]", "together": ""}


def test_a_node_is_explained_with_its_numbers(program: Path) -> None:
    nodes = json.loads(tdl("list", "--program", program, "--json").stdout)
    assert any(row["described"] and row["nodes"] > 0 for row in nodes)
    explained = json.loads(tdl("explain", "convolution", "--program", program, "--parts", 3, "--json").stdout)
    assert explained["described"]
    cuts = {cut["variable"]: cut for cut in explained["cuts"]}
    assert cuts["p.0"]["extent"] == 26
    images, weight, made = cuts["p.0"]["tensors"]
    assert images["parts"] == ["[0:4, 0:1, 0:11, 0:28]", "[0:4, 0:1, 9:20, 0:28]", "[0:4, 0:1, 18:28, 0:28]"]
    assert weight["parts"] == ["[0:8, 0:1, 0:3, 0:3]"] * 3
    assert made["parts"] == ["[0:4, 0:8, 0:9, 0:26]", "[0:4, 0:8, 9:18, 0:26]", "[0:4, 0:8, 18:26, 0:26]"]
    assert made["together"] == "concatenate"


def test_the_shipped_operators_are_listed_with_their_place() -> None:
    rows = json.loads(tdl("list", "--json").stdout)
    places = {row["operator"]: row["place"] for row in rows}
    assert places["aten::mm"].startswith("contractions.tdl:")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explain", "aten::bmmm"], "no description of an operator 'aten::bmmm'; did you mean 'aten::bmm'?"),
        (["explain", "aten::mm", "--tdl", "nowhere.tdl"], "nowhere.tdl"),
        (["explain", "aten::mm", "--parts", "0"], "--parts"),
        (["explain"], "name is required"),
    ],
)
def test_wrong_usage_is_exit_code_2(words: list[str], message: str) -> None:
    run = tdl(*words)
    assert run.returncode == 2
    assert message in run.stderr


def test_a_malformed_file_is_told_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "wrong.tdl"
    file.write_text(MINE.replace("x[n, p + r]", "x[n, p + r"), encoding="utf-8")
    run = tdl("list", "--tdl", file)
    assert run.returncode == 2
    assert f"{file}:2:39: expected ']' after index, found ')'" in run.stderr
    assert run.stderr.rstrip().endswith("^")
