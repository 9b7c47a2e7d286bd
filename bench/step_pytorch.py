"""One process of ./x bench step: times a model's training step in PyTorch and prints one JSON line.

    python -m bench.step_pytorch MODEL SYSTEM --warm-up N --steps N --threads N
    python -m bench.step_pytorch --gemm --threads N

Systems: eager; compile-loss (torch.compile of forward and loss, and through them of backward); compile-all (the
optimizer's step compiled as well). The second form prints the best rate of a large float32 matrix product.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch

import models
from bench.machine import memory_bytes
from tesser.step import Step

SYSTEMS = ("eager", "compile-loss", "compile-all")


def bench_batch(model_name: str, step: Step) -> dict[str, torch.Tensor]:
    """The one batch that every system trains on."""
    samples = next(iter(step.batch.values())).shape[0]
    return models.data(model_name, "bench", samples=samples)


def training_step(model_name: str, system: str) -> Callable[[], None]:
    """The step as a PyTorch user writes it, with PyTorch's own choice of optimizer implementation (foreach where it
    applies).
    """
    torch.manual_seed(0)
    step = models.load(model_name, "bench")
    batch = bench_batch(model_name, step)
    loss_of, update = step.loss, step.optimizer.step
    if system != "eager":
        loss_of = torch.compile(loss_of)
    if system == "compile-all":
        update = torch.compile(update)

    def run() -> None:
        step.optimizer.zero_grad(set_to_none=True)
        result = loss_of(step.model, batch)
        loss = result[0] if isinstance(result, tuple) else result
        loss.backward()
        update()

    return run


def measure(model_name: str, system: str, warm_up: int, steps: int) -> dict:
    before = memory_bytes("VmRSS")
    run = training_step(model_name, system)
    for _ in range(warm_up):
        run()
    milliseconds = []
    for _ in range(steps):
        start = time.perf_counter()
        run()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return {"step_ms": milliseconds, "peak_bytes": memory_bytes("VmHWM") - before}


def gemm_rate(size: int = 2048, repeats: int = 12) -> float:
    """Floating-point operations per second of the best of several square products."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    result = torch.empty(size, size)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(left, right, out=result)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("system", nargs="?", choices=SYSTEMS)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--gemm", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.gemm:
        print(json.dumps({"flops_per_second": gemm_rate()}))
    else:
        print(json.dumps(measure(options.model, options.system, options.warm_up, options.steps)))


if __name__ == "__main__":
    main()
