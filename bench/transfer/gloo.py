"""Gloo's part of ./x bench transfer: torch.distributed between two processes.

    python -m bench.transfer.gloo [--exchange] MILLISECONDS BYTES...

The rounds are those of src/transport/measured_rounds.h, written again in Python: warm-up, marks, what counts, and what
is printed. Tensors are sent from and received into the same memory in every round.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import numpy

WORD = 8
MARK_EVERY = 64 * 1024
WARM_UP = 0.2  # part of the time
FEWEST_ROUNDS, MOST_ROUNDS = 3, 20_000
FIRST, END = 0, 2**64 - 1
PATIENCE = datetime.timedelta(seconds=60)


class MarkedTensor:
    """A tensor of bytes with NumPy's views of the words that carry a round's number."""

    def __init__(self, size: int) -> None:
        import torch

        self.tensor = torch.zeros(size, dtype=torch.uint8)
        array = self.tensor.numpy()
        self.words = array[: size // WORD * WORD].view(numpy.uint64)
        self.last = array[size - WORD :].view(numpy.uint64)
        self.before_last = self.words[: (size - WORD) // WORD]  # words that do not overlap it
        self.marks = self.before_last[:: MARK_EVERY // WORD]

    def fill(self) -> None:
        self.words[:] = pattern(len(self.words))

    def mark(self, number: int) -> None:
        self.marks[:] = number
        self.last[0] = number

    def number(self) -> int:
        """The round it carries, verified."""
        number = int(self.last[0])
        if (self.marks != number).any() or (number == FIRST and not self.is_filled()):
            raise SystemExit("gloo: a tensor arrived with other contents than it was sent with")
        return number

    def is_filled(self) -> bool:
        same = self.before_last == pattern(len(self.before_last))
        same[:: MARK_EVERY // WORD] = True
        return bool(same.all())


def pattern(words: int) -> numpy.ndarray:
    return (numpy.arange(words, dtype=numpy.uint64) + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)


class Carrier:
    """One process's end of a set of tensors, each with a tag of its own."""

    def __init__(self, peer: int, sizes: list[int], first_tag: int) -> None:
        self.peer = peer
        self.outgoing = [MarkedTensor(size) for size in sizes]
        self.incoming = [MarkedTensor(size) for size in sizes]
        self.tags = range(first_tag, first_tag + len(sizes))
        self.sending: list = []
        self.bytes = sum(sizes)

    def send(self, number: int) -> None:
        import torch.distributed as distributed

        self.settle()
        for tensor in self.outgoing:
            if number == FIRST:
                tensor.fill()
            tensor.mark(number)
        self.sending = [
            distributed.isend(item.tensor, self.peer, tag=tag) for item, tag in zip(self.outgoing, self.tags)
        ]

    def settle(self) -> None:
        for work in self.sending:
            work.wait()
        self.sending = []

    def receive(self) -> int:
        import torch.distributed as distributed

        receiving = [distributed.irecv(item.tensor, self.peer, tag=tag) for item, tag in zip(self.incoming, self.tags)]
        for work in receiving:
            work.wait()
        numbers = {item.number() for item in self.incoming}
        if len(numbers) != 1:
            raise SystemExit("gloo: tensors of different rounds arrived together")
        return numbers.pop()


def repeat(seconds: float, one_round: Callable[[int], None]) -> list[float]:
    """Microseconds of the counted rounds."""
    times: list[float] = []
    before = begin = time.perf_counter()
    number = FIRST
    while len(times) < FEWEST_ROUNDS or (len(times) < MOST_ROUNDS and before < begin + seconds):
        counts = number != FIRST and before >= begin + seconds * WARM_UP
        before = time.perf_counter()
        one_round(number)
        after = time.perf_counter()
        if counts:
            times.append((after - before) * 1e6)
        before = after
        number += 1
    return times


def check_answer(expected: int, number: int) -> None:
    if number != expected:
        raise SystemExit(f"gloo: round {expected} was answered by round {number}")


def lead_there_and_back(tensors: Carrier, seconds: float) -> list[float]:
    def one_round(number: int) -> None:
        tensors.send(number)
        check_answer(number, tensors.receive())

    times = [microseconds / 2 for microseconds in repeat(seconds, one_round)]
    one_round(END)
    tensors.settle()
    return times


def follow_there_and_back(tensors: Carrier) -> None:
    number = FIRST
    while number != END:
        number = tensors.receive()
        tensors.send(number)
    tensors.settle()


def lead_exchange(tensors: Carrier, turn: Carrier, seconds: float) -> list[float]:
    def one_round(number: int) -> None:
        turn.send(number)
        tensors.send(number)
        check_answer(number, tensors.receive())
        check_answer(number, turn.receive())

    times = repeat(seconds, one_round)
    turn.send(END)
    turn.settle()
    return times


def follow_exchange(tensors: Carrier, turn: Carrier) -> None:
    while (number := turn.receive()) != END:
        tensors.send(number)
        check_answer(number, tensors.receive())
        turn.send(number)
    turn.settle()


def print_row(times: list[float], tensors: Carrier) -> None:
    median = statistics.median_high(times)
    row = {
        "system": "gloo",
        "bytes": tensors.bytes,
        "tensors": len(tensors.outgoing),
        "us_median": round(median, 4),
        "us_min": round(min(times), 4),
        "gb_s": tensors.bytes / median * 1e-3,
        "rounds": len(times),
    }
    print(json.dumps(row), flush=True)


def measure(rank: int, store: str, seconds: float, sizes: list[int], exchange: bool) -> None:
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2, timeout=PATIENCE)
    peer = 1 - rank
    if exchange:
        tensors, turn = Carrier(peer, sizes, first_tag=1), Carrier(peer, [WORD], first_tag=0)
        if rank == 0:
            print_row(lead_exchange(tensors, turn, seconds), tensors)
        else:
            follow_exchange(tensors, turn)
    else:
        for size in sizes:
            tensors = Carrier(peer, [size], first_tag=0)
            if rank == 0:
                print_row(lead_there_and_back(tensors, seconds), tensors)
            else:
                follow_there_and_back(tensors)
    distributed.barrier()
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.transfer.gloo")
    parser.add_argument("--exchange", action="store_true")
    parser.add_argument("milliseconds", type=int)
    parser.add_argument("sizes", type=int, nargs="+")
    options = parser.parse_args()
    if min(options.sizes) < WORD:
        parser.error(f"the smallest tensor that can be measured has {WORD} bytes")

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    processors = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        rank = 1 if child == 0 else 0
        if len(processors) > 1:
            os.sched_setaffinity(0, {processors[rank]})
        try:
            measure(rank, f"{folder}/store", options.milliseconds / 1e3, options.sizes, options.exchange)
        except BaseException as error:
            if child == 0:
                print(f"gloo, second process: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            raise
        if child == 0:
            os._exit(0)
        _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status) != 0)


if __name__ == "__main__":
    main()
