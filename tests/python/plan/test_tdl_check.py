"""`tesser tdl check`: every shipped description, all nodes of the models, and descriptions that are wrong."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import models

Run = Callable[..., subprocess.CompletedProcess[str]]

RIGHT = """
aten::mm(a, b) -> c:
    c[i, j] = sum[k](a[i, k] * b[k, j])
    check a[i, k], b[k, j]
"""


def test_shipped_descriptions_agree_with_the_kernels(run_tesser: Run) -> None:
    outcome = run_tesser("tdl", "check", "--cases", 3, "--seed", 7)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    found = re.search(r"^(\d+) descriptions, (\d+) calls in (\d+) parts: all agree", outcome.stdout, re.MULTILINE)
    assert found, outcome.stdout
    assert int(found[1]) > 300 and int(found[3]) > 10_000


@pytest.mark.parametrize("name", models.names())
def test_nodes_of_programs_agree_at_their_shapes(name: str, captured: Callable[[str], Path], run_tesser: Run) -> None:
    outcome = run_tesser("tdl", "check", "--program", captured(name))
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "all agree" in outcome.stdout and "not described" not in outcome.stdout


def test_own_descriptions_are_checked(run_tesser: Run, tmp_path: Path) -> None:
    path = tmp_path / "my.tdl"
    path.write_text(RIGHT)
    outcome = run_tesser("tdl", "check", path, "--verbose")
    assert outcome.returncode == 0, outcome.stderr
    assert "1 descriptions" in outcome.stdout and "aten::mm" in outcome.stdout

    path.write_text(RIGHT.replace("sum[k]", "max[k]"))
    outcome = run_tesser("tdl", "check", path)
    assert outcome.returncode == 1
    assert "aten::mm is described wrongly" in outcome.stdout and "my.tdl:2" in outcome.stdout
    # The smallest call that shows it has two terms in one element.
    assert "a is float32[1, 2], b is float32[2, 1]" in outcome.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--operator", "aten::nothing"), "no description of aten::nothing"),
        (("missing.tdl",), "missing.tdl"),
        (("--cases", "0"), "--cases"),
        (("--program", "missing.tesser"), "missing.tesser"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], message: str, run_tesser: Run) -> None:
    outcome = run_tesser("tdl", "check", *words)
    assert outcome.returncode == 2
    assert message in outcome.stderr


def test_defects_of_a_file_are_named_with_line_and_column(run_tesser: Run, tmp_path: Path) -> None:
    path = tmp_path / "my.tdl"
    path.write_text(RIGHT.replace("b[k, j])", "b[k, j)"))
    outcome = run_tesser("tdl", "check", path)
    assert outcome.returncode == 2
    assert "my.tdl:3:" in outcome.stderr
