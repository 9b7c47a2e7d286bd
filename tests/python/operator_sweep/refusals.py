"""The checked-in list of samples that capture refuses: one line an operator and reason, `operator: samples: reason`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.python.operator_sweep.sweep import REFUSED, Result

LIST = Path(__file__).parent / "expected_refusals.txt"
ADVICE = 'if this is meant, run "./x test --operators --update-refusals" and commit the list'
HEADER = """\
# Samples of PyTorch's operator database that capture refuses: operator: samples: reason.
# Written by "./x test --operators --update-refusals".
"""

Refusals = dict[tuple[str, int], str]


def short(message: str) -> str:
    """What a refusal says, without its advice."""
    return re.split(r"; |\. |, |\n", message, maxsplit=1)[0]


def of_results(results: Iterable[Result]) -> Refusals:
    return {(each.operator, each.sample): short(each.reason) for each in results if each.status == REFUSED}


def to_text(refusals: Refusals) -> str:
    samples: dict[tuple[str, str], list[int]] = {}
    for (operator, sample), reason in refusals.items():
        samples.setdefault((operator, reason), []).append(sample)
    lines = [f"{operator}: {_ranges(numbers)}: {reason}" for (operator, reason), numbers in samples.items()]
    return HEADER + "".join(f"{line}\n" for line in sorted(lines))


def from_text(text: str) -> Refusals:
    refusals = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        operator, samples, reason = line.split(": ", 2)
        for span in samples.split(" "):
            first, _, last = span.partition("-")
            refusals |= {(operator, sample): reason for sample in range(int(first), int(last or first) + 1)}
    return refusals


def changes(results: list[Result], expected: Refusals, whole: bool) -> list[str]:
    """One line for each sample that is refused in another way than expected, or not. `whole`: all samples ran."""
    found = of_results(results)
    lines = []
    for each in results:
        key = (each.operator, each.sample)
        now, before = found.get(key), expected.get(key)
        if now == before:
            continue
        if now is None:
            lines.append(f"{each.operator} #{each.sample} is {each.status} and listed as refused: {before}")
        elif before is None:
            lines.append(f"{each.operator} #{each.sample} is newly refused: {each.reason}")
        else:
            lines.append(f"{each.operator} #{each.sample} is refused for another reason: {now}; listed: {before}")
    if whole:
        ran = {(each.operator, each.sample) for each in results}
        lines += [f"{operator} #{sample} is listed and does not exist" for operator, sample in expected.keys() - ran]
    return lines


def _ranges(numbers: list[int]) -> str:
    """`0-3 7` for 0, 1, 2, 3 and 7."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in spans)
