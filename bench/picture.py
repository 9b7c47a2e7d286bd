"""Pictures of benchmarks, written as SVG without any library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

# Of a chart of lines in pixels.
CHART_WIDTH, CHART_HEIGHT, CHART_LEFT, CHART_TOP = 520, 340, 70, 40


def document(width: float, height: float, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="white"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def text(x: float, y: float, content: str, anchor: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(content)}</text>'


def legend(colours: Mapping[str, str], left: float, bottom: float) -> list[str]:
    """A row of names with their colours."""
    parts = []
    for position, (name, colour) in enumerate(colours.items()):
        x = left + position * 150
        parts.append(f'<rect x="{x}" y="{bottom - 24}" width="12" height="12" fill="{colour}"/>')
        parts.append(text(x + 18, bottom - 14, name, "start"))
    return parts


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis from the first tick to the last, and how ticks are written."""

    ticks: Sequence[float]
    label: Callable[[float], str]

    def place(self, value: float, length: float) -> float:
        first, last = math.log(self.ticks[0]), math.log(self.ticks[-1])
        return (math.log(value) - first) / (last - first) * length


def powers_of_ten(values: Sequence[float]) -> list[float]:
    """Ticks that enclose the values."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**exponent for exponent in range(first, max(last, first + 1) + 1)]


def line_chart(
    left: float,
    top: float,
    title: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    colours: Mapping[str, str],
    across: Axis,
    upward: Axis,
) -> list[str]:
    """One line a name through its points, on two logarithmic axes."""
    left, top = left + CHART_LEFT, top + CHART_TOP
    bottom = top + CHART_HEIGHT
    parts = [text(left, top - 14, title, "start", 14)]
    for tick in across.ticks:
        x = left + across.place(tick, CHART_WIDTH)
        parts.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="#e4e4e4"/>')
        parts.append(text(x, bottom + 18, across.label(tick), "middle", 11))
    for tick in upward.ticks:
        y = bottom - upward.place(tick, CHART_HEIGHT)
        parts.append(f'<path d="M{left} {y:.1f}H{left + CHART_WIDTH}" stroke="#e4e4e4"/>')
        parts.append(text(left - 8, y + 4, upward.label(tick), "end", 11))
    for name, points in lines.items():
        places = [
            (left + across.place(x, CHART_WIDTH), bottom - upward.place(y, CHART_HEIGHT)) for x, y in sorted(points)
        ]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[name]}"/>' for x, y in places]
    return parts
