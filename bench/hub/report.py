"""Tables and pictures of ./x bench hub."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench import picture

SYSTEMS = ("tesser-dedicated", "tesser-colocated", "gloo", "wide")
COLOURS = dict(zip(SYSTEMS, ("#1b6ca8", "#2a9d6f", "#8a8a8a", "#e07b39"), strict=True))
OPTIMIZERS = {"sgd": "SGD with momentum", "adam": "Adam"}
BAR, GAP, GROUP, HEIGHT, LEFT, TOP = 12, 2, 70, 260, 70, 40

Rows = Sequence[dict]


def number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def size_text(size: float) -> str:
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"


def is_loop(kernel: str) -> bool:
    """Of the memory's limit: a hub's own loop, not STREAM's."""
    return kernel.startswith("exchange ")


def stream(kernels: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in kernels.items() if not is_loop(name)}


def limit_text(limits: Sequence[dict[str, float]]) -> str:
    best = {name: max(kernels[name] for kernels in limits) for name in limits[0]}
    each = ", ".join(f"{name} {value:.1f}" for name, value in best.items())
    return f"memory bandwidth, GB/s, the best of {len(limits)} times: {each}"


def grouped(rows: Rows) -> dict[tuple[str, int, str], dict[str, dict]]:
    """By optimizer, number of workers and model, then by system."""
    groups: dict[tuple[str, int, str], dict[str, dict]] = {}
    for row in rows:
        groups.setdefault((row["optimizer"], row["workers"], row["model"]), {})[row["system"]] = row
    return groups


def ratio(systems: dict[str, dict], faster: str, slower: str, key: str = "exchanges_s") -> str:
    return number(systems[faster][key] / systems[slower][key]) if {faster, slower} <= set(systems) else "-"


def part_of_limit(systems: dict[str, dict], system: str, limit: str = "limit_gb_s") -> str:
    if system not in systems or systems[system][limit] is None:
        return "-"
    return f"{systems[system]['gb_s'] / systems[system][limit]:.2f}"


def tables(rows: Rows) -> str:
    groups = grouped(rows)
    return "\n\n".join(
        table(title, {key: systems for key, systems in groups.items() if key[0] == optimizer})
        for optimizer, title in OPTIMIZERS.items()
        if any(key[0] == optimizer for key in groups)
    )


