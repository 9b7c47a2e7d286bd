"""Twenty steps by tesser give the losses, parameters and buffers of PyTorch's own loop (docs/exactness.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tesser
from tests.python.models.cases import CASES, PAIRS, Case
from tests.python.models.equality import (
    STEPS,
    Run,
    Tolerance,
    differences,
    train_with_interpreter,
    train_with_pytorch,
    train_with_tesser,
    write_data,
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", PAIRS)
def test_every_model_with_every_optimizer(name: str, tmp_path: Path) -> None:
    compare_with_pytorch(PAIRS[name], tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_every_option(name: str, tmp_path: Path) -> None:
    ours = compare_with_pytorch(CASES[name], tmp_path)
    assert_again_equal(ours, tmp_path, threads=1)


@pytest.mark.parametrize(
    "name", ["gpt-groups-accumulate", "lstm_lm-sgd-clip-norm", "resnet50-nesterov", "unet-clip-value"]
)
def test_two_threads_give_the_same_bits_in_every_run(name: str, tmp_path: Path) -> None:
    ours = compare_with_pytorch(CASES[name], tmp_path, threads=2)
    assert_again_equal(ours, tmp_path, threads=2)


def assert_again_equal(ours: Run, directory: Path, threads: int) -> None:
    again = train_with_tesser(directory / "step.tesser", directory / "data", directory / "again", threads)
    assert again.losses == ours.losses
    assert again.state.keys() == ours.state.keys()
    assert [key for key, tensor in ours.state.items() if not torch.equal(tensor, again.state[key])] == []


def test_statistics_over_many_elements_are_as_exact_as_pytorchs(tmp_path: Path) -> None:
    """Sums over tens of thousands of elements, added one after the other in float32, are wrong by some 1e-5; those of
    the tiny models are too short to tell."""
    options = {"batch": 32, "image": 64, "small_stem": True, "blocks": (1, 1)}
    case = Case("resnet18", lambda module: torch.optim.SGD(module.parameters(), lr=1e-4), options)
    compare_with_pytorch(case, tmp_path, steps=2, tolerance=Tolerance(loss=1e-6, relative=1e-6, absolute=1e-6))


def compare_with_pytorch(
    case: Case, directory: Path, threads: int = 1, steps: int = STEPS, tolerance: Tolerance | None = None
) -> Run:
    """Fails with each loss and tensor that differs, and says which side of the program's file is to blame; returns
    tesser's run."""
    tolerance = tolerance or case.tolerance
    step, samples = case.step(), case.samples(steps)
    program, data = directory / "step.tesser", directory / "data"
    tesser.capture(step, program)
    write_data(data, samples)
    ours = train_with_tesser(program, data, directory / "run", threads, steps)
    theirs = train_with_pytorch(step, samples)
    assert len(theirs.losses) == steps
    if found := differences(ours, theirs, tolerance):
        interpreted = train_with_interpreter(program, step, samples)
        captured_right = not differences(interpreted, theirs, tolerance)
        blamed = "the runtime" if captured_right else "capture: its program interpreted in PyTorch differs too"
        pytest.fail("\n".join([f"the fault lies in {blamed}", *found]), pytrace=False)
    return ours


OPTIONS_THAT_MATTER = {
    "alexnet-momentum-decay": {"weight_decay": 0.0},
    "mlp-dampening": {"dampening": 0.0},
    "resnet50-nesterov": {"nesterov": False},
    "rnn-adam-amsgrad": {"amsgrad": False},
    "mobilenet_v2-adam-decay": {"weight_decay": 0.0},
    "bert-adamw-clip-norm": {"weight_decay": 0.0},
    "mlp-adamw": {"eps": 2e-5},
}


@pytest.mark.parametrize("name", OPTIONS_THAT_MATTER)
def test_the_comparison_sees_an_option_that_is_left_out(name: str) -> None:
    case = CASES[name]
    samples = case.samples(STEPS)
    right = train_with_pytorch(case.step(), samples)
    step = case.step()
    for group in step.optimizer.param_groups:
        group.update(OPTIONS_THAT_MATTER[name])
    assert differences(train_with_pytorch(step, samples), right, case.tolerance)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gpt-groups-accumulate", {"accumulate": 1}),
        ("bert-adamw-clip-norm", {"clip_norm": None}),
        ("unet-clip-value", {"clip_value": None}),
        ("wresnet152-clip-largest", {"clip_norm_type": 2.0}),
        ("llama-adamw-cosine", {"schedule": None}),
        ("resnet18-one-cycle", {"schedule": None}),
    ],
)
def test_the_comparison_sees_a_setting_of_the_step_that_is_left_out(name: str, change: dict[str, object]) -> None:
    case = CASES[name]
    samples = case.samples(STEPS)
    right = train_with_pytorch(case.step(), samples)
    wrong = train_with_pytorch(replace(case.step(), **change), samples)
    assert differences(wrong, right, case.tolerance)
