"""Programs cut by a plan and lowered give the numbers of the whole program, all workers in one process.

Each program runs two steps with one number of workers and one preset, some also with a plan drawn at random; with
TESSER_ALL_PLANS=1, as `./x test --plans` sets it, ten steps with every number of workers and the presets tofu and
default. TESSER_RANDOM_PLANS=A:B draws the plans of these seeds for every program.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import models
from models import architectures
from tesser.interpreter import Interpreter, read_state
from tesser.lowered import LoweredInterpreter
from tesser.program import STATE_FILE, STEP_FILE, Program, ProgramError
from tests.python.models.equality import TOLERANCES, Run, Tolerance, binary, differences

SEED = 3
NAMES = [*models.names(), *architectures.names()]
DRAWN = ["mlp", "resnet18", "lstm_lm", "gpt", "unet", "gru_lm"]  # with plans drawn at random
WORKERS = [2, 3, 4, 6, 8]
PRESETS = ["tofu", "default", "dp", "megatron", "equalchop"]
EPSILON = 1e-5
ALL_PLANS = os.environ.get("TESSER_ALL_PLANS", "") not in ("", "0")
STEPS = 10 if ALL_PLANS else 2

# Deep networks of convolutions with ReLU, as in tests/python/models/cases.py: where the input of a ReLU is zero but for
# rounding, two right runs differ.
SWITCHING = Tolerance(loss=1e-5, relative=1e-4, absolute=1e-5)
# Where a gradient is as small as Adam's eps, an error of 5e-8 in it is one of 0.005 in the quotient; rates are 1e-3.
ADAM = Tolerance(loss=1e-5, relative=1e-5, absolute=5e-6)
# Rates of networks of convolutions with ReLU: where the input of a ReLU crosses zero in one run and not in the other,
# the two go on from states that differ by that element, and after ten steps at a rate of 0.1 by percents.
SLOW_RATES = {"tesser::sgd": 1e-3, "tesser::adam": 1e-4}
SLOWER = {"inception_v3": 1e-5}
# Batches left out, because the whole program's own gradients change by percents where its state changes by 3e-7.
LEFT_OUT = {"inception_v3": 2}


def _plans() -> list[tuple[str, int, str]]:
    if ALL_PLANS:
        return [(name, workers, preset) for name in NAMES for workers in WORKERS for preset in ("tofu", "default")]
    # The more workers, the longer it takes; every number of workers meets several presets.
    counts = {name: WORKERS for name in models.names()} | {
        name: [2, 3, 2, 6, 2, 4, 3, 2, 3, 2] for name in architectures.names()
    }
    return [
        (name, counts[name][index % len(counts[name])], PRESETS[(index + index // 5) % 5])
        for index, name in enumerate(NAMES)
    ]


def _random_plans() -> list[tuple[str, int, str]]:
    """Plans from all that descriptions allow, drawn by tests/partition/random_plan.cc."""
    if seeds := os.environ.get("TESSER_RANDOM_PLANS", ""):
        first, _, last = seeds.partition(":")
        return [(name, 2 + seed % 4, f"random-{seed}") for seed in range(int(first), int(last)) for name in NAMES]
    return [(name, 2 + index % 4, f"random-{index}") for index, name in enumerate(DRAWN)]


@dataclass
class Whole:
    """A program, and what it gives uncut."""

    directory: Path
    program: Program
    batches: list[dict[str, Tensor]]
    metrics: list[dict[str, float]]
    run: Run
    tolerance: Tolerance


def _settle(program: Program, state: dict[str, Tensor]) -> Tolerance:
    """Makes any two right runs agree: Adam's quotient of a gradient that is zero but for rounding (the bias of
    attention's keys) is noise unless eps is well above it, and few inputs of a ReLU should lie near zero. Returns
    what then may differ."""
    tolerance = TOLERANCES[torch.float32]
    for node in program.nodes:
        if node.op == "tesser::adam":
            node.args[9] = max(node.args[9], EPSILON)
            tolerance = ADAM
    shifts = [name.replace("running_mean", "bias") for name in state if name.endswith("running_mean")]
    for name in shifts:
        state[name].fill_(2.5)
    if {"aten::convolution", "aten::relu"} <= {node.op for node in program.nodes}:
        slow = min(SLOW_RATES[node.op] for node in program.nodes if node.op in SLOW_RATES)
        slow = SLOWER.get(program.name, slow)
        program.schedules = [entry | {"rate": min(entry["rate"], slow)} for entry in program.schedules]
    return SWITCHING if shifts else tolerance


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    """Python looks for cycles after every few hundred objects, and there are millions in what is read here."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def whole_of(
    captured: Callable[[str], Path], batches_of: Callable, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Whole]:
    directory = tmp_path_factory.mktemp("settled")
    known: dict[str, Whole] = {}

    def make(name: str) -> Whole:
        if name not in known:
            torch.set_num_threads(1)
            program = Program.read(captured(name) / STEP_FILE)
            state = read_state(captured(name), program)
            tolerance = _settle(program, state)
            settled = directory / f"{name}.tesser"
            settled.mkdir()
            (settled / STEP_FILE).write_text(program.to_text(), encoding="utf-8")
            save_file(state, settled / STATE_FILE)
            run = Interpreter(program, state, seed=SEED)
            left_out = LEFT_OUT.get(name, 0)
            batches = batches_of(name, program, left_out + STEPS)[left_out:]
            results = [run.step(batch) for batch in batches]
            known[name] = Whole(
                directory=settled,
                program=program,
                batches=batches,
                metrics=[metrics for _, metrics in results],
                run=Run([loss for loss, _ in results], run.state),
                tolerance=tolerance,
            )
        return known[name]

    return make