def table(title: str, groups: dict[tuple[str, int, str], dict[str, dict]]) -> str:
    present = [system for system in SYSTEMS if any(system in systems for systems in groups.values())]
    heads = ["model", "workers", *present, "dedicated / gloo", "at best", "colocated / gloo", "dedicated / wide"]
    heads += ["dedicated GB/s", "of the limit", "of the loop alone"]
    lines = [f"{title}, exchanges/s, medians:", "", f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for (_, workers, model), systems in groups.items():
        cells = [model, str(workers)]
        cells += [number(systems[system]["exchanges_s"]) if system in systems else "-" for system in present]
        cells += [
            ratio(systems, "tesser-dedicated", "gloo"),
            ratio(systems, "tesser-dedicated", "gloo", "exchanges_s_best"),
            ratio(systems, "tesser-colocated", "gloo"),
            ratio(systems, "tesser-dedicated", "wide"),
            number(systems["tesser-dedicated"]["gb_s"]) if "tesser-dedicated" in systems else "-",
            part_of_limit(systems, "tesser-dedicated"),
            part_of_limit(systems, "tesser-dedicated", "loop_gb_s"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def tenant_table(rounds: Rows) -> str:
    lines = [
        "| processors | alone | an eighth of it | eight together, least | median | seven beside a hostile one, least "
        "| median | least to least | hostile acts/s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in rounds:
        together, beside = each["together"], each["beside_hostile"]
        values = [each["alone"], each["alone"] / (len(beside) + 1), min(together), statistics.median(together)]
        values += [min(beside), statistics.median(beside), min(beside) / min(together), each["hostile_acts_s"]]
        processors = "a share each" if each["shares"] else "for all"
        lines.append(f"| {processors} | {' | '.join(number(value) for value in values)} |")
    return "\n".join(lines)


def chunk_table(rows: Rows) -> str:
    lines = [
        "| model | system | workers | optimizer | chunk | exchanges/s | best | GB/s | of the limit |",
        "|---|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [row["model"], row["system"], str(row["workers"]), row["optimizer"], size_text(row["chunk_bytes"])]
        cells += [number(row[key]) for key in ("exchanges_s", "exchanges_s_best", "gb_s")]
        cells.append(f"{row['gb_s'] / row['limit_gb_s']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def chunk_picture(rows: Rows) -> str:
    """Exchanges a second by the size of chunks, one line a model, number of workers and optimizer."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = f"{row['model']}, {row['system']}, {row['workers']} workers, {row['optimizer']}"
        lines.setdefault(name, []).append((row["chunk_bytes"], row["exchanges_s"]))
    palette = ("#1b6ca8", "#e07b39", "#2a9d6f", "#8a8a8a", "#58a4d6", "#222222")
    colours = {name: palette[place % len(palette)] for place, name in enumerate(lines)}
    sizes = sorted({row["chunk_bytes"] for row in rows})
    values = [row["exchanges_s"] for row in rows]
    across = picture.Axis(sizes, size_text)
    upward = picture.Axis(picture.powers_of_ten(values), lambda value: f"{value:g}")
    parts = picture.line_chart(0, 10, "exchanges/s by chunk size", lines, colours, across, upward)
    for place, (name, colour) in enumerate(colours.items()):
        y = picture.CHART_TOP + picture.CHART_HEIGHT + 60 + 18 * place
        parts.append(f'<rect x="{picture.CHART_LEFT}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(picture.text(picture.CHART_LEFT + 18, y, name, "start"))
    width = picture.CHART_LEFT + picture.CHART_WIDTH + 30
    return picture.document(width, picture.CHART_TOP + picture.CHART_HEIGHT + 70 + 18 * len(lines), parts)


def picture_of(rows: Rows) -> str:
    """Bars of every system's exchanges a second relative to Gloo's (or the slowest system's), a row of charts for each
    optimizer and number of workers."""
    groups = grouped(rows)
    charts: dict[tuple[str, int], dict[str, dict[str, dict]]] = {}
    for (optimizer, workers, model), systems in groups.items():
        charts.setdefault((optimizer, workers), {})[model] = systems
    present = {name: colour for name, colour in COLOURS.items() if any(row["system"] == name for row in rows)}
    base = "gloo" if "gloo" in present else next(iter(present))
    widest = max(len(chart) for chart in charts.values())
    parts = []
    for place, ((optimizer, workers), chart) in enumerate(charts.items()):
        top = TOP + place * (HEIGHT + 70)
        title = f"{OPTIMIZERS[optimizer]}, {workers} workers: exchanges/s relative to {base}"
        parts += bars(top, title, chart, present, base)
    height = TOP + len(charts) * (HEIGHT + 70) + 20
    return picture.document(LEFT + widest * GROUP + 40 + 300, height, [*parts, *picture.legend(present, LEFT, height)])


def bars(top: float, title: str, chart: dict[str, dict[str, dict]], colours: dict[str, str], base: str) -> list[str]:
    relative = {
        model: {name: row["exchanges_s"] / systems[base]["exchanges_s"] for name, row in systems.items()}
        for model, systems in chart.items()
        if base in systems
    }
    highest = max((value for values in relative.values() for value in values.values()), default=1)
    bottom = top + HEIGHT
    parts = [picture.text(LEFT, top - 12, title, "start", 14)]
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 1000, 1e9) if highest / size <= 8)
    for tick in range(int(highest / step) + 1):
        y = bottom - tick * step / highest * HEIGHT
        right = LEFT + len(relative) * GROUP
        parts.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#e4e4e4"/>')
        parts.append(picture.text(LEFT - 8, y + 4, f"{tick * step:g}", "end", 11))
    for place, (model, values) in enumerate(relative.items()):
        left = LEFT + place * GROUP + 4
        for number_of_bar, name in enumerate(name for name in colours if name in values):
            length = values[name] / highest * HEIGHT
            x = left + number_of_bar * (BAR + GAP)
            parts.append(
                f'<rect x="{x}" y="{bottom - length:.1f}" width="{BAR}" height="{length:.1f}" fill="{colours[name]}"/>'
            )
        parts.append(picture.text(left + 2 * (BAR + GAP), bottom + 16, model, "middle", 11))
    return parts
