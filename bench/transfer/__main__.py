"""./x bench transfer: tensors between two processes of this machine, in tesser, gRPC and Gloo, and memcpy.

Each measurement takes two processes with a processor each. Systems take turns: in every turn each system measures all
sizes, a new pair of processes each time. A system's median is the median of its turns' medians, its minimum the least
of all turns. docs/benchmarks.md says what a round is; src/transport/measured_rounds.h has it exactly.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from bench.transfer import report

ROOT = Path(__file__).resolve().parents[2]
# Each size four times the one before: 64 B to 256 MiB.
SIZES = tuple(64 * 4**power for power in range(12))
# What tesser's own command calls the systems that it measures in one pair of processes.
IN_SHARED_MEMORY = {"tesser-static": "static", "tesser-dynamic": "dynamic", "memcpy": "memcpy"}


@dataclass(frozen=True)
class Bench:
    tesser: Path
    grpc: Path
    milliseconds: int
    turns: int

    def commands(self, systems: Sequence[str], sizes: Sequence[int], exchange: bool) -> list[list[str]]:
        """The command of each pair of processes that a turn starts."""
        together = ["--exchange"] if exchange else []
        numbers = [str(self.milliseconds), *map(str, sizes)]
        tesser = [str(self.tesser), "transport", "bench", "--json", *together]
        tesser += ["--time", str(self.milliseconds), "--sizes", ",".join(map(str, sizes))]
        commands = []
        if mapped := [name for system, name in IN_SHARED_MEMORY.items() if system in systems]:
            commands.append([*tesser, "--systems", ",".join(mapped)])
        if "tesser-tcp" in systems:
            commands.append([*tesser, "--tcp", "--systems", "static"])
        if "grpc" in systems:
            commands.append([str(self.grpc), *together, *numbers])
        if "gloo" in systems:
            commands.append([sys.executable, "-m", "bench.transfer.gloo", *together, *numbers])
        return commands

    def measure(self, systems: Sequence[str], sizes: Sequence[int], exchange: bool, name: str) -> list[dict]:
        """All turns; one entry for each system and size, or for each system when all are exchanged at once."""
        results: dict[tuple[str, int], list[dict]] = {}
        commands = self.commands(systems, sizes, exchange)
        for turn in range(1, self.turns + 1):
            for command in commands:
                for row in rows_of(command):
                    results.setdefault((row["system"], row["bytes"]), []).append(row)
            print(f"{name}: turn {turn}/{self.turns} is done", file=sys.stderr, flush=True)
        return [summary(rows) for rows in results.values()]


def rows_of(command: list[str]) -> list[dict]:
    """JSON lines a command prints; its messages go where ours go."""
    path = f"{ROOT / 'python'}:{ROOT}"
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise SystemExit(f"bench: exit code {result.returncode} from {' '.join(command)}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def summary(turns: list[dict]) -> dict:
    """One system at one size, over all turns."""
    median = statistics.median(turn["us_median"] for turn in turns)
    return {
        **turns[0],
        "us_median": round(median, 4),
        "us_min": min(turn["us_min"] for turn in turns),
        "gb_s": float(f"{turns[0]['bytes'] / median * 1e-3:.6g}"),
        "rounds": sum(turn["rounds"] for turn in turns),
    }


def grouped(entries: list[dict], key: str) -> dict:
    """Entries by row of the table, then by system."""
    rows: dict = {}
    for entry in entries:
        rows.setdefault(entry[key], {})[entry["system"]] = entry
    return rows


def measure_sizes(bench: Bench, systems: list[str], sizes: Sequence[int], output: Path) -> str:
    entries = bench.measure(systems, sizes, exchange=False, name="sizes")
    rows = grouped(entries, "bytes")
    (output / "transfer.json").write_text(json.dumps(entries, indent=1) + "\n")
    (output / "transfer.svg").write_text(report.size_picture(rows))
    return f"{report.size_tables(rows)}\nwritten: {output / 'transfer.json'}, {output / 'transfer.svg'}"


def measure_models(bench: Bench, systems: list[str], output: Path) -> str:
    from bench.transfer import model_tensors  # needs PyTorch

    entries = []
    for model in model_tensors.MODELS:
        sizes = model_tensors.tensor_bytes(model)
        measured = bench.measure([name for name in systems if name != "memcpy"], sizes, exchange=True, name=model)
        entries += [{**entry, "model": model} for entry in measured]
    (output / "transfer_models.json").write_text(json.dumps(entries, indent=1) + "\n")
    return f"{report.model_table(grouped(entries, 'model'))}\nwritten: {output / 'transfer_models.json'}"


def names(text: str) -> list[str]:
    chosen = text.split(",")
    for name in chosen:
        if name not in report.SYSTEMS:
            raise argparse.ArgumentTypeError(f"there is no system {name}; known: {', '.join(report.SYSTEMS)}")
    return chosen


def byte_counts(text: str) -> list[int]:
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 8:
        raise argparse.ArgumentTypeError("the smallest tensor that can be measured has 8 bytes")
    return sorted(set(counts))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./x bench transfer", description="Measures tensors between two processes of this machine."
    )
    parser.add_argument("--models", action="store_true", help="exchange the tensors of the RDMA paper's six models")
    parser.add_argument(
        "--systems", type=names, default=list(report.SYSTEMS), help=f"comma-separated: {','.join(report.SYSTEMS)}"
    )
    parser.add_argument("--sizes", type=byte_counts, default=list(SIZES), help="bytes, comma-separated (64 to 256 MiB)")
    parser.add_argument("--turns", type=int, default=4, help="how often each system has its turn (4)")
    parser.add_argument("--time", type=int, default=100, help="milliseconds a system has for a size in a turn (100)")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--tesser", type=Path, default=ROOT / "build" / "release" / "bin" / "tesser")
    parser.add_argument("--grpc", type=Path, default=ROOT / "build" / "release" / "bin" / "grpc_transfer")
    options = parser.parse_args()
    if options.turns < 1 or options.time < 1:
        parser.error("--turns and --time take a number from 1")

    bench = Bench(options.tesser.resolve(), options.grpc.resolve(), options.time, options.turns)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.models:
        text = measure_models(bench, options.systems, options.output)
    else:
        text = measure_sizes(bench, options.systems, options.sizes, options.output)
    print(f"{datetime.date.today()}  {machine.description()}, one for each process")
    print(text)


if __name__ == "__main__":
    main()