@pytest.fixture(scope="session")
def lowered(
    whole_of: Callable[[str], Whole], run_tesser: Callable, tmp_path_factory: pytest.TempPathFactory
) -> Callable:
    """NAME.lowered of a program of whole_of."""
    directory = tmp_path_factory.mktemp("lowered")

    def plan(name: str, workers: int, preset: str, *words: object) -> Path:
        output = directory / f"{name}-{workers}-{preset}.plan"
        if not output.exists():
            program = whole_of(name).directory
            if preset.startswith("random-"):
                words = [program, workers, preset.removeprefix("random-"), output]
                subprocess.run([binary().parent / "random_plan", *map(str, words)], check=True, timeout=120)
                return output
            outcome = run_tesser("plan", program, "--workers", workers, "--preset", preset, *words, "-o", output)
            assert outcome.returncode == 0, outcome.stderr
        return output

    def make(name: str, workers: int, preset: str) -> Path:
        output = directory / f"{name}-{workers}-{preset}.lowered"
        if not output.exists():
            words = []
            if preset == "default":
                # Without a bound, programs as small as these are mostly replicated; what tofu's plan needs is enough.
                tofu = json.loads(plan(name, workers, "tofu").read_text())
                words = ["--memory", tofu["predicted"]["peak_bytes"]]
            outcome = run_tesser("lower", plan(name, workers, preset, *words), "-o", output)
            assert outcome.returncode == 0, outcome.stderr
        return output

    return make


def train(whole: Whole, directory: Path) -> tuple[LoweredInterpreter, Run, list[dict[str, float]]]:
    run = LoweredInterpreter.open(directory, state=whole.directory, seed=SEED)
    results = [run.step(batch) for batch in whole.batches]
    return run, Run([loss for loss, _ in results], run.state), [metrics for _, metrics in results]


def _without(run: Run, names: set[str]) -> Run:
    return Run(run.losses, {name: tensor for name, tensor in run.state.items() if name not in names})


def check(whole: Whole, directory: Path) -> None:
    run, many, metrics = train(whole, directory)
    of_optimizer = {value.name for value in whole.program.inputs if value.role == "optimizer_state"}
    assert differences(_without(many, of_optimizer), _without(whole.run, of_optimizer), whole.tolerance) == []
    for name in of_optimizer:
        # Gradients: an element's error is that of the terms it sums, which may cancel.
        ours, theirs = many.state[name].double(), whole.run.state[name].double()
        allowed = whole.tolerance.absolute + whole.tolerance.relative * theirs.abs().max()
        assert (ours - theirs).abs().max() <= allowed, name
    for ours, theirs in zip(metrics, whole.metrics, strict=True):
        assert ours == pytest.approx(theirs, rel=whole.tolerance.loss, abs=1e-7)
    index = json.loads((directory / "lowering.json").read_text())
    assert run.transferred_bytes == index["bytes"]
    plan = json.loads(directory.with_suffix(".plan").read_text())
    assert plan["predicted"]["bytes_per_step"] == index["bytes"]
    assert index["bytes"] > 0 or "-default." in directory.name  # which may replicate all of it


