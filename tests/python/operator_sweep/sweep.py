"""The sweep: each sample in eager PyTorch, captured, interpreted, and in C++ on one worker and on two."""

from __future__ import annotations

import gc
import re
import shutil
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

import tesser
from tesser.capture import Captured
from tesser.capture_error import CaptureError
from tests.python.operator_sweep.bundles import Failure, train_each
from tests.python.operator_sweep.comparison import difference
from tests.python.operator_sweep.samples import SEED, Numbers, Sample, run_eagerly, step_of

BUNDLE = 150
WORKERS = (("one worker", ()), ("two workers", ("--workers", 2, "--preset", "tofu")))

# What capture says where something in it or in PyTorch's tracing broke.
INTERNAL = re.compile(r"\w+(Error|Exception): |the backward pass fails")

RIGHT = "right"
WITHOUT_EFFECT = "without effect"  # eager changes no parameter, so equal numbers would say little
REFUSED = "refused"
FAILED = "failed"
WRONG = "wrong"


@dataclass(frozen=True)
class Result:
    operator: str
    sample: int
    status: str
    reason: str = ""


@dataclass
class _Candidate:
    """A captured sample that the interpreter got right."""

    operator: str
    sample: int
    captured: Captured
    eager: Numbers
    exact: Numbers | None
    before: dict[str, Tensor]
    has_effect: bool

    def difference(self, ours: Numbers) -> str | None:
        return difference(ours, self.eager, self.exact, self.before)

    def result(self, status: str, reason: str = "") -> Result:
        return Result(self.operator, self.sample, status, reason)


def sweep(samples: Iterable[Sample], directory: Path) -> Iterator[Result]:
    """Runs all of them, in bundles; `directory` takes the programs."""
    torch.set_num_threads(1)
    samples = iter(samples)
    for number, bundle in enumerate(iter(lambda: list(islice(samples, BUNDLE)), [])):
        yield from _bundle(bundle, directory / str(number))
        shutil.rmtree(directory / str(number))


def _bundle(samples: list[Sample], directory: Path) -> Iterator[Result]:
    directory.mkdir(parents=True)
    candidates = []
    for sample in samples:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _in_python(sample)
        if isinstance(found, Result):
            yield found
        else:
            candidates.append(found)
    yield from _by_command(candidates, directory)
    gc.collect()


def _by_command(candidates: list[_Candidate], directory: Path) -> Iterator[Result]:
    """The bundle in C++."""
    faults: dict[int, tuple[str, str]] = {}
    for name, words in WORKERS:
        left = {number: each.captured for number, each in enumerate(candidates) if number not in faults}
        for number, outcome in train_each(left, directory / name.replace(" ", "-"), *words).items():
            if isinstance(outcome, Failure):
                faults[number] = (FAILED, f"{name}: exit code {outcome.code}: {outcome.message}")
            elif found := candidates[number].difference(outcome):
                faults[number] = (WRONG, f"{name}: {found}")
    for number, candidate in enumerate(candidates):
        status, reason = faults.get(number, (RIGHT if candidate.has_effect else WITHOUT_EFFECT, ""))
        yield candidate.result(status, reason)


def _in_python(sample: Sample) -> Result | _Candidate:
    """Eager, capture and the interpreter."""

    def result(status: str, reason: str) -> Result:
        return Result(sample.variant.name, sample.index, status, reason)

    step = step_of(sample)
    try:
        eager, problem = run_eagerly(step), None
    except Exception as error:
        eager, problem = None, error
    if problem is None and eager is None:
        return result(WITHOUT_EFFECT, "no parameter has a gradient")
    try:
        captured = tesser.capture(step)
    except CaptureError as error:
        # PyTorch's own message is right where eager says the same.
        internal = problem is None and INTERNAL.match(error.message)
        return result(FAILED if internal else REFUSED, f"capture: {error.message}" if internal else error.message)
    except Exception as error:
        return result(FAILED, f"capture: {type(error).__name__}: {error}")
    if problem is not None:
        return result(FAILED, f"captured, but eager fails: {type(problem).__name__}: {problem}")
    before = {name: tensor.detach().clone() for name, tensor in step.model.state_dict().items()}
    changed = any(not torch.equal(eager.state[name], before[name]) for name, _ in step.model.named_parameters())
    candidate = _Candidate(sample.variant.name, sample.index, captured, eager, _exactly(sample, eager), before, changed)
    interpreter = tesser.Interpreter(captured.program, captured.state, seed=SEED)
    try:
        loss, _ = interpreter.step(step.batch)
    except Exception as error:
        return result(FAILED, f"interpreter: {type(error).__name__}: {error}")
    found = candidate.difference(Numbers(loss, interpreter.state))
    return result(WRONG, f"interpreter: {found}") if found else candidate


def _exactly(sample: Sample, eager: Numbers) -> Numbers | None:
    """Eager in float64, where it runs and draws no random numbers, which would be others."""
    if eager.is_random:
        return None
    try:
        return run_eagerly(step_of(sample, torch.float64))
    except Exception:
        return None
