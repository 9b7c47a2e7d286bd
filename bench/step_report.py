"""The table and the picture of ./x bench step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bench.picture import document, legend, text

# In the order of the report. The first group is of one process with all threads, the second of several with one each.
COLOURS = {
    "tesser": "#1b6ca8",
    "torch-eager": "#e07b39",
    "torch-compile": "#8a8a8a",
    "tesser, workers": "#6fa8d6",
    "tesser-replicas": "#2a9d6f",
    "torch-hub": "#8cc6a5",
    "torch-ddp": "#d9a441",
    "torch-fsdp2": "#9c6b98",
}
MEBIBYTE = 2**20
# Sizes of the picture in pixels.
LEFT, PANEL_HEIGHT, PANEL_TOP, BAR_STEP, BAR_WIDTH, GROUP_GAP = 60, 180, 60, 50, 44, 40


class Measured(Protocol):
    """What is needed of bench.step.Measurement."""

    model: str
    variant: str
    workers: int
    threads: int
    step_ms: list[float]
    peak_bytes: int

    @property
    def system(self) -> str: ...

    @property
    def median(self) -> float: ...


def series(measured: Measured) -> str:
    """Its place among the names of COLOURS."""
    return "tesser, workers" if measured.system == "tesser" and measured.workers > 1 else measured.system


def by_model(measurements: Sequence[Measured]) -> dict[str, dict[str, Measured]]:
    """Measurements by model in the order of the run, then by name in the order of COLOURS."""
    grouped: dict[str, dict[str, Measured]] = {}
    for measurement in sorted(measurements, key=lambda measured: list(COLOURS).index(series(measured))):
        grouped.setdefault(measurement.model, {})[series(measurement)] = measurement
    return {model: grouped[model] for model in dict.fromkeys(measurement.model for measurement in measurements)}


def table(measurements: Sequence[Measured], flops: Mapping[str, int], rate: float) -> str:
    """A table in Markdown. The limit is the time the step's operations would take at the rate of a large matrix
    product.
    """
    lines = [
        "| model | system | workers x threads | median ms | minimum ms | to eager | minima | limit ms | peak MiB |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model, systems in by_model(measurements).items():
        eager = systems.get("torch-eager")
        for measured in systems.values():
            name = f"{measured.system} ({measured.variant})" if measured.system == "torch-compile" else measured.system
            cells = [
                model,
                name,
                f"{measured.workers} x {measured.threads}",
                f"{measured.median:.2f}",
                f"{min(measured.step_ms):.2f}",
                f"{measured.median / eager.median:.2f}" if eager else "-",
                f"{min(measured.step_ms) / min(eager.step_ms):.2f}" if eager else "-",
                f"{flops[model] / rate * 1e3:.2f}",
                mebibytes(measured.peak_bytes),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"limit: floating-point operations of the step at {rate / 1e9:.0f} GFLOP/s, the best rate of a 2048 x 2048 "
        "float32 product in this run.",
        "to eager: median divided by eager's median; minima: the same of minima; below 1 is faster.",
        "peak: of several workers that of the one with most.",
    ]
    return "\n".join(lines)


def picture(measurements: Sequence[Measured]) -> str:
    """An SVG with two rows of bars: step time and peak memory, each relative to PyTorch eager."""
    groups = by_model(measurements)
    width = LEFT + sum(group_width(systems) for systems in groups.values()) + 20
    drawn = {name: colour for name, colour in COLOURS.items() if any(name in systems for systems in groups.values())}
    width = max(width, LEFT + 150 * len(drawn))
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
    return document(width, height, [*parts, *legend(drawn, LEFT, height)])


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
    start = LEFT + GROUP_GAP / 2
    for model, systems in groups.items():
        for bar, (name, measured) in enumerate(systems.items()):
            value = value_of(measured)
            size = unit * value / reference[model]
            x, y = start + bar * BAR_STEP, base - size
            parts.append(f'<rect x="{x}" y="{y:.1f}" width="{BAR_WIDTH}" height="{size:.1f}" fill="{COLOURS[name]}"/>')
            parts.append(text(x + BAR_WIDTH / 2, y - 4, label_of(value), "middle", 11))
        parts.append(text(start + (group_width(systems) - GROUP_GAP) / 2, base + 16, model, "middle"))
        start += group_width(systems)
    return parts


def group_width(systems: Mapping[str, Measured]) -> float:
    return BAR_STEP * len(systems) + GROUP_GAP


def mebibytes(count: float) -> str:
    return f"{count / MEBIBYTE:.0f}"
