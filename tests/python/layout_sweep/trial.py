"""Repeats calls with mixtures of layouts over their tensors and compares with the same call of row-major tensors.

A kernel may crash on a layout that it does not take, so each operator is tried in a process of its own.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import signal
import struct
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.python.layout_sweep.calls import Call
from tests.python.layout_sweep.layouts import Layout, arrangements

WHOLE_PRODUCT = 3  # tensors up to which every mixture is tried
MIXTURES = 60  # of one call
SECONDS = 60  # of one call
LESS_EXACT = 8  # times row-major's own error is too much
ROUNDINGS = 16  # of the largest value, which always are allowed


@dataclass
class Outcome:
    """What one mixture of one call gave."""

    operator: str
    call: int
    names: tuple[str, ...]  # arguments' names
    layouts: tuple[Layout, ...]
    verdict: str  # "right", "refused", "wrong", "less exact", "crashed"
    results: tuple[Layout, ...] = ()
    detail: str = ""

    @property
    def taken(self) -> bool:
        return self.verdict == "right"


def mixtures(choices: Sequence[Sequence[str]], seed: int) -> list[tuple[str, ...]]:
    """Names of arrangements per tensor: the whole product if it is small, else those alike, those where one tensor
    differs, and some at random."""
    if len(choices) <= WHOLE_PRODUCT:
        made = list(itertools.product(*choices))
        if len(made) > 2 * MIXTURES:
            made = _some(choices, made, seed)
        return made
    return _some(choices, None, seed)


def _some(choices: Sequence[Sequence[str]], whole: list[tuple[str, ...]] | None, seed: int) -> list[tuple[str, ...]]:
    draw = random.Random(seed)
    made: dict[tuple[str, ...], None] = {}
    names = list(dict.fromkeys(itertools.chain.from_iterable(choices)))
    for name in names:
        made[tuple(name if name in choice else "rows" for choice in choices)] = None
    for position, choice in enumerate(choices[:8]):
        for name in choice:
            made[tuple(name if p == position else "rows" for p in range(len(choices)))] = None
            if "image" in choice:
                made[
                    tuple(
                        name if p == position else ("image" if "image" in other else "rows")
                        for p, other in enumerate(choices)
                    )
                ] = None
    while len(made) < MIXTURES and whole is None:
        before = len(made)
        for _ in range(MIXTURES):
            made[tuple(draw.choice(list(choice)) for choice in choices)] = None
        if len(made) == before:
            break
    if whole is not None:
        for entry in draw.sample(whole, MIXTURES):
            made[entry] = None
    return list(made)[: 2 * MIXTURES]


def try_call(index: int, call: Call, skip: int = 0) -> Iterator[Outcome | None]:
    """Outcomes of one call's mixtures from number `skip` on; None before each, so that a crash can be placed, and for
    those whose row-major call fails or is ill-conditioned."""
    named = call.tensors
    arranged = [arrangements(tensor) for _, tensor in named]
    names = tuple(name for name, _ in named)
    expected: dict[tuple[bool, ...], _Expected | None] = {}
    for number, mixture in enumerate(mixtures([list(choice) for choice in arranged], index)):
        if number < skip:
            continue
        yield None
        tensors = [choice[name] for choice, name in zip(arranged, mixture)]
        repeated = tuple(name if name.startswith("expanded") else "" for name in mixture)
        if repeated not in expected:
            expected[repeated] = _expected(call, tensors)
        reference = expected[repeated]
        if reference is None:
            continue
        layouts = tuple(Layout.of(tensor) for tensor in tensors)
        if any("expanded" in name for name in mixture) or mixture.count("rows") != len(mixture):
            # A kernel may write into its argument (running statistics): each call has its own.
            tensors = [_copied(tensor) for tensor in tensors]
        try:
            torch.manual_seed(5)
            results = call.run(tensors)
        except Exception as error:
            yield Outcome(call.operator, index, names, layouts, "refused", detail=str(error).split("\n")[0][:120])
            continue
        verdict, detail = reference.compare(results)
        yield Outcome(
            call.operator, index, names, layouts, verdict, tuple(Layout.of(entry) for entry in results), detail
        )


def _copied(tensor: Tensor) -> Tensor:
    """The same values and strides, in memory of its own that is not initialized elsewhere."""
    if 0 in tensor.stride() or tensor.numel() == 0:
        return tensor
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1
    floating = tensor.dtype.is_floating_point
    memory = torch.full((tensor.storage_offset() + reach,), float("nan") if floating else 0, dtype=tensor.dtype)
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tensor)


@dataclass
class _Expected:
    """Results of the row-major call, in its own precision and in float64."""

    rows: list[Tensor]
    exact: list[Tensor]

    def compare(self, results: Sequence[Tensor]) -> tuple[str, str]:
        if len(results) != len(self.rows):
            return "wrong", "number of results"
        worst = ("right", "")
        for position, (found, rows, exact) in enumerate(zip(results, self.rows, self.exact)):
            if found.shape != rows.shape or found.dtype != rows.dtype:
                return "wrong", f"result {position}: shape or dtype"
            if not found.dtype.is_floating_point:
                if not torch.equal(found, rows):
                    return "wrong", f"result {position}: other numbers"
                continue
            error, own, scale = _error(found, exact), _error(rows, exact), _scale(exact)
            epsilon = torch.finfo(rows.dtype).eps
            if not error <= LESS_EXACT * own + ROUNDINGS * epsilon * scale:
                if not error <= 1e-2 * scale:
                    return "wrong", f"result {position}: error {error:.3g} of {scale:.3g}, rows {own:.3g}"
                worst = ("less exact", f"result {position}: error {error:.3g} of {scale:.3g}, rows {own:.3g}")
        return worst


def _error(found: Tensor, exact: Tensor) -> float:
    found, exact = found.detach().double(), exact.detach().double()
    same = (found == exact) | (found.isnan() & exact.isnan())
    difference = torch.where(same, 0.0, (found - exact).abs())
    return float("inf") if difference.isnan().any() else difference.max().item() if difference.numel() else 0.0


def _scale(exact: Tensor) -> float:
    finite = exact.detach().double()
    finite = finite[finite.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def _expected(call: Call, tensors: Sequence[Tensor]) -> _Expected | None:
    def rows(tensor: Tensor) -> Tensor:
        return tensor.clone(memory_format=torch.contiguous_format)

    try:
        torch.manual_seed(5)
        own = [entry.detach() for entry in call.run([rows(tensor) for tensor in tensors])]
    except Exception:
        return None
    exact = own
    if any(tensor.dtype in (torch.float32, torch.bfloat16) for tensor in tensors):
        try:
            torch.manual_seed(5)
            exact = call.run(
                [rows(tensor).double() if tensor.is_floating_point() else rows(tensor) for tensor in tensors]
            )
        except Exception:
            exact = own
    if len(exact) != len(own):
        return None
    for found, better in zip(own, exact):
        if found.shape != better.shape:
            return None
        if not found.is_floating_point():
            if not torch.equal(found, better):
                exact = own
                break
        elif not better.is_floating_point() or not _error(found, better) <= 0.02 * _scale(better) + 1e-30:
            if found.is_floating_point() and _scale(better) == 0:
                continue
            return None if found.dtype != torch.bfloat16 else _Expected(own, own)
    return _Expected(own, exact)


def try_operator(calls: Sequence[Call], threads: int = 1) -> list[Outcome]:
    """Outcomes of all mixtures of an operator's calls; goes on after a mixture in which the kernel crashes."""
    outcomes: list[Outcome] = []
    call, mixture = 0, 0
    while call < len(calls):
        found, call, mixture = _in_child(calls, call, mixture, threads)
        outcomes += found
    crashed = {outcome.call for outcome in outcomes if outcome.verdict == "crashed"}
    # A made-up call may be one that the operator does not take in any layout.
    unsound = {index for index in crashed if calls[index].source.endswith("lifted")}
    return [outcome for outcome in outcomes if outcome.call not in unsound]


