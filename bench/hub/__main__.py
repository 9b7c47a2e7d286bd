"""./x bench hub: gradients of several workers on this machine become new weights, with infinitely fast compute.

Every measurement has processes of its own. Systems take turns: in every round each system has its turn with each
model, optimizer and number of workers, one directly after the other. docs/benchmarks.md says what is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bench import machine
from bench.hub import report, tensors

ROOT = Path(__file__).resolve().parents[2]
OPTIMIZERS = ("sgd", "adam")
CHUNK_BYTES = 256 * 1024  # a job's by default
CHUNK_SWEEP = tuple(4096 * 2**power for power in range(10))  # 4 KiB to 2 MiB
PAGES = ("4KiB", "2MiB")
HUGE_PAGE = 2 << 20
POOL = Path("/proc/sys/vm/nr_hugepages")
LIMIT_MILLISECONDS = 40  # of each kernel, and at least one pass
TENANT_MILLISECONDS = 1500  # of a case with tenants, at least


@dataclass(frozen=True)
class Case:
    model: str
    system: str
    workers: int
    optimizer: str
    chunk_bytes: int = CHUNK_BYTES
    pages: str = PAGES[1]  # of tesser's systems; the larger ones where the system has them


@dataclass
class Gloo:
    """The process that measures Gloo, started when it is first needed."""

    process: subprocess.Popen | None = None

    def seconds(self, case: Case, elements: list[int], milliseconds: int) -> list[float]:
        if self.process is None:
            command = [sys.executable, "-m", "bench.hub.gloo"]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, cwd=ROOT, env=surroundings(), stdin=pipe, stdout=pipe, text=True)
        job = {"workers": case.workers, "optimizer": case.optimizer, "milliseconds": milliseconds, "elements": elements}
        channel_in, channel_out = file_of(self.process.stdin), file_of(self.process.stdout)
        print(json.dumps(job), file=channel_in, flush=True)
        line = channel_out.readline()
        if not line:
            raise SystemExit(f"bench: Gloo's processes failed with {case.model}; their message is above")
        return json.loads(line)["seconds"]

    def close(self) -> None:
        if self.process is not None:
            file_of(self.process.stdin).close()
            self.process.wait()


@dataclass
class Bench:
    program: Path
    milliseconds: int
    pages: str = PAGES[1]
    gloo: Gloo = field(default_factory=Gloo)
    limits: list[dict[str, float]] = field(default_factory=list)
    elements: dict[str, list[int]] = field(default_factory=dict)
    seconds: dict[Case, list[float]] = field(default_factory=dict)
    near: dict[Case, list[dict[str, float]]] = field(default_factory=dict)  # limits measured before and after

    def measure_limit(self) -> dict[str, float]:
        def measured(pages: str) -> dict[str, float]:
            return json.loads(self.output_of(["limit", str(LIMIT_MILLISECONDS), pages]))

        limits = measured(PAGES[1])
        if self.pages != PAGES[1]:
            limits.update({name: value for name, value in measured(self.pages).items() if report.is_loop(name)})
        self.limits.append(limits)
        return limits

    def limit(self, case: Case) -> float:
        """GB/s: the best of all kernels of STREAM at any time near the case's turns. Where others share the machine,
        what its memory gives changes within seconds."""
        return max(max(report.stream(kernels).values()) for kernels in self.near[case])

    def loop_limit(self, case: Case) -> float | None:
        """GB/s that a hub's loop over as many arrays at once reaches alone, likewise; None where it is not measured."""
        name = f"exchange {case.optimizer} {case.workers}"
        return max((kernels[name] for kernels in self.near[case] if name in kernels), default=None)

    def measure(self, case: Case) -> None:
        elements = self.elements.setdefault(case.model, tensors.elements_of(case.model))
        needed = tensors.memory_bytes(case.system, sum(elements), case.workers, case.optimizer)
        available = machine.available_bytes()
        if needed > available:
            print(
                f"left out: {case.model} with {case.workers} workers, {case.optimizer}, in {case.system} needs about "
                f"{needed / 2**30:.1f} GiB and {available / 2**30:.1f} are free",
                file=sys.stderr,
            )
            return
        if case.system == "gloo":
            seconds = self.gloo.seconds(case, elements, self.milliseconds)
        else:
            words = [case.system, case.workers, case.optimizer, self.milliseconds, case.chunk_bytes, case.pages]
            words += elements
            seconds = json.loads(self.output_of([str(word) for word in words]))["seconds"]
        self.seconds.setdefault(case, []).extend(seconds)

    def output_of(self, arguments: list[str]) -> str:
        result = subprocess.run([str(self.program), *arguments], stdout=subprocess.PIPE, text=True)
        if result.returncode != 0:
            raise SystemExit(f"bench: {self.program.name} {' '.join(arguments[:5])} ended with {result.returncode}")
        return result.stdout

    def rows(self) -> list[dict]:
        return [self.row(case, seconds) for case, seconds in self.seconds.items()]

    def row(self, case: Case, seconds: list[float]) -> dict:
        rate = 1 / statistics.median(seconds)
        moved = tensors.bytes_an_element(case.system, case.workers, case.optimizer) * sum(self.elements[case.model])
        return {
            "model": case.model,
            "system": case.system,
            "workers": case.workers,
            "optimizer": case.optimizer,
            "chunk_bytes": case.chunk_bytes,
            "pages": case.pages,
            "exchanges_s": rounded(rate),
            "exchanges_s_best": rounded(1 / min(seconds)),
            "gb_s": rounded(moved * rate * 1e-9),
            "limit_gb_s": rounded(self.limit(case)),
            "loop_gb_s": self.loop_limit(case),
        }


