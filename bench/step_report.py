"""The table and the picture of ./x bench step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from xml.sax.saxutils import escape

SYSTEMS = ("tesser", "torch-eager", "torch-compile")
COLOURS = {"tesser": "#1b6ca8", "torch-eager": "#e07b39", "torch-compile": "#8a8a8a"}
MEBIBYTE = 2**20


class Measured(Protocol):
    """What is needed of bench.step.Measurement."""

    model: str
    variant: str
    step_ms: list[float]
    peak_bytes: int

    @property
    def median(self) -> float: ...

    def entry(self) -> dict: ...


def by_model(measurements: Sequence[Measured]) -> dict[str, dict[str, Measured]]:
    """Measurements by model, then by system, in the order of the run."""
    grouped: dict[str, dict[str, Measured]] = {}
    for measurement in measurements:
        grouped.setdefault(measurement.model, {})[measurement.entry()["system"]] = measurement
    return grouped


def table(measurements: Sequence[Measured], flops: Mapping[str, int], rate: float) -> str:
    """A table in Markdown. The limit is the time the step's operations would take at the rate of a large matrix product."""
    lines = [
        "| model | system | median ms | minimum ms | to eager | to compile | limit ms | peak MiB |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model, systems in by_model(measurements).items():
        limit = flops[model] / rate * 1e3
        for system in SYSTEMS:
            if (measured := systems.get(system)) is None:
                continue
            name = f"{system} ({measured.variant})" if system == "torch-compile" else system
            lines.append(
                f"| {model} | {name} | {measured.median:.2f} | {min(measured.step_ms):.2f} | {ratio(measured, systems.get('torch-eager'))} "
                f"| {ratio(measured, systems.get('torch-compile'))} | {limit:.2f} | {measured.peak_bytes / MEBIBYTE:.0f} |"
            )
    lines += [
        "",
        f"limit: floating-point operations of the step at {rate / 1e9:.0f} GFLOP/s, the best rate of a 2048 x 2048 float32 product in this run.",
        "to eager, to compile: median divided by that system's median; below 1 is faster.",
    ]
    return "\n".join(lines)


def ratio(measured: Measured, other: Measured | None) -> str:
    return f"{measured.median / other.median:.2f}" if other else "-"


def picture(measurements: Sequence[Measured]) -> str:
    """An SVG with two rows of bars: step time and peak memory, each relative to PyTorch eager."""
    groups = by_model(measurements)
    group_width, left, height, top = 190, 60, 180, 60
    width = left + group_width * len(groups) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{2 * (height + top) + 50}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    panels = (
        ("step time, median, relative to PyTorch eager (ms on the bars)", lambda m: m.median, lambda v: f"{v:.1f}"),
        ("peak memory, relative to PyTorch eager (MiB on the bars)", lambda m: m.peak_bytes, lambda v: f"{v / MEBIBYTE:.0f}"),
    )
    for row, (title, value_of, label_of) in enumerate(panels):
        base = top + row * (height + top) + height
        reference = {model: value_of(systems.get("torch-eager") or next(iter(systems.values()))) for model, systems in groups.items()}
        largest = max([1.0] + [value_of(m) / reference[m.model] for m in measurements])
        unit = height / largest
        parts.append(f'<text x="{left}" y="{base - height - 22}" font-size="14">{escape(title)}</text>')
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{base - unit:.1f}" y2="{base - unit:.1f}" stroke="#aaa" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="{left - 8}" y="{base - unit + 4:.1f}" text-anchor="end">1.0</text>')
        for group, (model, systems) in enumerate(groups.items()):
            start = left + group * group_width + 20
            for bar, system in enumerate(name for name in SYSTEMS if name in systems):
                value = value_of(systems[system])
                bar_height = unit * value / reference[model]
                x = start + bar * 50
                parts.append(f'<rect x="{x}" y="{base - bar_height:.1f}" width="44" height="{bar_height:.1f}" fill="{COLOURS[system]}"/>')
                parts.append(f'<text x="{x + 22}" y="{base - bar_height - 4:.1f}" text-anchor="middle" font-size="11">{label_of(value)}</text>')
            parts.append(f'<text x="{start + 72}" y="{base + 16}" text-anchor="middle">{escape(model)}</text>')
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{base}" y2="{base}" stroke="black"/>')
    for position, (system, colour) in enumerate(COLOURS.items()):
        x, y = left + position * 150, 2 * (height + top) + 36
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="{y}">{system}</text>')
    return "\n".join([*parts, "</svg>", ""])
