"""Many random networks, tried side by side in processes: what is right, refused by name, wrong."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tests.python.random_networks.check import Case, Tried, tried
from tests.python.random_networks.known import known
from tests.python.random_networks.reduction import reduced, step_file
from tests.python.random_networks.runs import Way

TOWERS = 8  # small networks that train side by side in one program
WAYS = 2  # besides the interpreter
REDUCED_OF_A_KIND = 3
REDUCTION_SECONDS = 60.0
TOLD_EVERY = 20.0


def settle() -> None:
    """One thread, and silence about what is meant: even kernels padded to the same size, operators that do not fit."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)


@dataclass
class Campaign:
    """What came of it so far, counted in networks, which are the towers of a program."""

    nets: int = 0
    right: int = 0
    refused: int = 0
    known: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)  # a line each
    undrawn: int = 0  # seeds for which no network was found that says something
    reasons: Counter[str] = field(default_factory=Counter)
    refused_ways: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)

    def add(self, done: Tried) -> list[tuple[int, Case]]:
        """Counts what is right or refused; returns the cases that are not, one a network."""
        self.nets += done.towers
        for way in done.ways:
            self.ways.update(_words(way))
        self.refused_ways.update(finding.reason for finding in done.refused_ways)
        wrong = []
        for tower in range(done.towers):
            cases = done.cases.get(tower, [])
            failed = [case for case in cases if not case.finding.is_refusal]
            if failed:
                wrong.append((tower, failed[0]))
            elif cases:
                self.refused += 1
                self.reasons.update({case.finding.reason for case in cases})
            else:
                self.right += 1
        return wrong

    def count_wrong(self, name: str, case: Case, directory: Path | None, steps: int) -> None:
        entry = known(case)
        if entry is not None:
            self.known[entry.what] += 1
            return
        where = ""
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{name}.py"
            path.write_text(step_file(case, steps), encoding="utf-8")
            where = f" ({path})"
        self.wrong.append(f"{name}: {case.finding.way}: {case.finding.message[:300]}{where}")

    @property
    def line(self) -> str:
        known = f", {sum(self.known.values())} with a known fault" if self.known else ""
        return f"{self.right} right, {self.refused} refused, {len(self.wrong)} wrong{known}"

    def report(self) -> str:
        """What was tried, and everything that was not right."""
        lines = [f"{self.nets} networks: {self.line}; {self.undrawn} seeds gave none that says something", "runs:"]
        lines += [f"  {count:6} {words}" for words, count in sorted(self.ways.items())]
        for what, counted in (
            ("refused networks", self.reasons), ("refused runs of whole programs", self.refused_ways),
            ("known faults", self.known),
        ):  # fmt: skip
            if counted:
                lines += [f"{what}:", *(f"  {count:6} {reason}" for reason, count in counted.most_common())]
        return "\n".join([*lines, *(f"wrong: {line}" for line in self.wrong)])


def _words(way: Way) -> list[str]:
    if way.how != "train":
        return [way.how]
    words = [f"{way.workers} workers" + (f", {way.plan}" if way.workers > 1 else "")]
    words += [f"{way.replicas} replicas"] if way.replicas > 1 else []
    words += ["2 threads"] if way.threads > 1 else []
    words += ["resumed"] if way.resumed else []
    words += ["resumed with other workers"] if way.resumed and way.resumed_workers != way.workers else []
    return words


def run(nets: int, seed: int, directory: Path, tell: Callable[[str], None], processes: int | None = None) -> Campaign:
    """Tries that many networks; step files of those that fail are written into the directory."""
    campaign = Campaign()
    units = -(-nets // TOWERS)
    names = iter(range(seed * 10**6, seed * 10**6 + units))
    began = last_told = time.monotonic()
    done_units = 0
    of_a_kind: dict[str, list[Case]] = {}
    count = processes or len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=settle) as pool:
        drawing: dict[Future, int] = {}
        reducing: dict[Future, tuple[str, Case]] = {}

        def reduce_or_count(name: str, case: Case) -> None:
            alike = of_a_kind.setdefault(case.finding.kind, [])
            if case.finding.kind == "wrong number" or len(alike) < REDUCED_OF_A_KIND:
                alike.append(case)
                reducing[pool.submit(reduced, case, REDUCTION_SECONDS)] = (name, case)
            else:
                campaign.count_wrong(name, case, directory, 4)

        while True:
            while len(drawing) < 2 * count and (unit := next(names, None)) is not None:
                drawing[pool.submit(tried, unit, TOWERS, WAYS)] = unit
            if not drawing and not reducing:
                break
            finished, _ = wait([*drawing, *reducing], timeout=TOLD_EVERY, return_when=FIRST_COMPLETED)
            for future in finished:
                if future in reducing:
                    name, _ = reducing.pop(future)
                    case, steps = future.result()
                    campaign.count_wrong(name, case, directory, steps)
                    continue
                unit = drawing.pop(future)
                done_units += 1
                try:
                    done = future.result()
                except BrokenExecutor:
                    raise
                except Exception as error:  # of the tools here
                    campaign.wrong.append(f"seed-{unit}: {type(error).__name__}: {error}")
                    continue
                if done is None:
                    campaign.undrawn += 1
                    continue
                for tower, case in campaign.add(done):
                    reduce_or_count(f"seed-{unit}-{tower}", case)
            if time.monotonic() - last_told >= TOLD_EVERY:
                last_told = time.monotonic()
                tell(f"{campaign.nets} of {nets} networks: {campaign.line}; {_left(began, done_units, units)} left")
    return campaign


def _left(began: float, done: int, units: int) -> str:
    if not done:
        return "unknown time"
    seconds = (time.monotonic() - began) / done * (units - done)
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.0f} min"
