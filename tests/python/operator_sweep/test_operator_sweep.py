"""Every operator of PyTorch's own operator tests, as training steps, gives eager's numbers or is refused by name.

TESSER_ALL_OPERATORS=1, as `./x test --operators` sets it, takes all samples of all operators; without it one sample of
some operators is taken. Counts and faults are left in build/operators.json.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.python.commands import ROOT
from tests.python.operator_sweep import refusals
from tests.python.operator_sweep.samples import samples_of, variants
from tests.python.operator_sweep.sweep import FAILED, REFUSED, RIGHT, WITHOUT_EFFECT, WRONG, Result, sweep

ALL = os.environ.get("TESSER_ALL_OPERATORS", "") not in ("", "0")
UPDATE = os.environ.get("TESSER_UPDATE_REFUSALS", "") not in ("", "0")
CHOICE_SEED = 15
CHOSEN = 160
# Operators that once were wrong or refused without need; their first sample is always taken.
ALWAYS = (
    "linalg.inv",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.gaussian_nll_loss",
    "nn.functional.group_norm",
    "polygamma.polygamma_n_1 in place",
    "prod",
)
PROCESSES = 2
VARIANTS_AT_ONCE = 8
STATUSES = (RIGHT, WITHOUT_EFFECT, REFUSED, FAILED, WRONG)
REPORT = ROOT / "build" / "operators.json"


def _run(positions: list[int], choice: dict[int, float] | None, directory: Path) -> list[Result]:
    """All samples of the variants at these positions, or of each the one that lies at this share of them."""
    every = variants()
    samples = []
    for position in positions:
        found = samples_of(every[position])
        if choice is not None and found:
            found = [found[int(choice[position] * len(found))]]
        samples += found
    return list(sweep(samples, directory))


def _run_all(directory: Path) -> list[Result]:
    positions = list(range(len(variants())))
    random.Random(CHOICE_SEED).shuffle(positions)  # neighbours take alike long
    groups = [positions[start : start + VARIANTS_AT_ONCE] for start in range(0, len(positions), VARIANTS_AT_ONCE)]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(_run, group, None, directory / str(number)) for number, group in enumerate(groups)]
        return [result for each in running for result in each.result()]


def _run_chosen(directory: Path) -> list[Result]:
    choose = random.Random(CHOICE_SEED)
    names = [variant.name for variant in variants()]
    choice = {position: choose.random() for position in choose.sample(range(len(names)), CHOSEN)}
    choice |= {names.index(name): 0.0 for name in ALWAYS}
    return _run(sorted(choice), choice, directory)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    directory = tmp_path_factory.mktemp("operators")
    found = _run_all(directory) if ALL else _run_chosen(directory)
    counts = Counter(each.status for each in found)
    text = ", ".join(f"{counts[status]} {status}" for status in STATUSES)
    print(f"\n{len(found)} samples of {len({each.operator for each in found})} operators: {text}")
    faults = [each.__dict__ for each in found if each.status in (FAILED, WRONG)]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(
        json.dumps({"counts": {status: counts[status] for status in STATUSES}, "faults": faults}, indent=1)
    )
    return found


@pytest.mark.parametrize("status", [WRONG, FAILED])
def test_no_sample_is(status: str, results: list[Result]) -> None:
    faults = [f"{each.operator} #{each.sample}: {each.reason}" for each in results if each.status == status]
    assert not faults, "\n".join(faults)


def test_refusals_are_those_listed(results: list[Result]) -> None:
    if UPDATE:
        assert ALL, "the list is made of all samples"
        refusals.LIST.write_text(refusals.to_text(refusals.of_results(results)), encoding="utf-8")
    expected = refusals.from_text(refusals.LIST.read_text(encoding="utf-8"))
    changes = refusals.changes(results, expected, whole=ALL)
    assert not changes, "\n".join([*changes, refusals.ADVICE])
