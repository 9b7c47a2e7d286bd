"""The sweep over every operator: calls, mixtures, verdicts, and the lines that follow from them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.python.layout_sweep import table
from tests.python.layout_sweep.calls import Call, Calls, from_models, from_modules, from_operators, function_of, is_view
from tests.python.layout_sweep.images import from_images
from tests.python.layout_sweep.trial import Outcome, try_operator
from tests.python.layout_sweep.words import Line, derive

# Results that other kernels read by their place in memory, so that what one call gives says too little; and rows where
# a sweep found nothing wrong, for caution.
CAUTION: dict[str, tuple[str, ...]] = {
    "aten::native_layer_norm_backward": ("mean", "rstd"),
    "aten::adaptive_max_pool3d_backward": ("indices",),
    "aten::mkldnn_rnn_layer": ("*",),
    "aten::mkldnn_rnn_layer_backward": ("*",),
    "aten::_linalg_det": ("*",),
    "aten::_linalg_slogdet": ("*",),
    "aten::linalg_lu_factor_ex": ("*",),
    "aten::linalg_lu_solve": ("*",),
    "aten::_linalg_solve_ex": ("*",),
    "aten::lu_unpack": ("*",),
    "aten::linalg_ldl_factor_ex": ("*",),
    "aten::linalg_ldl_solve": ("*",),
    "aten::geqrf": ("*",),
    "aten::ormqr": ("*",),
    "aten::linalg_householder_product": ("*",),
    "aten::_weight_norm_interface": ("*",),
    "aten::_weight_norm_interface_backward": ("*",),
    "aten::native_group_norm": ("*",),
    "aten::native_group_norm_backward": ("*",),
}


# Tried on two threads as well.
THREADED = (
    "aten::_softmax", "aten::add.Tensor", "aten::bmm", "aten::convolution", "aten::convolution_backward",
    "aten::max_pool2d_with_indices", "aten::native_batch_norm", "aten::native_batch_norm_backward",
    "aten::native_group_norm", "aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::sum.dim_IntList",
    "aten::upsample_bilinear2d", "aten::upsample_nearest2d", "aten::avg_pool2d", "aten::cat", "aten::index.Tensor",
    "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::embedding_dense_backward", "aten::cumsum",
)  # fmt: skip

SOURCES = ("images", "modules", "operators", "models")


def report(text: str) -> None:
    print(text, flush=True)


def gather(sources: Sequence[str] = SOURCES, samples: int = 30) -> Calls:
    calls = Calls()
    collectors = {
        "images": from_images,
        "modules": from_modules,
        "operators": lambda made: from_operators(made, samples),
        "models": lambda made: from_models(made, report),
    }
    for name in sources:
        collect = collectors[name]
        begin = time.monotonic()
        collect(calls)
        count = sum(len(known) for known in calls.by_operator.values())
        report(f"with {name}: {count} calls of {len(calls.by_operator)} operators, {time.monotonic() - begin:.0f} s")
    return calls


def varied(known: list[Call]) -> list[Call]:
    """The calls in an order that begins with one of each number of dimensions and dtype, the largest first."""
    turn: Counter[object] = Counter()
    ranked = []
    for call in sorted(known, key=lambda call: -max(tensor.dim() for _, tensor in call.tensors)):
        kind = tuple((tensor.dim(), tensor.dtype) for _, tensor in call.tensors[:4])
        ranked.append((turn[kind], len(ranked), call))
        turn[kind] += 1
    return [call for _, _, call in sorted(ranked, key=lambda entry: entry[:2])]


def other_dtypes(known: Sequence[Call]) -> list[Call]:
    """A few of the calls in float64 and bfloat16."""
    made = []
    floating = [call for call in known if any(tensor.dtype == torch.float32 for _, tensor in call.tensors)]
    widest = sorted(floating, key=lambda call: -max(tensor.dim() for _, tensor in call.tensors))[:2]
    for dtype in (torch.float64, torch.bfloat16):
        for call in widest:
            tensors = [tensor.to(dtype) if tensor.dtype == torch.float32 else tensor for _, tensor in call.tensors]
            made.append(call.with_tensors(tensors, f"{call.source}, {dtype}"))
    return made


def view_line(operator: str, known: Sequence[Call]) -> Line | None:
    """A view's line where its results share the argument's memory in each layout."""
    from tests.python.layout_sweep.layouts import arrangements

    for call in known:
        named = call.tensors
        for arranged in arrangements(named[0][1]).values():
            try:
                results = call.run([arranged, *(tensor for _, tensor in named[1:])])
            except RuntimeError:
                return None
            if any(entry.untyped_storage().data_ptr() != arranged.untyped_storage().data_ptr() for entry in results):
                return None
    return Line(operator, (("*", "any"),), ("view",))


def run(
    *,
    write: bool,
    sources: Sequence[str] = SOURCES,
    operators: Sequence[str] | None = None,
    seconds: float = float("inf"),
    calls_of_each: int = 1000,
    log: Path | None = None,
    lift: bool = True,
    missing: bool = False,
    samples: int = 30,
) -> int:
    torch.set_num_threads(1)
    calls = gather(sources, samples)
    if lift:
        calls.lift()
    begin = time.monotonic()
    lines: list[Line] = []
    counts: Counter[str] = Counter()
    rejected: list[Outcome] = []
    names = [name for name in calls.by_operator if operators is None or name in operators]
    if missing:
        names = [name for name in names if name not in table.read()]
    for operator in names:
        if time.monotonic() - begin > seconds:
            counts["operators left for lack of time"] += 1
            continue
        known = varied(list(calls.by_operator[operator].values()))[:calls_of_each]
        if is_view(function_of(operator)):
            line = view_line(operator, known)
            counts["views"] += 1
            if line is not None:
                lines.append(line)
            continue
        counts["operators"] += 1
        tried = [*known, *other_dtypes(known)]
        outcomes = try_operator(tried)
        if operator in THREADED:
            largest = max(known, key=lambda call: max(tensor.numel() for _, tensor in call.tensors))
            outcomes += try_operator([largest], threads=2)
        counts["calls"] += len(tried)
        if len(lines) % 10 == 9:
            report(f"{len(lines)} of {len(names)} operators, {time.monotonic() - begin:.0f} s, {dict(counts)}")
            if write:
                write_table(lines, whole=False)
        counts["mixtures"] += len(outcomes)
        counts.update(outcome.verdict for outcome in outcomes)
        rejected += [outcome for outcome in outcomes if not outcome.taken]
        if not any(outcome.taken and outcome.results for outcome in outcomes):
            counts["operators without a call that can be compared"] += 1
            continue
        lines.append(derive(operator, outcomes, CAUTION.get(operator.partition(".")[0], ())))
        unsound = [
            outcome for outcome in outcomes if not outcome.taken and all(layout.rows for layout in outcome.layouts)
        ]
        if unsound:
            print(f"{operator}: {unsound[0].verdict} for row-major arguments at another offset: {unsound[0].detail}")
    for name, count in counts.items():
        print(f"{name}: {count}")
    if log is not None:
        log.write_text(
            "".join(f"{o.operator} {o.call} {o.verdict} {list(zip(o.names, o.layouts))} {o.detail}\n" for o in rejected)
        )
    if write:
        write_table(
            lines, whole=not missing and operators is None and seconds == float("inf") and set(sources) == set(SOURCES)
        )
        return 0
    return compare(lines, operators)


def write_table(lines: Sequence[Line], whole: bool) -> None:
    """Writes the lines, and keeps those of other operators where the sweep was not whole."""
    kept = {} if whole or not table.PATH.exists() else table.read()
    kept |= {line.operator: line for line in lines}
    table.PATH.parent.mkdir(exist_ok=True)
    table.PATH.write_text(table.text_of(kept.values()), encoding="utf-8")


def compare(lines: Sequence[Line], operators: Sequence[str] | None) -> int:
    checked_in = table.read()
    found = {line.operator: line for line in lines}
    differ = 0
    for operator in sorted(found.keys() | (checked_in.keys() if operators is None else set())):
        mine, theirs = found.get(operator), checked_in.get(operator)
        texts = [
            "nothing" if line is None else f"{table.arguments_text(line)} -> {', '.join(line.results)}"
            for line in (theirs, mine)
        ]
        if texts[0] != texts[1]:
            differ += 1
            print(f"{operator}: the table has {texts[0]}; found {texts[1]}")
    return 1 if differ else 0
