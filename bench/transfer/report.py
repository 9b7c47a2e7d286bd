"""The tables and the picture of ./x bench transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench import picture

SYSTEMS = ("tesser-static", "tesser-dynamic", "tesser-tcp", "grpc", "gloo", "memcpy")
COLOURS = dict(zip(SYSTEMS, ("#1b6ca8", "#58a4d6", "#2a9d6f", "#e07b39", "#8a8a8a", "#222222")))
# Bandwidth of the first to that of the second: what the aims of the transport are stated in.
RATIOS = (("tesser-static", "grpc"), ("tesser-static", "memcpy"), ("tesser-tcp", "grpc"))
MODEL_RATIOS = (
    ("tesser-static", "grpc"),
    ("tesser-dynamic", "grpc"),
    ("tesser-tcp", "grpc"),
    ("tesser-static", "gloo"),
)

# What is measured of each system, by row of the table (a size, a model) and then by system.
Rows = Mapping[object, Mapping[str, Mapping[str, float]]]


def size_text(size: float) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g} B"


def time_text(value: float) -> str:
    """Three digits that say something."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def ratio_text(systems: Mapping[str, Mapping[str, float]], pair: tuple[str, str], key: str) -> str:
    """How many times faster the first is than the second."""
    faster, slower = (systems.get(name) for name in pair)
    return time_text(slower[key] / faster[key]) if faster and slower else "-"


def table(rows: Rows, key: str, heading: str, ratios: Sequence[tuple[str, str]], scale: float = 1) -> str:
    """Times of one kind (``us_median``, ``us_min``), times ``scale``, in Markdown, with the ratios behind them."""
    present = [system for system in SYSTEMS if any(system in systems for systems in rows.values())]
    wanted = [pair for pair in ratios if set(pair) <= set(present)]
    heads = [heading, *present, *(f"{faster.removeprefix('tesser-')} / {slower}" for faster, slower in wanted)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---:|' * len(heads)}"]
    for row, systems in rows.items():
        cells = [time_text(systems[system][key] * scale) if system in systems else "-" for system in present]
        cells += [ratio_text(systems, pair, key) for pair in wanted]
        lines.append(f"| {' | '.join([row if isinstance(row, str) else size_text(row), *cells])} |")
    return "\n".join(lines)


def size_tables(rows: Rows) -> str:
    return "\n\n".join(
        f"One way, microseconds, {name}; the ratios say how many times faster the first is:\n\n"
        f"{table(rows, key, 'size', RATIOS)}"
        for name, key in (("median", "us_median"), ("minimum", "us_min"))
    )


def model_table(rows: Rows) -> str:
    return (
        "Milliseconds an exchange, median; the ratios say how many times faster the first is:\n\n"
        f"{table(rows, 'us_median', 'model', MODEL_RATIOS, scale=1e-3)}"
    )


def size_picture(rows: Rows) -> str:
    """An SVG with two charts: the time of one way, and the bandwidth."""
    present = {name: colour for name, colour in COLOURS.items() if any(name in systems for systems in rows.values())}
    sizes = sorted(rows)
    across = picture.Axis(sizes if len(sizes) > 1 else [sizes[0], 4 * sizes[0]], size_text)
    parts = []
    charts = (("one way, microseconds (median)", "us_median"), ("bandwidth, GB/s (from the median)", "gb_s"))
    for number, (title, key) in enumerate(charts):
        lines = {name: [(size, rows[size][name][key]) for size in sizes if name in rows[size]] for name in present}
        values = [value for points in lines.values() for _, value in points]
        upward = picture.Axis(picture.powers_of_ten(values), lambda value: f"{value:g}")
        left = number * (picture.CHART_LEFT + picture.CHART_WIDTH + 20)
        parts += picture.line_chart(left, 10, title, lines, present, across, upward)
    width = 2 * (picture.CHART_LEFT + picture.CHART_WIDTH + 20) + 20
    height = picture.CHART_TOP + picture.CHART_HEIGHT + 80
    return picture.document(width, height, [*parts, *picture.legend(present, picture.CHART_LEFT, height)])
