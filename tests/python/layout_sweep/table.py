"""The table of layouts, src/layout/operators.layout, as lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.python.layout_sweep.calls import tensor_arguments
from tests.python.layout_sweep.words import Line

PATH = Path(__file__).resolve().parents[3] / "src" / "layout" / "operators.layout"

HEAD = """\
# The memory layouts that PyTorch's kernels take and give, one operator a line, made by tests/python/layout_sweep:
# ./x test --operators tries it, .venv/bin/python tests/python/layout_sweep --write makes it anew.
#
# A layout is the strides of a tensor; strides of dimensions of size one do not count. Dense: every place between the
# first element and the last holds exactly one element.
# Kernels that ask for suggest_memory_format() do look at strides of dimensions of size one: a tensor that is row-major
# otherwise is to have row-major strides there too, else an image of one channel or a kernel of 1x1 may pass for either.
#
# Left, what tensor arguments must be: one word for all, or NAME:word pairs; those not named are `rows`, as are all
# arguments of an operator that is not here. A list of tensors has one word for each of its elements.
#   any        any strides: expanded with stride 0, overlapping, with holes, at any offset
#   dense      dense, its dimensions in any order
#   image      row-major or channels-last (dense; of four or five dimensions)
#   inner      the last dimension has stride 1; no stride 0, no overlap; holes and any order of the others
#   rows       dense row-major
#   like(ARG)  dense, as is ARG, and the dimensions of both, aligned at the last, lie in the same order
#
# Right, what results are, one word for each (a list of tensors has one word):
#   rows         dense row-major
#   iterator     TensorIterator's choice for all tensor arguments: its dimensions are ordered by the strides of the
#                first argument that tells two of them apart (not of stride 0, not of size one), and dense; arguments
#                of another dtype than the computation's are converted first and count as like(themselves)
#   like(ARG)    empty_like's: ARG's strides where it is dense, else dense in the order `iterator` gives for ARG alone
#   image(ARG)   channels-last where suggest_memory_format() of ARG is, else row-major
#   images(ARG)  the same where suggest_memory_format() of every tensor of the list ARG is
#   convolution  channels-last where suggest_memory_format() of input or weight is, else row-major; of sequences
#                (three dimensions) the weight alone decides, taken as an image of height one
#   view         a view of the first argument, by strides
#   unknown      none of these; also the results of an operator that is not here
# An operator with a memory_format argument gives that where it is not None; the table has what it gives where it is.
"""


def text_of(lines: Iterable[Line]) -> str:
    rows = []
    for line in sorted(lines, key=lambda line: line.operator):
        rows.append(f"{line.operator:<55} {arguments_text(line)} -> {', '.join(line.results)}")
    return HEAD + "\n" + "\n".join(rows) + "\n"


def arguments_text(line: Line) -> str:
    given = [argument.name for argument in tensor_arguments(line.operator)]
    words = line.words(given)
    if len(set(words)) == 1:
        return words[0]
    return " ".join(f"{name}:{word}" for name, word in zip(given, words) if word != "rows")


def read(path: Path = PATH) -> dict[str, Line]:
    lines = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.strip() and not text.startswith("#"):
            left, _, right = text.partition("->")
            operator, *words = left.split()
            if len(words) == 1 and ":" not in words[0]:
                arguments = (("*", words[0]),)
            else:
                arguments = tuple(tuple(word.split(":", 1)) for word in words)
            lines[operator] = Line(operator, arguments, tuple(word.strip() for word in right.split(",")))
    return lines
