"""The expanded program gives the program's numbers: operator by operator, and over whole training steps."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import models
from models import architectures
from tesser.interpreter import Interpreter, read_state
from tesser.program import DTYPE_NAMES, DTYPES, Enumerator, Input, Node, Output, Program, Ref, Result

Run = Callable[..., subprocess.CompletedProcess[str]]
# Lowered programs, which are tested for all, contain expanded ones: a part is enough here, except for ./x test --plans.
EVERY = 1 if os.environ.get("TESSER_ALL_PLANS", "") not in ("", "0") else 3
ARCHITECTURES = architectures.names()[::EVERY]

# Operators that a plan cannot cut exactly where it matters; none of them is left by expansion.
REWRITTEN = {
    "aten::mean",
    "aten::mean.dim",
    "aten::var.correction",
    "aten::var_mean.correction",
    "aten::std.correction",
    "aten::linalg_vector_norm",
    "aten::split.Tensor",
    "aten::split_with_sizes",
    "aten::unbind.int",
    "aten::_native_batch_norm_legit_functional",
    "aten::native_batch_norm_backward",
}


def expand(program: Path, run: Run, output: Path) -> Program:
    outcome = run("show", program, "--graph", "--expanded", "-o", output)
    assert outcome.returncode == 0, outcome.stderr
    return Program.read(output)


# ----------------------------------------------------------------------------------------------------------------------
# One operator at a time


@dataclass
class Case:
    op: str
    args: list[Any]  # tensors stand for themselves
    kept: bool = False  # stays as it is
    gives: list[int] = field(default_factory=list)  # results that the program hands out; empty: all


def uniform(*shape: int, low: float = -2.0, high: float = 3.0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(math.prod(shape) + len(shape))
    return (torch.rand(shape, generator=generator) * (high - low) + low).to(dtype)


X = uniform(4, 5, 3)
HALF = uniform(4, 5, 3, dtype=torch.bfloat16)
UNIT = uniform(4, 5, low=0.05, high=0.95)
TARGETS = torch.tensor([0, 4, -100, 2])
WEIGHT = uniform(5, low=0.5, high=2.0)
PIXELS = uniform(2, 3, 4, 5)
PIXEL_TARGETS = torch.randint(0, 3, (2, 4, 5), generator=torch.Generator().manual_seed(1))
ONE = torch.tensor(1.5)
DOUBLE = Enumerator("dtype", "float64")
SIGNS = torch.where(uniform(4, 5) > 0, 1.0, -1.0)
LABELS = torch.tensor([[3, 0, -1, 1, 2], [1, -1, 0, 2, 3], [0, 1, 2, 3, 4], [4, -1, 1, 1, 1]])
CHANNELS = [uniform(3, low=0.5, high=2.0) for _ in range(4)]


def reductions() -> list[Case]:
    cases = [
        Case("aten::mean", [X]),
        Case("aten::mean", [HALF]),
        Case("aten::mean", [torch.arange(7), Enumerator("dtype", "float32")]),
        Case("aten::mean", [torch.tensor(2.5)]),
        Case("aten::mean.dim", [X, None, True]),
        Case("aten::mean.dim", [X, [1]]),
        Case("aten::mean.dim", [X, [-1, 0], True]),
        Case("aten::mean.dim", [X, [2], False, DOUBLE]),
        Case("aten::mean.dim", [HALF, [0]]),
    ]
    for kind in ("var", "std", "var_mean", "std_mean"):
        cases += [
            Case(f"aten::{kind}", [X]),
            Case(f"aten::{kind}", [X, False]),
            Case(f"aten::{kind}.dim", [X, [1], False, True]),
            Case(f"aten::{kind}.dim", [X, [0, 2]]),
            Case(f"aten::{kind}.correction", [X]),
            Case(f"aten::{kind}.correction", [X, [-1], 0, False]),
            Case(f"aten::{kind}.correction", [X + 100, [0, 1], 2.5, True]),
            Case(f"aten::{kind}.correction", [uniform(1, 5), [0], 1, False]),  # of one element: nan
            Case(f"aten::{kind}.correction", [HALF, [1], 1, True]),
        ]
    for order in (2, 1, 0, 3, 2.5, -1, math.inf, -math.inf):
        cases += [
            Case("aten::linalg_vector_norm", [X, order]),
            Case("aten::linalg_vector_norm", [X, order, [0, 2], True]),
            Case("aten::linalg_vector_norm", [X, order, [1], False, DOUBLE]),
            Case("aten::linalg_vector_norm", [HALF, order, [-2]]),
            Case("aten::norm.Scalar", [X, order]),
            Case("aten::norm.ScalarOpt_dim", [X, order, [1], True]),
        ]
    cases += [
        Case("aten::linalg_vector_norm", [torch.tensor(-3.0)]),
        Case("aten::linalg_vector_norm", [torch.tensor([[1e-30], [-1e30]]), 2, [1]]),  # squares would overflow
        Case("aten::norm.ScalarOpt_dim", [X, None, [0, 1]]),
        Case("aten::norm.ScalarOpt_dtype", [X, None, DOUBLE]),
        Case("aten::norm.ScalarOpt_dim_dtype", [X, 3, [2], False, DOUBLE]),
    ]
    return cases


def splits() -> list[Case]:
    return [
        Case("aten::split.Tensor", [X, 2]),
        Case("aten::split.Tensor", [X, 2, 1]),
        Case("aten::split.Tensor", [X, 2, -1], gives=[1]),
        Case("aten::split_with_sizes", [X, [1, 3, 1], 1]),
        Case("aten::split_with_sizes_copy", [X, [2, 2]]),
        Case("aten::unsafe_split.Tensor", [X, 3, 1]),
        Case("aten::chunk", [X, 3, 0]),
        Case("aten::unbind.int", [X]),
        Case("aten::unbind.int", [X, -1], gives=[0, 2]),
    ]


def batch_norms() -> list[Case]:
    weight, bias, mean, variance = CHANNELS
    x, dy = PIXELS * 3 + 1, uniform(2, 3, 4, 5, low=-1, high=1)
    saved = list(torch.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)[1:])
    backward = [dy, x, weight, mean, variance, *saved, True, 1e-5]
    return [
        Case("aten::_native_batch_norm_legit_functional", [x, weight, bias, mean, variance, True, 0.1, 1e-5]),
        Case("aten::_native_batch_norm_legit_functional", [x, None, None, mean, variance, True, 0.3, 1e-3], gives=[0]),
        Case(
            "aten::_native_batch_norm_legit_functional", [x, weight, bias, mean, variance, False, 0.1, 1e-5], kept=True
        ),
        Case("aten::_native_batch_norm_legit.no_stats", [x, weight, bias, True, 0.1, 1e-5]),
        Case("aten::native_batch_norm", [x[:, :, 0, 0], weight, None, None, None, True, 0.1, 1e-5]),
        Case(
            "aten::_batch_norm_with_update_functional",
            [x, weight, bias, mean, variance, 0.1, 1e-5],
            gives=[0, 1, 2, 4, 5],
        ),
        Case("aten::native_batch_norm_backward", [*backward, [True, True, True]]),
        Case("aten::native_batch_norm_backward", [*backward, [False, True, True]]),
        Case("aten::native_batch_norm_backward", [*backward, [True, True, True]], gives=[0]),
        Case("aten::native_batch_norm_backward", [*backward[:7], False, 1e-5, [True, True, True]], kept=True),
    ]


def convolutions() -> list[Case]:
    x, w = uniform(2, 4, 7, 6), uniform(6, 2, 3, 3)
    form = [[2, 1], [1, 1], [1, 1], False, [0, 0], 2]
    dy = torch.convolution(x, w, None, *form)
    turned = uniform(4, 3, 3)
    turned_form = [[2], [1], [1], True, [1], 1]
    line = uniform(2, 4, 5)
    turned_dy = torch.convolution(line, turned, None, *turned_form)
    return [
        Case("aten::convolution_backward", [dy, x, w, [6], *form, [True, True, True]]),
        Case("aten::convolution_backward", [dy, x, w, [0], *form, [False, True, False]]),
        Case("aten::convolution_backward", [dy, x, w, [6], *form, [True, False, True]]),
        Case("aten::convolution_backward", [turned_dy, line, turned, [3], *turned_form, [True, True, True]]),
    ]


def losses() -> list[Case]:
    a, b = uniform(4, 5), uniform(5, 4).t().contiguous()
    is_target = torch.ops.aten.multilabel_margin_loss_forward(a, LABELS, 1)[1]
    cases = []
    for reduction in (0, 1, 2):
        kept = reduction != 1
        g = uniform(4, 5) if reduction == 0 else ONE
        by_sample = uniform(4) if reduction == 0 else ONE
        plane = uniform(2, 4, 5) if reduction == 0 else ONE
        for name, more in (
            ("mse_loss", []),
            ("smooth_l1_loss", [0.7]),
            ("huber_loss", [0.7]),
            ("soft_margin_loss", []),
        ):
            target = SIGNS if name == "soft_margin_loss" else b
            cases += [
                Case(f"aten::{name}", [a, target, reduction, *more], kept),
                Case(f"aten::{name}_backward", [g, a, target, reduction, *more], kept),
            ]
        cases += [
            Case("aten::mse_loss", [a, uniform(5), reduction], kept),
            Case("aten::binary_cross_entropy", [UNIT, UNIT.flip(0), None, reduction], kept),
            Case("aten::binary_cross_entropy", [UNIT, UNIT.flip(0), WEIGHT, reduction], kept),
            Case("aten::binary_cross_entropy_backward", [g, UNIT, UNIT.flip(0), WEIGHT, reduction], kept),
            Case("aten::binary_cross_entropy_with_logits", [a, UNIT, None, WEIGHT, reduction], kept),
            Case("aten::multi_margin_loss", [a, TARGETS.clamp(0), 1, 0.9, WEIGHT, reduction], kept),
            Case("aten::multi_margin_loss_backward", [by_sample, a, TARGETS.clamp(0), 2, 0.9, WEIGHT, reduction], kept),
            Case("aten::multilabel_margin_loss_forward", [a, LABELS, reduction], kept),
            Case("aten::multilabel_margin_loss_backward", [by_sample, a, LABELS, reduction, is_target], kept),
        ]
        for weight in (None, WEIGHT):
            total = torch.ops.aten.nll_loss_forward(a, TARGETS, weight, reduction, -100)[1]
            cases += [
                Case("aten::nll_loss_forward", [a, TARGETS, weight, reduction, -100], kept),
                Case("aten::nll_loss_backward", [by_sample, a, TARGETS, weight, reduction, -100, total], kept),
            ]
        total = torch.ops.aten.nll_loss2d_forward(PIXELS, PIXEL_TARGETS, CHANNELS[0], reduction, 1)[1]
        cases += [
            Case("aten::nll_loss2d_forward", [PIXELS, PIXEL_TARGETS, CHANNELS[0], reduction, 1], kept),
            Case("aten::nll_loss2d_backward", [plane, PIXELS, PIXEL_TARGETS, CHANNELS[0], reduction, 1, total], kept),
        ]
    ignored = torch.full((4,), -100)
    nothing = torch.ops.aten.nll_loss_forward(a, ignored, None, 1, -100)[1]
    cases += [
        Case("aten::mse_loss", [a, b]),
        Case("aten::binary_cross_entropy", [UNIT, UNIT.flip(0)]),
        Case("aten::multi_margin_loss", [a, TARGETS.clamp(0)]),
        Case("aten::nll_loss_forward", [a, ignored, None, 1, -100]),
        Case("aten::nll_loss_backward", [ONE, a, ignored, None, 1, -100, nothing]),
    ]
    return cases


def call(case: Case) -> list[Tensor | None]:
    """What PyTorch gives, a list of results spread out."""
    packet, _, overload = case.op.removeprefix("aten::").partition(".")
    function = getattr(getattr(torch.ops.aten, packet), overload or "default")
    given = [DTYPES[entry.name] if isinstance(entry, Enumerator) else entry for entry in case.args]
    specs = function._schema.arguments
    positional = sum(not spec.kwarg_only for spec in specs)
    keywords = {spec.name: entry for spec, entry in zip(specs[positional:], given[positional:])}
    out = function(*given[:positional], **keywords)
    return list(out) if isinstance(out, (tuple, list)) else [out]


def program_of(cases: list[Case], expected: list[list[Tensor | None]]) -> tuple[Program, dict[str, Tensor]]:
    """All cases in one program: node "caseN" has results "caseN.0", ..."""
    batch: dict[str, Tensor] = {}
    program = Program("cases", "forward", "test")
    for index, (case, results) in enumerate(zip(cases, expected)):
        args = []
        for place, entry in enumerate(case.args):
            if isinstance(entry, Tensor):
                name = f"x{index}.{place}"
                batch[name] = entry
                program.inputs.append(Input(name, "batch", DTYPE_NAMES[entry.dtype], list(entry.shape)))
                args.append(Ref(name))
            else:
                args.append(entry)
        out = [
            None if tensor is None else Result(f"case{index}.{place}", DTYPE_NAMES[tensor.dtype], list(tensor.shape))
            for place, tensor in enumerate(results)
        ]
        program.nodes.append(Node(f"case{index}", case.op, args, out, "forward"))
        for place in case.gives or [place for place, result in enumerate(out) if result is not None]:
            program.outputs.append(Output("result", f"case{index}.{place}", f"case{index}.{place}"))
    return program, batch


@pytest.mark.parametrize("family", [reductions, splits, batch_norms, convolutions, losses], ids=lambda f: f.__name__)
def test_operators_give_the_same_numbers(family: Callable[[], list[Case]], run_tesser: Run, tmp_path: Path) -> None:
    cases = family()
    expected = [call(case) for case in cases]
    program, batch = program_of(cases, expected)
    (tmp_path / "cases.json").write_text(program.to_text(), encoding="utf-8")
    expanded = expand(tmp_path / "cases.json", run_tesser, tmp_path / "expanded.json")
    results = Interpreter(expanded, {}).forward(batch)
    assert list(results) == [output.name for output in program.outputs]
    operators: dict[str, list[str]] = {}
    for node in expanded.nodes:
        operators.setdefault(node.name.partition("/")[0], []).append(node.op)
    for index, case in enumerate(cases):
        where = f"case {index}, {case.op}{[list(a.shape) if isinstance(a, Tensor) else a for a in case.args]}"
        if case.op != "aten::convolution_backward":
            assert (operators[f"case{index}"] == [case.op]) == case.kept, where
        for place in case.gives or range(len(expected[index])):
            reference = expected[index][place]
            if reference is None:
                continue
            result = results[f"case{index}.{place}"]
            half = reference.dtype == torch.bfloat16
            torch.testing.assert_close(
                result,
                reference,
                rtol=8e-3 if half else 2e-5,
                atol=1e-5,
                equal_nan=True,
                msg=lambda message, where=where: f"{where}: {message}",
            )


# ----------------------------------------------------------------------------------------------------------------------
# Whole steps


class Lockstep:
    """Runs the expanded program beside the program; each value that both have is compared, and then taken from the
    program, so that a difference shows at the operator that makes it and is not blown up by those after it."""

    def __init__(self, program: Program, expanded: Program, state: dict[str, Tensor]) -> None:
        self.values: dict[str, Tensor] = {}
        self.compared = 0
        self.worst = (0.0, "")  # against what is allowed, and where
        self._program = Interpreter(program, state, seed=3, observe=self._keep)
        self._expanded = Interpreter(expanded, state, seed=3, observe=self._compare)

    def step(self, batch: dict[str, Tensor]) -> None:
        self.values.clear()
        loss, metrics = self._program.step(batch)
        assert self._expanded.step(batch) == (loss, metrics)
        for name, tensor in self._program.state.items():
            assert torch.equal(tensor, self._expanded.state[name]), name

    def _keep(self, node: Node, results: list[Tensor | None]) -> None:
        for result, tensor in zip(node.out, results):
            if result is not None:
                self.values[result.name] = tensor

    def _compare(self, node: Node, results: list[Tensor | None]) -> None:
        for place, result in enumerate(node.out):
            if result is None or result.name not in self.values:
                continue
            reference, tensor = self.values[result.name], results[place]
            self.compared += 1
            if not torch.equal(reference, tensor):
                same = reference == tensor  # also where both are infinite
                off = torch.where(same, 0, reference.double() - tensor.double()).abs().max().item()
                size = reference.double().abs().max().item()
                # Against what was added up on the way, as the roundings are; nan compares as worst. PyTorch takes the
                # variance of a few nearly equal numbers in float32, the operators here in float64.
                allowed = 2e-4 if "batch_norm" in node.op else 2e-5
                difference = off / max(size, 1e-3) / allowed
                if not difference <= self.worst[0]:
                    self.worst = (difference, f"{node.name} ({node.op})")
            results[place] = reference


@pytest.mark.parametrize("name", [*models.names(), *ARCHITECTURES])
def test_steps_give_the_same_numbers(
    name: str, captured: Callable[[str], Path], batches_of: Callable, run_tesser: Run, tmp_path: Path
) -> None:
    directory = captured(name)
    program = Program.read(directory / "program.json")
    expanded = expand(directory, run_tesser, tmp_path / "program.json")
    assert not REWRITTEN & {node.op for node in expanded.nodes}
    assert expand(tmp_path / "program.json", run_tesser, tmp_path / "again.json").to_text() == expanded.to_text()
    both = Lockstep(program, expanded, read_state(directory, program))
    for batch in batches_of(name, program, 2):
        both.step(batch)
    assert both.compared >= 2 * 0.8 * len(program.nodes)
    assert both.worst[0] <= 1, both.worst
