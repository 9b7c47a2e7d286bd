"""./x bench step: the time and memory of one training step in tesser, PyTorch eager and torch.compile, and of several
workers in tesser, tesser's replicas, PyTorch with tesser.hub, DistributedDataParallel and FSDP2.

Every system runs in processes of its own with one fixed batch in memory: one process with all threads, or as many
workers as there are threads, with one each and an equal share of the same batch. The processes take turns in rounds, so
that a busy machine slows all of them alike. Per round and system some steps warm up and are not counted; the median and
the minimum are over the counted steps of all rounds. torch.compile is measured twice, with and without the optimizer's
step compiled, and the faster counts.

Memory is the most a process ever had resident, less what it had resident when its libraries were loaded and no model
existed; of several workers it is that of the one with the most.

./x bench step --memory compares each worker's memory with that of one worker instead (step_memory.py).
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

from bench import machine, step_memory, step_report

ROOT = Path(__file__).resolve().parent.parent
TIMED_MODELS = ("mlp", "resnet18", "gpt", "lstm")
MODELS = (*TIMED_MODELS, "rnn")


@dataclass(frozen=True)
class Variant:
    """How a system is run, and what it counts as in the report."""

    system: str
    distributed: bool = False


VARIANTS = {
    "tesser": Variant("tesser"),
    "tesser-workers": Variant("tesser", distributed=True),
    "eager": Variant("torch-eager"),
    "compile-loss": Variant("torch-compile"),
    "compile-all": Variant("torch-compile"),
    "tesser-replicas": Variant("tesser-replicas", distributed=True),
    "torch-hub": Variant("torch-hub", distributed=True),
    "ddp": Variant("torch-ddp", distributed=True),
    "fsdp2": Variant("torch-fsdp2", distributed=True),
}


@dataclass
class Measurement:
    """The counted steps of one variant on one model, of all rounds."""

    model: str
    variant: str
    workers: int
    threads: int  # of each worker
    step_ms: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def system(self) -> str:
        return VARIANTS[self.variant].system

    @property
    def median(self) -> float:
        return statistics.median(self.step_ms)

    def add(self, result: dict) -> None:
        self.step_ms += result["step_ms"]
        self.peak_bytes = max(self.peak_bytes, result["peak_bytes"])

    def entry(self) -> dict:
        return {
            "model": self.model,
            "system": self.system,
            "workers": self.workers,
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

    def environment(self, threads: int) -> dict[str, str]:
        path = f"{ROOT / 'python'}:{ROOT}"
        return {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": path,
            "TORCHINDUCTOR_CACHE_DIR": str(self.output / "inductor"),
            "TESSER_HUB_LIBRARY": str(self.tesser.parents[1] / "lib" / "libtesser_hub.so"),
        }

    def lines_of(self, command: list[str], threads: int) -> list[dict]:
        """JSON lines a process of its own prints; its messages go where ours go."""
        result = subprocess.run(command, cwd=ROOT, env=self.environment(threads), stdout=subprocess.PIPE, text=True)
        if result.returncode != 0:
            raise SystemExit(f"bench: exit code {result.returncode} from {' '.join(command)}\n{result.stdout[-2000:]}")
        return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]

    def python(self, module: str, *arguments: str, threads: int) -> list[dict]:
        command = [sys.executable, "-m", module, *arguments]
        return self.lines_of([*command, "--threads", str(threads)], threads)

    def write_inputs(self, model: str) -> Path:
        """The model's program, beside the folder of its data."""
        folder = self.output / "inputs" / model
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "bench.step_models", model, str(folder), str(self.threads)]
        self.lines_of(command, self.threads)
        return folder / f"{model}.tesser"

    def gemm_rate(self) -> float:
        return self.python("bench.step_pytorch", "--gemm", threads=self.threads)[-1]["flops_per_second"]

    def measurement(self, model: str, variant: str) -> Measurement:
        if VARIANTS[variant].distributed:
            return Measurement(model, variant, workers=self.threads, threads=1)
        return Measurement(model, variant, workers=1, threads=self.threads)

    def measure(self, measurement: Measurement) -> dict:
        """One round: milliseconds of each counted step, and peak bytes."""
        if measurement.system in ("tesser", "tesser-replicas"):
            return self.measure_tesser(measurement)
        counts = ["--warm-up", str(self.warm_up), "--steps", str(self.steps)]
        arguments = [measurement.model, measurement.variant, *counts]
        if measurement.workers == 1:
            return self.python("bench.step_pytorch", *arguments, threads=measurement.threads)[-1]
        arguments += ["--workers", str(measurement.workers)]
        return self.python("bench.step_distributed", *arguments, threads=measurement.threads)[-1]

    def measure_tesser(self, measurement: Measurement) -> dict:
        steps = self.warm_up + self.steps
        model, workers, threads = measurement.model, measurement.workers, measurement.threads
        if measurement.system == "tesser-replicas":
            events = self.train(model, steps, 1, threads, replicas=workers)
        else:
            events = self.train(model, steps, workers, threads)
        seconds = [event["seconds"] for event in events if event["event"] == "step"]
        peak = events[-1]["resident_peak_bytes"]
        loaded = machine.loaded_bytes(self.tesser, self.environment(measurement.threads))
        return {"step_ms": [second * 1e3 for second in seconds[self.warm_up :]], "peak_bytes": peak - loaded}

    def train(self, model: str, steps: int, workers: int, threads: int, *options: str, replicas: int = 1) -> list[dict]:
        """Events of a run of tesser (docs/formats/events.md). Several replicas take a share of the batch each."""
        folder = self.output / "inputs" / model
        program = (folder if replicas == 1 else folder / "replica") / f"{model}.tesser"
        command = [str(self.tesser), "train", str(program), "--data", str(folder / "data"), "--json"]
        command += ["--steps", str(steps), "--threads", str(threads)]
        command += ["--replicas", str(replicas), "--workers", str(workers), *options]
        return self.lines_of(command, threads)


