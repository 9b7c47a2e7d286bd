"""Runs lowered programs, all workers in one process: the reference for distributed runs.

    run = tesser.lowered.LoweredInterpreter.open("gpt.lowered", state="gpt.tesser")
    loss, metrics = run.step(batch)
    run.state["fc1.weight"]  # put together from the workers' parts

Transfers and their waiting are those of docs/formats/lowered.md: a worker runs until it waits, then the next one goes
on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tesser import schedules
from tesser.interpreter import (
    Operator,
    check_results,
    last_reads,
    outputs_of_step,
    read_state,
    scalars_of_step,
)
from tesser.program import DTYPES, Input, Node, Program, ProgramError, check_checksum

INDEX_FILE = "lowering.json"
FORMAT = "tesser.lowered"
VERSION = 2


class _Transfers:
    """What is under way between workers in one step."""

    def __init__(self) -> None:
        self.opened: dict[int, Tensor] = {}  # by transfer: the rectangle of the receiver's buffer
        self.sent: set[int] = set()
        self.bytes = 0


class LoweredInterpreter:
    """All workers' programs with their state. Not thread-safe.

    `workers` are programs in the order of the workers; `state` holds whole tensors by name.
    """

    def __init__(self, workers: list[Program], state: Mapping[str, Tensor], *, seed: int = 0) -> None:
        self.step_index = workers[0].first_step
        self.transferred_bytes = 0  # of the last step
        self._workers = [_Worker(number, program, state, seed) for number, program in enumerate(workers)]

    @staticmethod
    def open(directory: Path | str, *, state: Path | str, seed: int = 0) -> LoweredInterpreter:
        """The programs of a ``.lowered`` directory with the state of the ``.tesser`` directory they come from."""
        directory = Path(directory)
        path = directory / INDEX_FILE
        try:
            text = path.read_bytes().decode("utf-8")
            index = json.loads(text)
        except (OSError, ValueError) as error:
            raise ProgramError(f"{path}: {error}") from None
        if not isinstance(index, dict) or index.get("format") != FORMAT or index.get("version") != VERSION:
            raise ProgramError(f"{path}: not the index of a lowered program of version {VERSION}")
        check_checksum(text, index, str(path))
        count = index.get("workers")
        if not isinstance(count, int) or count < 1:
            raise ProgramError(f"{path}: workers is a number from 1 on, not {count!r}")
        workers = [Program.read(directory / f"worker-{number}.json") for number in range(count)]
        stored: dict[str, Tensor] = {}
        for worker in workers:
            stored.update(read_state(state, worker))
        return LoweredInterpreter(workers, stored, seed=seed)

    @property
    def state(self) -> dict[str, Tensor]:
        """Whole state and constants by name, copied."""
        whole: dict[str, Tensor] = {}
        for worker in self._workers:
            for value in worker.program.inputs:
                if value.name not in worker.state:
                    continue
                tensor = worker.state[value.name]
                if value.whole is None:
                    whole[value.name] = tensor.clone()
                else:
                    if value.name not in whole:
                        whole[value.name] = torch.full(value.whole, torch.nan).to(tensor.dtype)
                    _part(whole[value.name], value).copy_(tensor)
        return whole

    def step(self, batch: Mapping[str, Tensor]) -> tuple[float, dict[str, float]]:
        """Runs one training step with the whole batch; all workers must report the same loss and metrics."""
        transfers = _Transfers()
        running = [worker.run(batch, self.step_index, transfers) for worker in self._workers]
        waiting: list[str | None] = [""] * len(running)  # why a worker waits; None when it has ended
        while any(reason is not None for reason in waiting):
            before = (len(transfers.opened), len(transfers.sent), waiting.count(None))
            for number, events in enumerate(running):
                if waiting[number] is not None:
                    waiting[number] = next(events, None)
            if (len(transfers.opened), len(transfers.sent), waiting.count(None)) == before:
                reasons = "; ".join(f"worker {n}: {reason}" for n, reason in enumerate(waiting) if reason is not None)
                raise ProgramError(f"all workers wait: {reasons}")
        self.transferred_bytes = transfers.bytes
        self.step_index += 1
        first = self._workers[0].reported
        for worker in self._workers[1:]:
            if worker.reported != first and not _both_nan(worker.reported, first):
                raise ProgramError(f"worker {worker.number} reports {worker.reported}, worker 0 {first}")
        return first


def _both_nan(a: Any, b: Any) -> bool:
    return str(a) == str(b)


def _part(whole: Tensor, value: Input) -> Tensor:
    if value.whole is None:
        return whole
    return whole[tuple(slice(begin, begin + size) for begin, size in zip(value.begin or [], value.shape))]


def _rectangles(begins: list[int], sizes: list[int], rank: int, count: int) -> Iterator[tuple[slice, ...]]:
    for first in range(0, max(rank, 1) * count, max(rank, 1)):
        pairs = zip(begins[first : first + rank], sizes[first : first + rank])
        yield tuple([slice(begin, begin + size) for begin, size in pairs])


class _Worker:
    def __init__(self, number: int, program: Program, state: Mapping[str, Tensor], seed: int) -> None:
        self.number = number
        self.program = program
        self.state: dict[str, Tensor] = {}
        self.reported: tuple[float, dict[str, float]] = (float("nan"), {})
        self._seed = seed
        self._schedules = [schedules.from_json(entry) for entry in program.schedules]
        self._last_reads = last_reads(program)
        self._operators = {
            index: Operator(node) for index, node in enumerate(program.nodes) if node.op not in _MOVEMENTS
        }
        for value in program.inputs:
            if value.is_state or value.role == "constant":
                if value.name in state:
                    self.state[value.name] = _part(state[value.name].detach(), value).clone()
                elif value.initial == "zeros":
                    self.state[value.name] = torch.zeros(value.shape, dtype=DTYPES[value.dtype])
                else:
                    raise ProgramError(f"no initial value for {value.name!r}")

    @torch.no_grad()
    def run(self, batch: Mapping[str, Tensor], step: int, transfers: _Transfers) -> Iterator[str]:
        """Yields the reason whenever it waits for another worker."""
        values = self._inputs(batch, step)
        for index, node in enumerate(self.program.nodes):
            movement = _MOVEMENTS.get(node.op)
            if movement is None:
                results = self._operators[index](values)
                check_results(node, results)
            else:
                results = yield from movement(node, values, transfers)
            for result, tensor in zip(node.out, results):
                if result is not None:
                    values[result.name] = tensor
            for name in self._last_reads.get(index, ()):
                values.pop(name, None)
        loss, metrics, changed = outputs_of_step(self.program, values)
        self.state.update(changed)
        self.reported = (loss, metrics)

    def _inputs(self, batch: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
        values = dict(self.state)
        for value in self.program.inputs:
            if value.role == "batch":
                if value.name not in batch:
                    raise ProgramError(f"the batch has no {value.name!r}; it has {sorted(batch)}")
                values[value.name] = _part(batch[value.name], value)
        return values | scalars_of_step(self.program, self._schedules, step, self._seed)


def _open(node: Node, values: dict[str, Tensor], transfers: _Transfers) -> Iterator[str]:
    _, numbers, begins, sizes, _ = node.args
    (result,) = node.out
    # Anything but zeros: an element that nothing fills must show.
    buffer = torch.full(result.shape, torch.nan).to(DTYPES[result.dtype])
    for number, rectangle in zip(numbers, _rectangles(begins, sizes, buffer.dim(), len(numbers))):
        transfers.opened[number] = buffer[rectangle]
    return [buffer]
    yield


def _send(node: Node, values: dict[str, Tensor], transfers: _Transfers) -> Iterator[str]:
    source, to, number, begin, size, _ = node.args
    while number not in transfers.opened:
        yield f"{node.name} waits for worker {to} to open transfer {number}"
    tensor = values[source.name]
    (rectangle,) = _rectangles(begin, size, tensor.dim(), 1)
    transfers.opened[number].copy_(tensor[rectangle])
    transfers.bytes += tensor[rectangle].nbytes
    transfers.sent.add(number)
    return []


def _sent(node: Node, values: dict[str, Tensor], transfers: _Transfers) -> Iterator[str]:
    _, _, number = node.args
    while number not in transfers.sent:
        yield f"{node.name} waits for transfer {number}"
    return []


def _receive(node: Node, values: dict[str, Tensor], transfers: _Transfers) -> Iterator[str]:
    buffer_reference, numbers, own, own_begins, begins, sizes = node.args
    for number in numbers:
        while number not in transfers.sent:
            yield f"{node.name} waits for transfer {number}"
    buffer = values[buffer_reference.name]
    sources = list(_rectangles(own_begins, sizes, buffer.dim(), len(own)))
    targets = list(_rectangles(begins, sizes, buffer.dim(), len(own)))
    for reference, source, target in zip(own, sources, targets):
        buffer[target].copy_(values[reference.name][source])
    return [buffer]


def _reduce(node: Node, values: dict[str, Tensor], transfers: _Transfers) -> Iterator[str]:
    parts, kind, _ = node.args
    combine = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum, "prod": torch.mul}[kind]
    total = values[parts[0].name]
    for part in parts[1:]:
        total = combine(total, values[part.name])
    return [total]
    yield


def _arrange(node: Node, values: dict[str, Tensor], transfers: _Transfers) -> Iterator[str]:
    source, _ = node.args
    return [values[source.name]]  # an order in memory changes no number here
    yield


_MOVEMENTS = {
    "tesser::arrange": _arrange,
    "tesser::open": _open,
    "tesser::send": _send,
    "tesser::sent": _sent,
    "tesser::receive": _receive,
    "tesser::reduce": _reduce,
}
