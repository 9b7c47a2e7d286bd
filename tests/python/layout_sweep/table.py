"""The table of layouts, src/layout/operators.layout, as lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch

from tests.python.layout_sweep.calls import tensor_arguments
from tests.python.layout_sweep.words import Line

PATH = Path(__file__).resolve().parents[3] / "src" / "layout" / "operators.layout"

HEAD = """\
# What PyTorch's kernels for the processor take and give (docs/layouts.md says what the words mean), as measured by
# tests/python/layout_sweep: `./x test --operators` tries it again, `python tests/python/layout_sweep --write` makes it
# anew.
"""


def text_of(lines: Iterable[Line]) -> str:
    rows = [HEAD]
    for line in sorted(lines, key=lambda line: line.operator):
        results = ", ".join(_REFERENCE.sub(partial(_placed, line.operator), word) for word in line.results)
        rows.append(f"{line.operator}  {arguments_text(line)} -> {results}\n")
    return "".join(rows)


def arguments_text(line: Line) -> str:
    given = [argument.name for argument in tensor_arguments(line.operator)]
    words = [_REFERENCE.sub(partial(_placed, line.operator), word) for word in line.words(given)]
    if len(set(words)) == 1:
        return words[0]
    return " ".join(
        f"{name}@{position(line.operator, name)}:{word}" for name, word in zip(given, words) if word != "rows"
    )


def position(operator: str, name: str) -> int:
    """Where an argument stands in the operator's schema."""
    base, _, overload = operator.partition(".")
    return [argument.name for argument in torch._C._get_schema(base, overload).arguments].index(name)


_REFERENCE = re.compile(r"\((\w+)\)")  # an argument that a word names


def _placed(operator: str, found: re.Match[str]) -> str:
    return f"({found[1]}@{position(operator, found[1])})"


def read(path: Path = PATH) -> dict[str, Line]:
    lines = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.strip() and not text.startswith("#"):
            left, _, right = re.sub(r"@\d+", "", text).partition("->")
            operator, *words = left.split()
            if len(words) == 1 and ":" not in words[0]:
                arguments = (("*", words[0]),)
            else:
                arguments = tuple(tuple(word.split(":", 1)) for word in words)
            lines[operator] = Line(operator, arguments, tuple(word.strip() for word in right.split(",")))
    return lines
