"""./x bench plan: how long planning takes, and what the plans of all presets move and need.

Capture is not measured. A measurement is one `tesser plan` command, which loads, expands, analyses, searches, predicts
and writes, on one thread; the least of several runs counts, since the machine is shared.

`--families` makes the table of the Tofu paper's evaluation instead: WResNet and RNN families on eight workers.
`--layers` shows how the time grows with the number of layers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import models
import tesser
from bench import machine
from bench.picture import Axis, document, legend, line_chart, powers_of_ten

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "bench"
TESSER = ROOT / "build" / "release" / "bin" / "tesser"
PRESETS = ("tofu", "default", "dp", "allrow-greedy", "spartan", "equalchop", "no-reduction", "megatron")
COLOURS = {"tofu": "#1b6ca8", "default": "#e07b39"}
GIGABYTE, GIBIBYTE = 1e9, 2**30


@dataclass(frozen=True)
class Model:
    """A training step that is planned and never run."""

    title: str
    name: str
    size: str
    options: tuple[tuple[str, object], ...] = ()

    def captured(self) -> Path:
        """Its program, captured when it is not there yet; the options are part of the folder's name."""
        suffix = "".join(f"-{key}{value}" for key, value in self.options)
        folder = OUTPUT / "plan" / f"{self.name}-{self.size}{suffix}.tesser"
        if not folder.exists():
            print(f"capturing {self.title}", file=sys.stderr)
            folder.parent.mkdir(parents=True, exist_ok=True)
            step = models.load(self.name, self.size, **dict(self.options))
            tesser.capture(step, folder, state=False)
        return folder


MODELS = (
    Model("WResNet-152-10", "wresnet152", "w10", (("batch", 32), ("image", 224))),
    Model("RNN-10-8K", "rnn", "10x8k", (("batch", 256), ("sequence", 20))),
    Model("GPT-3 175B", "gpt", "175b", (("batch", 8), ("sequence", 2048))),
    Model("Llama-3-8B", "llama", "3-8b", (("batch", 8), ("sequence", 4096))),
    Model("BERT-large", "bert", "large", (("batch", 32), ("sequence", 512))),
    Model("ResNet-50", "resnet50", "imagenet", (("batch", 256), ("image", 224))),
)


def family_models() -> list[Model]:
    """The paper's: WResNet with batch 32, RNN with batch 256."""
    wide = [
        Model(f"WResNet-{depth}-{width}", f"wresnet{depth}", f"w{width}", (("batch", 32), ("image", 224)))
        for depth in (50, 101, 152)
        for width in (4, 6, 8, 10)
    ]
    recurrent = [
        Model(f"RNN-{layers}-{units}K", "rnn", f"{layers}x{units}k", (("batch", 256), ("sequence", 20)))
        for layers in (6, 8, 10)
        for units in (4, 6, 8)
    ]
    return wide + recurrent


def layered_models() -> list[Model]:
    """GPT-3's layers, more and more of them."""
    return [
        Model(f"{layers} layers", "gpt", "175b", (("batch", 8), ("layers", layers), ("sequence", 2048)))
        for layers in (3, 6, 12, 24, 48, 96)
    ]


@dataclass(frozen=True)
class Planned:
    model: str
    workers: int
    preset: str
    seconds: float  # the least of the runs
    processor_seconds: float
    report: dict
    peak_rss_bytes: int

    def entry(self) -> dict:
        return {
            "model": self.model,
            "workers": self.workers,
            "preset": self.preset,
            "seconds": round(self.seconds, 4),
            "processor_seconds": round(self.processor_seconds, 4),
            "search_seconds": round(self.report["seconds"], 4),
            "bytes_per_step": self.report["bytes_per_step"],
            "state_bytes_per_worker": self.report["state_bytes_per_worker"],
            "peak_bytes_per_worker": self.report["peak_bytes_per_worker"],
            "nodes": self.report["nodes"],
            "peak_rss_bytes": self.peak_rss_bytes,
        }