def surroundings() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}", "OMP_NUM_THREADS": "1"}


def file_of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def rounded(value: float) -> float:
    return float(f"{value:.5g}")


def cases(options: argparse.Namespace) -> Iterator[list[Case]]:
    """Those that are measured directly after one another, in their order."""
    if options.chunks:
        for optimizer in options.optimizers:
            for workers in options.workers:
                for model in options.models:
                    for system in ("tesser-dedicated", "tesser-network"):
                        yield [Case(model, system, workers, optimizer, size, options.pages) for size in CHUNK_SWEEP]
        return
    for workers in options.workers:
        for model in options.models:
            # Adam with two workers is enough unless it is asked for: the whole takes minutes.
            for optimizer in options.optimizers or (OPTIMIZERS if workers == 2 else OPTIMIZERS[:1]):
                yield [
                    Case(model, system, workers, optimizer, CHUNK_BYTES, options.pages) for system in options.systems
                ]


def run(bench: Bench, options: argparse.Namespace, written: Path) -> None:
    """Measures, and writes after each group what is known, so that an ended run is not lost."""
    for number in range(1, options.rounds + 1):
        before = bench.measure_limit()
        for group in cases(options):
            for case in group:
                bench.measure(case)
            after = bench.measure_limit()
            for case in group:
                bench.near.setdefault(case, []).extend((before, after))
            before = after
            write(bench, written)
            done = group[0]
            print(
                f"round {number}/{options.rounds}: {done.model}, {done.workers} workers, {done.optimizer}",
                file=sys.stderr,
                flush=True,
            )
    bench.gloo.close()


def write(bench: Bench, path: Path) -> None:
    path.write_text(json.dumps(bench.rows(), indent=1) + "\n")


@contextlib.contextmanager
def reserved_pages(gibibytes: float) -> Iterator[None]:
    """So much more in the system's pool of pages of 2 MiB, which only root may fill; given back at the end."""
    if gibibytes == 0:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    before = int(POOL.read_text())
    wanted = before + int(gibibytes * 2**30 / HUGE_PAGE)
    try:
        POOL.write_text(str(wanted))
    except OSError as error:
        raise SystemExit(f"bench: --reserve-pages needs root: {error}") from error
    try:
        if (found := int(POOL.read_text())) < wanted:
            print(f"bench: the system has {found} pages of 2 MiB, not {wanted}", file=sys.stderr)
        yield
    finally:
        POOL.write_text(str(before))


