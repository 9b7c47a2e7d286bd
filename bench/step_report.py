"""The table and the picture of ./x bench step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bench.picture import document, legend, text

SYSTEMS = ("tesser", "torch-eager", "torch-compile")
COLOURS = {"tesser": "#1b6ca8", "torch-eager": "#e07b39", "torch-compile": "#8a8a8a"}
MEBIBYTE = 2**20
# Sizes of the picture in pixels.
GROUP_WIDTH, LEFT, PANEL_HEIGHT, PANEL_TOP = 190, 60, 180, 60


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
    """A table in Markdown. The limit is the time the step's operations would take at the rate of a large matrix
    product.
    """
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
            cells = [
                model,
                name,
                f"{measured.median:.2f}",
                f"{min(measured.step_ms):.2f}",
                ratio(measured, systems.get("torch-eager")),
                ratio(measured, systems.get("torch-compile")),
                f"{limit:.2f}",
                mebibytes(measured.peak_bytes),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"limit: floating-point operations of the step at {rate / 1e9:.0f} GFLOP/s, the best rate of a 2048 x 2048 "
        "float32 product in this run.",
        "to eager, to compile: median divided by that system's median; below 1 is faster.",
    ]
    return "\n".join(lines)


def ratio(measured: Measured, other: Measured | None) -> str:
    return f"{measured.median / other.median:.2f}" if other else "-"


def picture(measurements: Sequence[Measured]) -> str:
    """An SVG with two rows of bars: step time and peak memory, each relative to PyTorch eager."""
    groups = by_model(measurements)
    width = LEFT + GROUP_WIDTH * len(groups) + 20
    height = 2 * (PANEL_HEIGHT + PANEL_TOP) + 50
    parts = []
    panels = (
        ("median step time relative to PyTorch eager (ms on the bars)", lambda m: m.median, lambda v: f"{v:.1f}"),
        ("peak memory relative to PyTorch eager (MiB on the bars)", lambda m: m.peak_bytes, mebibytes),
    )
    for row, (title, value_of, label_of) in enumerate(panels):
        base = (row + 1) * (PANEL_TOP + PANEL_HEIGHT)
        parts.append(text(LEFT, base - PANEL_HEIGHT - 22, title, "start", 14))
        parts += panel(groups, base, width - 20, value_of, label_of)
    return document(width, height, [*parts, *legend(COLOURS, LEFT, height)])


def panel(
    groups: Mapping[str, Mapping[str, Measured]],
    base: float,
    right: float,
    value_of: Callable[[Measured], float],
    label_of: Callable[[float], str],
) -> list[str]:
    """One group of bars a model, standing on y = base; the first system is the reference where eager is missing."""
    reference = {
        model: value_of(systems.get("torch-eager") or next(iter(systems.values()))) for model, systems in groups.items()
    }
    ratios = [value_of(m) / reference[model] for model, systems in groups.items() for m in systems.values()]
    unit = PANEL_HEIGHT / max(1.0, *ratios)
    parts = [
        f'<path d="M{LEFT} {base - unit:.1f}H{right}" stroke="#aaa" stroke-dasharray="4 3"/>',
        f'<path d="M{LEFT} {base}H{right}" stroke="black"/>',
        text(LEFT - 8, base - unit + 4, "1.0", "end"),
    ]
    for group, (model, systems) in enumerate(groups.items()):
        start = LEFT + group * GROUP_WIDTH + 20
        for bar, system in enumerate(name for name in SYSTEMS if name in systems):
            value = value_of(systems[system])
            size = unit * value / reference[model]
            x, y = start + bar * 50, base - size
            parts.append(f'<rect x="{x}" y="{y:.1f}" width="44" height="{size:.1f}" fill="{COLOURS[system]}"/>')
            parts.append(text(x + 22, y - 4, label_of(value), "middle", 11))
        parts.append(text(start + 72, base + 16, model, "middle"))
    return parts


def mebibytes(count: float) -> str:
    return f"{count / MEBIBYTE:.0f}"