def measure_all(bench: Bench, models: list[str], variants: list[str], rounds: int) -> tuple[list[Measurement], float]:
    """All rounds; also the machine's best rate of a matrix product, measured in every round."""
    measurements = [bench.measurement(model, variant) for model in models for variant in variants]
    rate = 0.0
    for round_number in range(1, rounds + 1):
        rate = max(rate, bench.gemm_rate())
        for measurement in measurements:
            measurement.add(bench.measure(measurement))
            print(
                f"round {round_number}/{rounds}  {measurement.model:9} {measurement.variant:15} "
                f"median {measurement.median:9.2f} ms  minimum {min(measurement.step_ms):9.2f} ms",
                file=sys.stderr,
                flush=True,
            )
    return measurements, rate


def fastest_of_each_system(measurements: list[Measurement]) -> list[Measurement]:
    best: dict[tuple[str, str, int], Measurement] = {}
    for measurement in measurements:
        key = (measurement.model, measurement.system, measurement.workers)
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


def compare_times(bench: Bench, options: argparse.Namespace) -> None:
    models = options.models or list(TIMED_MODELS)
    flops = {model: flops_of_step(bench.tesser, bench.write_inputs(model)) for model in models}
    measurements, rate = measure_all(bench, models, options.systems, options.rounds)
    best = fastest_of_each_system(measurements)
    (bench.output / "step.json").write_text(json.dumps([measurement.entry() for measurement in best], indent=1) + "\n")
    (bench.output / "step.svg").write_text(step_report.picture(best))
    print(f"{datetime.date.today()}  {machine.description()}  {options.threads} threads")
    print(step_report.table(best, flops, rate))
    print(f"written: {bench.output / 'step.json'}, {bench.output / 'step.svg'}")


def compare_memory(bench: Bench, options: argparse.Namespace) -> None:
    comparisons: list[step_memory.Comparison] = []
    for model in options.models or list(step_memory.MODELS):
        bench.write_inputs(model)
        comparisons += step_memory.compare(bench.train, model, workers=bench.threads)
    entries = [entry for comparison in comparisons for entry in comparison.entries()]
    (bench.output / "step_memory.json").write_text(json.dumps(entries, indent=1) + "\n")
    print(f"{datetime.date.today()}  {machine.description()}")
    print(step_memory.table(comparisons))
    print(f"written: {bench.output / 'step_memory.json'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./x bench step", description="Measures one training step in tesser and in PyTorch."
    )
    parser.add_argument(
        "--models",
        type=lambda text: names(text, MODELS),
        help=f"comma-separated, of {','.join(MODELS)} (all but rnn; with --memory {','.join(step_memory.MODELS)})",
    )
    parser.add_argument(
        "--systems",
        type=lambda text: names(text, list(VARIANTS)),
        default=list(VARIANTS),
        help=f"comma-separated: {','.join(VARIANTS)}",
    )
    parser.add_argument(
        "--memory", action="store_true", help="compare each worker's memory with that of one worker, and no times"
    )
    parser.add_argument("--threads", type=int, default=2, help="of one process, and how many workers otherwise (2)")
    parser.add_argument("--rounds", type=int, default=4, help="how often each system has its turn (4)")
    parser.add_argument("--steps", type=int, default=10, help="counted steps a turn (10)")
    parser.add_argument("--warm-up", type=int, default=4, help="steps before them that are not counted (4)")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--tesser", type=Path, default=ROOT / "build" / "release" / "bin" / "tesser")
    options = parser.parse_args()
    bench = Bench(options.tesser.resolve(), options.output.resolve(), options.threads, options.steps, options.warm_up)
    (compare_memory if options.memory else compare_times)(bench, options)


if __name__ == "__main__":
    main()
