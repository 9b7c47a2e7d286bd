"""Gloo's part of ./x bench hub: all-reduce of buckets as DistributedDataParallel makes them, then PyTorch's optimizer.

    python -m bench.hub.gloo

Reads one measurement a line, {"workers", "optimizer", "milliseconds", "elements"}, and answers each with a line
{"seconds": [...]}, as hub_bench prints it. Each measurement has new processes, forked from this one so that PyTorch is
loaded once. Values, warm-up and batches are those of exchange.cc, written again.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as distributed

FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # bytes; DistributedDataParallel's defaults
BATCH_SECONDS, FEWEST_BATCHES, WARM_UP = 0.04, 3, 0.25
TOLERANCE = 2e-3
LEARNING_RATE, MOMENTUM = 1e-4, 0.9
PATIENCE = datetime.timedelta(seconds=120)


def gradient_values(worker: int, elements: torch.Tensor) -> torch.Tensor:
    mixed = (elements * 2654435761 + worker * 40503) & 0xFFFFFFFF
    return ((mixed >> 12) % 4096).float() / 4096 + 0.125


def buckets_of(elements: list[int]) -> list[list[int]]:
    """Numbers of the tensors in each bucket. The last tensors come first, as backward computes them; a bucket is full
    once it has reached its size."""
    buckets: list[list[int]] = []
    current: list[int] = []
    size, limit = 0, FIRST_BUCKET
    for number in reversed(range(len(elements))):
        current.append(number)
        size += 4 * elements[number]
        if size >= limit:
            buckets.append(current)
            current, size, limit = [], 0, BUCKET
    return [*buckets, current] if current else buckets


def optimizer_of(name: str, parameters: list[torch.Tensor], **options: bool) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM, **options)
    return torch.optim.Adam(parameters, lr=LEARNING_RATE, **options)


class Worker:
    def __init__(self, rank: int, job: dict) -> None:
        elements = job["elements"]
        self.job = job
        self.parameters = [torch.zeros(count, requires_grad=True) for count in elements]
        self.buckets = []
        for numbers in buckets_of(elements):
            sizes = [elements[number] for number in numbers]
            bucket = torch.empty(sum(sizes))
            for number, view in zip(numbers, bucket.split(sizes), strict=True):
                for begin in range(0, len(view), 1 << 20):
                    part = view[begin : begin + (1 << 20)]
                    part.copy_(gradient_values(rank, torch.arange(begin, begin + len(part))))
                self.parameters[number].grad = view
            self.buckets.append(bucket)
        self.optimizer = optimizer_of(job["optimizer"], self.parameters, fused=True)
        # The fused update divides the sums by it and writes the averages back. DistributedDataParallel takes one more
        # pass over the buckets for that. The averages, averaged again, are the gradients of the next exchange.
        self.optimizer.grad_scale = torch.tensor(float(job["workers"]))  # type: ignore[attr-defined]

    def exchange(self) -> None:
        works = [distributed.all_reduce(bucket, async_op=True) for bucket in self.buckets]
        for work in works:
            work.wait()
        self.optimizer.step()

    def verify(self, exchanges: int) -> None:
        places = [torch.tensor([0, len(tensor) // 2, len(tensor) - 1]) for tensor in self.parameters]
        workers = range(self.job["workers"])
        gradient = sum(gradient_values(worker, torch.cat(places)).double() for worker in workers) / len(workers)
        expected = torch.zeros(len(gradient), dtype=torch.float64, requires_grad=True)
        expected.grad = gradient
        optimizer = optimizer_of(self.job["optimizer"], [expected])
        for _ in range(exchanges):
            optimizer.step()
        found = torch.cat([tensor[place] for tensor, place in zip(self.parameters, places, strict=True)])
        torch.testing.assert_close(found.double(), expected, rtol=TOLERANCE, atol=1e-6)


def agreed(number: int) -> int:
    """The leader's number."""
    value = torch.tensor([number])
    distributed.broadcast(value, src=0)
    return int(value[0])


def run(worker: Worker, exchanges: int) -> list[float]:
    """Times at which each exchange was done, after that at which they began."""
    distributed.barrier()
    times = [time.perf_counter()]
    for _ in range(exchanges):
        worker.exchange()
        times.append(time.perf_counter())
    return times


def measure(worker: Worker, seconds: float) -> list[float]:
    count, done, spent, warm_ups = 1, 0, 0.0, 0
    is_warm = False
    while not is_warm:
        times = run(worker, count)
        estimate = (times[-1] - times[0]) / count
        spent += times[-1] - times[0]
        done += count
        warm_ups += 1
        count *= 2
        is_warm = bool(agreed(spent >= WARM_UP * seconds and (warm_ups >= 2 or spent >= seconds)))
    batch = agreed(max(1, round(BATCH_SECONDS / estimate)))
    batches = agreed(max(FEWEST_BATCHES, round(seconds / (batch * estimate))))
    times = run(worker, batch * batches)
    worker.verify(done + batch * batches)
    return [(times[end] - times[end - batch]) / batch for end in range(batch, len(times), batch)]


def run_worker(rank: int, job: dict, store: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=job["workers"], timeout=PATIENCE)
    seconds = measure(Worker(rank, job), job["milliseconds"] / 1e3)
    distributed.barrier()
    if rank == 0:
        print(json.dumps({"seconds": seconds}), flush=True)
    distributed.destroy_process_group()


def fork_worker(rank: int, job: dict, store: str) -> int:
    child = os.fork()
    if child != 0:
        return child
    try:
        run_worker(rank, job, store)
    except BaseException as error:
        print(f"gloo, worker {rank}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def answer(job: dict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        children = [fork_worker(rank, job, f"{folder}/store") for rank in range(job["workers"])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise SystemExit(1)


def main() -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    for line in sys.stdin:
        answer(json.loads(line))


if __name__ == "__main__":
    main()
