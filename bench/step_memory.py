"""./x bench step --memory: what each of several workers needs, against one worker and against the prediction.

Of two plans: preset ``tofu``, which cuts all state, and ``default``, which has everywhere what is cheaper to have
everywhere as long as no bound on memory forbids it. Bytes are those of tensor storage, receive buffers included: what
the prediction foresees before the first step, and what a run of a few steps then had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MODELS = ("mlp", "gpt", "rnn")
MEBIBYTE = 2**20
PRESETS = ("tofu", "default")
STEPS = 3  # the first records, the second runs as all others


@dataclass(frozen=True)
class Peak:
    predicted: int
    measured: int
    resident: int


@dataclass(frozen=True)
class Comparison:
    model: str
    preset: str
    one: Peak
    workers: list[Peak]

    def entries(self) -> list[dict]:
        keys = {"model": self.model, "preset": self.preset}
        return [
            {**keys, "workers": count, "worker": worker, **vars(peak)}
            for count, peaks in ((1, [self.one]), (len(self.workers), self.workers))
            for worker, peak in enumerate(peaks)
        ]


def compare(train: Callable[..., list[dict]], model: str, workers: int) -> list[Comparison]:
    """`train` runs tesser: (model, steps, workers, threads of each, options) -> events."""
    one = peak_of(train(model, STEPS, 1, 1)[-1])
    comparisons = []
    for preset in PRESETS:
        end = train(model, STEPS, workers, 1, "--preset", preset)[-1]
        comparisons.append(Comparison(model, preset, one, [peak_of(worker) for worker in end["workers"]]))
    return comparisons


def peak_of(report: dict) -> Peak:
    return Peak(report["predicted_peak_bytes"], report["peak_bytes"], report["resident_peak_bytes"])


def table(comparisons: Sequence[Comparison]) -> str:
    lines = [
        "| model | preset | one worker MiB | each worker MiB | to its share | predicted MiB | measured to predicted |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for comparison in comparisons:
        share = comparison.one.measured / len(comparison.workers)
        peaks = comparison.workers
        cells = [
            comparison.model,
            comparison.preset,
            f"{comparison.one.measured / MEBIBYTE:.1f}",
            ", ".join(f"{peak.measured / MEBIBYTE:.1f}" for peak in peaks),
            f"{max(peak.measured for peak in peaks) / share:.3f}",
            ", ".join(f"{peak.predicted / MEBIBYTE:.1f}" for peak in peaks),
            ", ".join(f"{peak.measured / peak.predicted:.3f}" for peak in (comparison.one, *peaks)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "to its share: the largest worker's peak, measured, to one worker's divided by the number of workers.",
        "measured to predicted: of one worker, then of each of several.",
    ]
    return "\n".join(lines)