def _in_child(calls: Sequence[Call], first: int, skip: int, threads: int) -> tuple[list[Outcome], int, int]:
    """Outcomes from mixture `skip` of call `first` on, and the call and mixture to go on with."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            torch.set_num_threads(threads)
            with os.fdopen(writer, "wb") as stream:
                for index in range(first, len(calls)):
                    signal.alarm(SECONDS)
                    for outcome in try_call(index, calls[index], skip if index == first else 0):
                        content = pickle.dumps(index if outcome is None else _plain(outcome))
                        stream.write(struct.pack("<I", len(content)) + content)
                        stream.flush()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    outcomes, call, begun = [], first, skip
    with os.fdopen(reader, "rb") as stream:
        while len(size := stream.read(4)) == 4:
            content = pickle.loads(stream.read(struct.unpack("<I", size)[0]))
            if isinstance(content, int):
                call, begun = content, (begun if content == call else 0) + 1
            else:
                outcomes.append(_outcome(content))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return outcomes, len(calls), 0
    if status > 0:
        raise RuntimeError(f"the sweep itself fails for {calls[call].operator}; see above")
    if status == -signal.SIGALRM or begun <= 1:  # out of time, or row-major arguments crash too
        return outcomes, call + 1, 0
    named = calls[call].tensors
    arranged = [arrangements(tensor) for _, tensor in named]
    mixture = mixtures([list(choice) for choice in arranged], call)[begun - 1]
    layouts = tuple(Layout.of(choice[name]) for choice, name in zip(arranged, mixture))
    crashed = Outcome(calls[call].operator, call, tuple(name for name, _ in named), layouts, "crashed")
    return [*outcomes, crashed], call, begun


def _plain(outcome: Outcome) -> tuple:
    pairs = lambda layouts: tuple((layout.shape, layout.strides, layout.dtype) for layout in layouts)  # noqa: E731
    return (
        outcome.operator, outcome.call, outcome.names, pairs(outcome.layouts), outcome.verdict,
        pairs(outcome.results), outcome.detail,
    )  # fmt: skip


def _outcome(content: tuple) -> Outcome:
    operator, call, names, layouts, verdict, results, detail = content
    made = lambda pairs: tuple(Layout(*pair) for pair in pairs)  # noqa: E731
    return Outcome(operator, call, names, made(layouts), verdict, made(results), detail)
