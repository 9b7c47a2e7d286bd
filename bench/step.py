"""./x bench step: the time and memory of one training step in tesser, PyTorch eager and torch.compile.

Every system runs in a process of its own with the same number of threads and one fixed batch in memory. The processes
take turns in rounds, so that a busy machine slows all of them alike. Per round and system some steps warm up and are
not counted; the median and the minimum are over the counted steps of all rounds. torch.compile is measured twice, with
and without the optimizer's step compiled, and the faster counts.

Memory is the most the process ever had resident, less what it had resident when its libraries were loaded and no model
existed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench import machine, step_report

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("mlp", "resnet18", "gpt", "lstm")
# How each variant is run, and the system it counts as in the report.
VARIANTS = {
    "tesser": "tesser",
    "eager": "torch-eager",
    "compile-loss": "torch-compile",
    "compile-all": "torch-compile",
}


@dataclass
class Measurement:
    """The counted steps of one variant on one model, of all rounds."""

    model: str
    variant: str
    threads: int
    step_ms: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.step_ms)

    def add(self, result: dict) -> None:
        self.step_ms += result["step_ms"]
        self.peak_bytes = max(self.peak_bytes, result["peak_bytes"])

    def entry(self) -> dict:
        return {
            "model": self.model,
            "system": VARIANTS[self.variant],
            "workers": 1,
            "threads": self.threads,
            "step_ms_median": round(self.median, 4),
            "step_ms_min": round(min(self.step_ms), 4),
            "peak_bytes": self.peak_bytes,
        }


@dataclass(frozen=True)
class Bench:
    tesser: Path
    output: Path
    threads: int
    steps: int
    warm_up: int

    def environment(self) -> dict[str, str]:
        path = f"{ROOT / 'python'}:{ROOT}"
        inductor = str(self.output / "inductor")
        return {
            **os.environ,
            "OMP_NUM_THREADS": str(self.threads),
            "PYTHONPATH": path,
            "TORCHINDUCTOR_CACHE_DIR": inductor,
        }

    def python(self, module: str, *arguments: str) -> list[dict]:
        return self.lines_of([sys.executable, "-m", module, *arguments])

    def lines_of(self, command: list[str]) -> list[dict]:
        """JSON lines a process of its own prints; its messages go where ours go."""
        result = subprocess.run(command, cwd=ROOT, env=self.environment(), stdout=subprocess.PIPE, text=True)
        if result.returncode != 0:
            raise SystemExit(f"bench: exit code {result.returncode} from {' '.join(command)}\n{result.stdout[-2000:]}")
        return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]

    def pytorch(self, *arguments: str) -> dict:
        return self.python("bench.step_pytorch", *arguments, "--threads", str(self.threads))[-1]

    def measure(self, model: str, variant: str) -> dict:
        """One round of one variant: milliseconds of each counted step, and peak bytes."""
        counts = ["--warm-up", str(self.warm_up), "--steps", str(self.steps)]
        return self.measure_tesser(model) if variant == "tesser" else self.pytorch(model, variant, *counts)

    def measure_tesser(self, model: str) -> dict:
        folder = self.output / "inputs" / model
        steps = str(self.warm_up + self.steps)
        command = [str(self.tesser), "train", str(folder / f"{model}.tesser"), "--data", str(folder / "data")]
        events = self.lines_of([*command, "--steps", steps, "--threads", str(self.threads), "--json"])
        seconds = [event["seconds"] for event in events if event["event"] == "step"]
        end = next(event for event in events if event["event"] == "end")
        peak = end["resident_peak_bytes"] - machine.loaded_bytes(self.tesser, self.environment())
        return {"step_ms": [second * 1e3 for second in seconds[self.warm_up :]], "peak_bytes": peak}


def measure_all(bench: Bench, models: list[str], variants: list[str], rounds: int) -> tuple[list[Measurement], float]:
    """All rounds; also the machine's best rate of a matrix product, measured in every round."""
    measurements = [Measurement(model, variant, bench.threads) for model in models for variant in variants]
    rate = 0.0
    for round_number in range(1, rounds + 1):
        rate = max(rate, bench.pytorch("--gemm")["flops_per_second"])
        for measurement in measurements:
            measurement.add(bench.measure(measurement.model, measurement.variant))
            print(
                f"round {round_number}/{rounds}  {measurement.model:9} {measurement.variant:13} "
                f"median {measurement.median:9.2f} ms  minimum {min(measurement.step_ms):9.2f} ms",
                file=sys.stderr,
                flush=True,
            )
    return measurements, rate


def fastest_of_each_system(measurements: list[Measurement]) -> list[Measurement]:
    best: dict[tuple[str, str], Measurement] = {}
    for measurement in measurements:
        key = (measurement.model, VARIANTS[measurement.variant])
        if key not in best or measurement.median < best[key].median:
            best[key] = measurement
    return list(best.values())


def flops_of_step(tesser: Path, program: Path) -> int:
    """Floating-point operations of forward and backward, almost all of which are those of products and convolutions."""
    shown = subprocess.run([str(tesser), "show", str(program), "--json"], stdout=subprocess.PIPE, text=True, check=True)
    operations = json.loads(shown.stdout)["floating_point_operations"]
    return operations["forward"] + operations["backward"]


def names(text: str, known: tuple[str, ...] | list[str]) -> list[str]:
    chosen = text.split(",")
    for name in chosen:
        if name not in known:
            raise argparse.ArgumentTypeError(f"there is no {name}; known: {', '.join(known)}")
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./x bench step", description="Measures one training step in tesser and in PyTorch."
    )
    parser.add_argument(
        "--models",
        type=lambda text: names(text, MODELS),
        default=list(MODELS),
        help="comma-separated: mlp,resnet18,gpt,lstm",
    )
    parser.add_argument(
        "--systems",
        type=lambda text: names(text, list(VARIANTS)),
        default=list(VARIANTS),
        help="comma-separated: tesser,eager,compile-loss,compile-all",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4, help="how often each system has its turn (4)")
    parser.add_argument("--steps", type=int, default=10, help="counted steps a turn (10)")
    parser.add_argument("--warm-up", type=int, default=4, help="steps before them that are not counted (4)")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--tesser", type=Path, default=ROOT / "build" / "release" / "bin" / "tesser")
    options = parser.parse_args()

    bench = Bench(options.tesser.resolve(), options.output.resolve(), options.threads, options.steps, options.warm_up)
    flops: dict[str, int] = {}
    for model in options.models:
        folder = bench.output / "inputs" / model
        shutil.rmtree(folder, ignore_errors=True)
        bench.python("bench.step_inputs", model, str(folder))
        flops[model] = flops_of_step(bench.tesser, folder / f"{model}.tesser")
    measurements, rate = measure_all(bench, options.models, options.systems, options.rounds)

    best = fastest_of_each_system(measurements)
    (bench.output / "step.json").write_text(json.dumps([measurement.entry() for measurement in best], indent=1) + "\n")
    (bench.output / "step.svg").write_text(step_report.picture(best))
    print(f"{datetime.date.today()}  {machine.description()}  {options.threads} threads")
    print(step_report.table(best, flops, rate))
    print(f"written: {bench.output / 'step.json'}, {bench.output / 'step.svg'}")


if __name__ == "__main__":
    main()