def plan(model: Model, workers: int, preset: str, runs: int) -> Planned | str:
    """Measures one plan; the message where there is none."""
    program = model.captured()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "bench.plan"
        command = [TESSER, "plan", program, "--workers", str(workers), "--preset", preset, "-o", output, "--json"]
        best: Planned | None = None
        for _ in range(runs):
            begin = time.perf_counter()
            process = subprocess.Popen(
                [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            assert process.stdout is not None and process.stderr is not None
            text, message = process.stdout.read(), process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - begin
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                return message.strip()
            used = usage.ru_utime + usage.ru_stime
            if best is None or seconds < best.seconds:
                best = Planned(model.title, workers, preset, seconds, used, json.loads(text), usage.ru_maxrss * 1024)
        assert best is not None
        return best


def measure(chosen: Sequence[Model], workers: Sequence[int], presets: Sequence[str], runs: int) -> list[Planned]:
    planned = []
    for model in chosen:
        for count in workers:
            for preset in presets:
                found = plan(model, count, preset, runs)
                if isinstance(found, str):
                    print(f"{model.title}, {count} workers, {preset}: no plan: {found}", file=sys.stderr)
                else:
                    planned.append(found)
    return planned


def table(planned: Sequence[Planned]) -> str:
    """Every measurement in a row."""
    lines = [
        "| model | workers | preset | seconds | processor s | GB moved | GiB at rest | GiB peak | nodes | RSS MiB |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for entry in (each.entry() for each in planned):
        cells = [
            entry["model"],
            str(entry["workers"]),
            entry["preset"],
            f"{entry['seconds']:.2f}",
            f"{entry['processor_seconds']:.2f}",
            f"{entry['bytes_per_step'] / GIGABYTE:.2f}",
            f"{entry['state_bytes_per_worker'] / GIBIBYTE:.2f}",
            f"{entry['peak_bytes_per_worker'] / GIBIBYTE:.2f}",
            str(entry["nodes"]),
            f"{entry['peak_rss_bytes'] / 2**20:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def volume_table(planned: Sequence[Planned], presets: Sequence[str]) -> str:
    """Bytes moved by model and preset, as the paper's evaluation compares them; peak memory of tofu beside them."""
    by_model: dict[str, dict[str, Planned]] = {}
    for each in planned:
        by_model.setdefault(each.model, {})[each.preset] = each
    lines = [
        "| model | " + " | ".join(f"{preset} GB" for preset in presets) + " | tofu at rest GiB | dp at rest GiB |",
        "|---|" + "---:|" * (len(presets) + 2),
    ]
    for model, found in by_model.items():
        cells = [
            f"{found[preset].report['bytes_per_step'] / GIGABYTE:.1f}" if preset in found else "" for preset in presets
        ]
        for preset in ("tofu", "dp"):
            cells.append(f"{found[preset].report['state_bytes_per_worker'] / GIBIBYTE:.2f}" if preset in found else "")
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def growth_picture(planned: Sequence[Planned]) -> str:
    lines = {
        preset: [(each.report["nodes"], each.processor_seconds) for each in planned if each.preset == preset]
        for preset in COLOURS
    }
    nodes = [x for points in lines.values() for x, _ in points]
    seconds = [y for points in lines.values() for _, y in points]
    across = Axis(powers_of_ten(nodes), lambda value: f"{value:g} nodes")
    upward = Axis(powers_of_ten(seconds), lambda value: f"{value:g} s")
    parts = line_chart(0, 0, "Planning GPT-3's layers for 8 workers: processor time", lines, COLOURS, across, upward)
    return document(640, 480, [*parts, *legend(COLOURS, 70, 480)])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x bench plan", description="How long planning takes and what plans move.")
    parser.add_argument("--models", nargs="*", help="titles of models to plan: " + ", ".join(m.title for m in MODELS))
    parser.add_argument("--workers", nargs="*", type=int, default=[2, 8, 64])
    parser.add_argument("--presets", nargs="*", default=list(PRESETS), choices=PRESETS)
    parser.add_argument("--runs", type=int, default=2, help="the least time of so many runs counts")
    parser.add_argument("--families", action="store_true", help="the paper's WResNet and RNN families on 8 workers")
    parser.add_argument("--layers", action="store_true", help="time over the number of layers")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    print(f"{machine.description()}; tesser plan, one thread\n")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    if options.families:
        planned = measure(family_models(), [8], options.presets, 1)
        print(volume_table(planned, options.presets))
        target = OUTPUT / "plan_families.json"
    elif options.layers:
        planned = measure(layered_models(), [8], list(COLOURS), options.runs)
        print(table(planned))
        (OUTPUT / "plan_layers.svg").write_text(growth_picture(planned))
        target = OUTPUT / "plan_layers.json"
    else:
        chosen = [model for model in MODELS if not options.models or model.title in options.models]
        planned = measure(chosen, options.workers, options.presets, options.runs)
        print(table(planned))
        target = OUTPUT / "plan.json"
    target.write_text(json.dumps([each.entry() for each in planned], indent=1) + "\n")
    print(f"\n{target.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
