"""./x bench simulate: traces of jobs replayed by the platform's scheduler.

Three virtual clusters of the Philly trace, with gangs and without, packed and spread; and a made trace of 100,000 jobs
on 10,000 nodes, for how many decisions a second the scheduler takes. A decision is a job started or preempted, or a
round that finds that no waiting job can start.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import machine
from bench.picture import Axis, document, legend, line_chart

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "bench"
TESSER = Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))
# Nodes of eight: so many that the trace keeps about two thirds of the cluster busy on average.
CLUSTERS = {"philly-vc-2869ce": 6, "philly-vc-b436b2": 27, "philly-vc-ee9e8c": 30}
COLOURS = {"gang-pack": "#1b6ca8", "gang-spread": "#6fb1de", "single-pack": "#e07b39", "single-spread": "#f2b98c"}
LARGE_NODES, LARGE_JOBS = 10_000, 100_000
KEPT = ("trace", "policy", "decisions_s", "idle_held_gpu_hours", "wait_p50_s", "wait_p95_s", "wait_p99_s", "jobs")
SECOND, MINUTE, HOUR, DAY = 1, 60, 3600, 86400


def simulated(arguments: Sequence[str | int]) -> list[dict]:
    command = [str(TESSER), "simulate", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def time_text(seconds: float) -> str:
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def table(results: Sequence[dict]) -> str:
    head = (
        f"{'trace':18} {'policy':14} {'jobs':>7} {'idle held':>11} {'wait p50':>9} {'p95':>9} {'p99':>9} {'used':>5} "
        f"{'given back':>10} {'decisions/s':>12}"
    )
    lines = [head]
    for each in results:
        lines.append(
            f"{each['trace']:18} {each['policy']:14} {each['finished']:7} {each['idle_held_gpu_hours']:9.0f} h "
            f"{time_text(each['wait_p50_s']):>9} {time_text(each['wait_p95_s']):>9} {time_text(each['wait_p99_s']):>9} "
            f"{each['utilization']:5.0%} {each['given_up']:10} {each['decisions_s']:12,.0f}"
        )
    return "\n".join(lines)


def plot(results: Sequence[dict]) -> None:
    """Waits by the part of the jobs that wait less, one chart a trace."""
    traces = list(dict.fromkeys(each["trace"] for each in results))
    axis = Axis([10.0**power for power in range(7)], lambda value: time_text(value))
    percent = Axis([1, 10, 50, 100], lambda value: f"{value:g}%")
    parts: list[str] = []
    for place, trace in enumerate(traces):
        lines = {
            each["policy"]: [
                (float(number), min(max(wait, 1.0), 1e6)) for number, wait in enumerate(each["wait_percentiles_s"], 1)
            ]
            for each in results
            if each["trace"] == trace
        }
        parts += line_chart(place * 560, 0, f"{trace}: jobs that wait less", lines, COLOURS, percent, axis)
    width, height = 560 * len(traces), 440
    path = OUTPUT / "simulate.svg"
    path.write_text(document(width, height, [*parts, *legend(COLOURS, 20, height)]), encoding="utf-8")
    print(f"plot: {path.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./x bench simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip-large", action="store_true", help="only the Philly traces")
    options = parser.parse_args()
    results = []
    for trace, nodes in CLUSTERS.items():
        path = ROOT / "bench" / "traces" / f"{trace}.csv"
        results += simulated([path, "--nodes", f"{nodes}x8", "--seed", options.seed])
    philly = list(results)
    if not options.skip_large:
        # Twenty times what the cluster can run at once arrives in a day, so that the queue is long.
        for policy in ("gang-pack", "gang-spread"):
            results += simulated(
                ["--synthetic", LARGE_JOBS, "--nodes", f"{LARGE_NODES}x8", "--load", 20, "--policy", policy]
            )
    print(table(results))
    plot(philly)
    path = OUTPUT / "simulate.json"
    path.write_text(json.dumps([{key: each[key] for key in KEPT} for each in results], indent=1) + "\n")
    print(f"figures: {path.relative_to(ROOT)}, on {machine.description()}")


if __name__ == "__main__":
    main()