@pytest.mark.parametrize(("name", "workers", "preset"), _plans(), ids=lambda part: str(part))
def test_the_numbers_of_the_whole_program(
    name: str, workers: int, preset: str, whole_of: Callable[[str], Whole], lowered: Callable[..., Path]
) -> None:
    check(whole_of(name), lowered(name, workers, preset))


@pytest.mark.parametrize(("name", "workers", "preset"), _random_plans(), ids=lambda part: str(part))
def test_plans_drawn_at_random(
    name: str, workers: int, preset: str, whole_of: Callable[[str], Whole], lowered: Callable[..., Path]
) -> None:
    check(whole_of(name), lowered(name, workers, preset))


@pytest.mark.parametrize(("name", "preset"), [("gpt2", "dp"), ("unet", "tofu"), ("vit", "dp"), ("vit", "equalchop")])
def test_fewer_samples_than_workers(
    name: str, preset: str, whole_of: Callable[[str], Whole], lowered: Callable[..., Path]
) -> None:
    assert len(next(iter(whole_of(name).batches[0].values()))) < 8
    check(whole_of(name), lowered(name, 8, preset))


@pytest.mark.parametrize(("name", "workers", "preset"), [("gpt", 3, "tofu"), ("resnet18", 6, "default")])
def test_a_run_repeats_to_the_bit(
    name: str, workers: int, preset: str, whole_of: Callable[[str], Whole], lowered: Callable[..., Path]
) -> None:
    first, second = (train(whole_of(name), lowered(name, workers, preset))[1] for _ in range(2))
    assert first.losses == second.losses
    assert first.state.keys() == second.state.keys() >= whole_of(name).run.state.keys()
    assert all(torch.equal(tensor, second.state[key]) for key, tensor in first.state.items())


class TestErrors:
    """Of programs that no tesser writes."""

    @pytest.fixture
    def directory(self, lowered: Callable[..., Path], tmp_path: Path) -> Path:
        return Path(shutil.copytree(lowered("mlp", 2, "dp"), tmp_path / "mlp.lowered"))

    def change(self, directory: Path, worker: int, change: Callable[[Program], None]) -> None:
        path = directory / f"worker-{worker}.json"
        program = Program.read(path)
        change(program)
        path.write_text(program.to_text(), encoding="utf-8")

    def test_workers_that_report_another_loss(self, directory: Path, whole_of: Callable[[str], Whole]) -> None:
        def take_the_largest_part(program: Program) -> None:
            next(node for node in program.nodes if node.op == "tesser::reduce").args[1] = "max"

        self.change(directory, 1, take_the_largest_part)
        with pytest.raises(ProgramError, match=r"worker 1 reports \([\d.]+, .*\), worker 0 \([\d.]+, "):
            train(whole_of("mlp"), directory)

    def test_workers_that_wait_for_ever(self, directory: Path, whole_of: Callable[[str], Whole]) -> None:
        def send_nothing(program: Program) -> None:
            program.nodes = [node for node in program.nodes if node.op not in ("tesser::send", "tesser::sent")]

        self.change(directory, 0, send_nothing)
        with pytest.raises(
            ProgramError, match=r"all workers wait: worker 0: receive .*; worker 1: receive .* waits for transfer \d+$"
        ):
            train(whole_of("mlp"), directory)

    @pytest.mark.parametrize(
        "text",
        ["", "[]", '{"format":"tesser.plan","version":1}', '{"format":"tesser.lowered","version":2,"workers":0}'],
    )
    def test_what_is_no_index(self, text: str, directory: Path, whole_of: Callable[[str], Whole]) -> None:
        (directory / "lowering.json").write_text(text)
        with pytest.raises(ProgramError, match=r"lowering\.json: "):
            train(whole_of("mlp"), directory)
