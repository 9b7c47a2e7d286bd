"""./x bench step --memory: what each of several workers needs, against one worker and against the prediction.

Of two plans: the one that tesser finds by itself, bound to the share of memory that the workers would have if they
divided what one needs (``--memory``), and preset ``tofu``. Bytes are those of tensor storage, receive buffers included:
what the prediction foresees before the first step, and what a run of a few steps then had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MODELS = ("mlp", "gpt", "rnn")
MEBIBYTE = 2**20
# Of the share of one worker that the plan may use. The aim is 1.1; plans are bound before buffers are laid out.
ALLOWED = 1.1
STEPS = 3  # the first records, the second runs as all others


@dataclass(frozen=True)
class Peak:
    predicted: int
    measured: int
    resident: int


@dataclass(frozen=True)
class Comparison:
    model: str
    plan: str
    one: Peak
    workers: list[Peak]

    def entries(self) -> list[dict]:
        keys = {"model": self.model, "plan": self.plan}
        return [
            {**keys, "workers": count, "worker": worker, **vars(peak)}
            for count, peaks in ((1, [self.one]), (len(self.workers), self.workers))
            for worker, peak in enumerate(peaks)
        ]


def compare(train: Callable[..., list[dict]], model: str, workers: int) -> list[Comparison]:
    """`train` runs tesser: (model, steps, workers, threads of each, options) -> events."""
    end = train(model, STEPS, 1, 1)[-1]
    one = peak_of(end)
    share = int(ALLOWED * one.predicted / workers)
    plans = {"within its share": ("--memory", str(share)), "tofu": ("--preset", "tofu")}
    comparisons = []
    for plan, options in plans.items():
        end = train(model, STEPS, workers, 1, *options)[-1]
        comparisons.append(Comparison(model, plan, one, [peak_of(worker) for worker in end["workers"]]))
    return comparisons


def peak_of(report: dict) -> Peak:
    return Peak(report["predicted_peak_bytes"], report["peak_bytes"], report["resident_peak_bytes"])


def table(comparisons: Sequence[Comparison]) -> str:
    lines = [
        "| model | plan | one worker MiB | of each worker MiB | to its share | predicted MiB | measured to predicted |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for comparison in comparisons:
        share = comparison.one.measured / len(comparison.workers)
        peaks = comparison.workers
        cells = [
            comparison.model,
            comparison.plan,
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
