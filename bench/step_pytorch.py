"""One process of ./x bench step: times a model's training step in PyTorch and prints one JSON line.

    python -m bench.step_pytorch MODEL SYSTEM --warm-up N --steps N --threads N
    python -m bench.step_pytorch --gemm --threads N

Systems: eager; compile-loss (torch.compile of forward and loss, and through them of backward); compile-all (the
optimizer's step compiled as well). The second form prints the best rate of a large float32 matrix product.
bench/step_distributed.py measures PyTorch with several processes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping

import torch

from bench import step_models
from bench.machine import memory_bytes
from tesser.step import Step

SYSTEMS = ("eager", "compile-loss", "compile-all")


def training_step(
    step: Step, batch: Mapping[str, torch.Tensor], *, compile_loss: bool = False, compile_update: bool = False
) -> Callable[[], None]:
    """The step as a PyTorch user writes it, with PyTorch's own choice of optimizer implementation (foreach where it
    applies).
    """
    loss_of, update = step.loss, step.optimizer.step
    if compile_loss:
        loss_of = torch.compile(loss_of)
    if compile_update:
        update = torch.compile(update)

    def run() -> None:
        step.optimizer.zero_grad(set_to_none=True)
        result = loss_of(step.model, batch)
        loss = result[0] if isinstance(result, tuple) else result
        loss.backward()
        update()

    return run


def timed(run: Callable[[], None], warm_up: int, steps: int) -> list[float]:
    """Milliseconds of each counted step."""
    for _ in range(warm_up):
        run()
    milliseconds = []
    for _ in range(steps):
        start = time.perf_counter()
        run()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return milliseconds


def measure(model_name: str, system: str, warm_up: int, steps: int) -> dict:
    before = memory_bytes("VmRSS")
    torch.manual_seed(0)
    step = step_models.load(model_name)
    run = training_step(
        step,
        step_models.batch(model_name, step),
        compile_loss=system != "eager",
        compile_update=system == "compile-all",
    )
    return {"step_ms": timed(run, warm_up, steps), "peak_bytes": memory_bytes("VmHWM") - before}


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