def one_of(known: Sequence[str]):
    def chosen(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name}; known: {', '.join(known)}")
        return text.split(",")

    return chosen


def counts(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1 or max(numbers) > 64:
        raise argparse.ArgumentTypeError("numbers of workers are from 1 to 64")
    return numbers


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./x bench hub", description="Measures the exchange of gradients for weights on this machine."
    )
    parser.add_argument("--models", type=one_of(tensors.MODELS), help=f"comma-separated: {','.join(tensors.MODELS)}")
    parser.add_argument("--systems", type=one_of(report.SYSTEMS), default=list(report.SYSTEMS))
    parser.add_argument("--workers", type=counts, help="comma-separated (2,4,8)")
    parser.add_argument(
        "--optimizers",
        type=one_of(OPTIMIZERS),
        help="comma-separated: sgd (with momentum), adam (both with two workers, sgd with more)",
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each system has its turn (1)")
    parser.add_argument("--time", type=int, default=100, help="milliseconds of a turn, after its warm-up (100)")
    parser.add_argument("--quick", action="store_true", help="two models, two workers, SGD, one short round")
    parser.add_argument(
        "--chunks", action="store_true", help="chunks of 4 KiB to 2 MiB instead, in shared memory and TCP"
    )
    parser.add_argument("--pages", choices=PAGES, default=PAGES[1], help="of tesser's systems, where there are (2MiB)")
    parser.add_argument(
        "--reserve-pages", type=float, default=0, metavar="GIB", help="add such pages to the system's pool, as root"
    )
    parser.add_argument("--tenants", action="store_true", help="eight jobs of one hub, one of them hostile, instead")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "release" / "bin" / "hub_bench")
    options = parser.parse_args()
    if options.rounds < 1 or options.time < 1:
        parser.error("--rounds and --time take a number from 1")
    if options.quick:
        options.rounds, options.time = 1, min(options.time, 100)
    small = options.quick or options.chunks
    options.models = options.models or (["VGG16"] if options.chunks else ["ResNet-50", "LSTM"] if small else None)
    options.models = options.models or list(tensors.MODELS)
    options.workers = options.workers or ([2] if options.quick else [4] if options.chunks else [2, 4, 8])
    options.optimizers = options.optimizers or (["sgd"] if small else None)
    return options


def measure_tenants(bench: Bench, options: argparse.Namespace) -> None:
    rounds = [
        json.loads(line)
        for _ in range(options.rounds)
        for line in bench.output_of(["tenants", str(max(TENANT_MILLISECONDS, options.time))]).splitlines()
    ]
    path = options.output / "hub_tenants.json"
    path.write_text(json.dumps(rounds, indent=1) + "\n")
    print(f"{datetime.date.today()}  {machine.description()}")
    print(report.tenant_table(rounds))
    print(f"written: {path}")


def main() -> None:
    options = read_options()
    options.output.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.program.resolve(), options.time, options.pages)
    if options.tenants:
        measure_tenants(bench, options)
        return
    name = "hub_chunks" if options.chunks else "hub"
    with reserved_pages(options.reserve_pages):
        run(bench, options, options.output / f"{name}.json")
    rows = bench.rows()
    picture = report.chunk_picture(rows) if options.chunks else report.picture_of(rows)
    table = report.chunk_table(rows) if options.chunks else report.tables(rows)
    (options.output / f"{name}.svg").write_text(picture)
    print(f"{datetime.date.today()}  {machine.description()}")
    print(report.limit_text(bench.limits))
    print(table)
    print(f"written: {options.output / f'{name}.json'}, {options.output / f'{name}.svg'}")


if __name__ == "__main__":
    main()
