"""Several workers give the numbers of one, but for the order of sums, and the same bits in every run
(docs/exactness.md).

TESSER_ALL_PLANS=1, as `./x test --plans` sets it, adds a dozen models on 4, 6 and 8 workers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import models
import tesser
from tests.python.commands import train
from tests.python.distributed.runs import trained
from tests.python.models.cases import CASES, PAIRS
from tests.python.models.equality import SEED, differences, write_data

STEPS = 10
# Model and optimizer, workers, kind of plan.
RUNS = [
    ("mlp-adam", 3, "dp"),
    ("alexnet-sgd", 2, "tofu"),
    ("bert-adamw", 2, "default"),
    ("fcn5-sgd", 3, "dp"),
    ("gpt-adamw", 3, "tofu"),
    ("gru_lm-adam", 2, "tofu"),
    ("llama-adam", 2, "tofu"),
    ("lstm_lm-adam", 2, "equalchop"),
    ("resnet18-sgd", 2, "tofu"),
    ("rnn-sgd", 3, "tofu"),
    ("unet-sgd", 2, "dp"),
    ("vit-adamw", 2, "tofu"),
    ("gpt-groups-accumulate", 2, "tofu"),
    ("mlp-clip-both", 2, "tofu"),
    ("gpt-adamw", 4, "default"),
]
DOZEN = [
    "alexnet-sgd", "bert-adamw", "fcn5-sgd", "gpt-adamw", "gru_lm-adam", "llama-adam", "lstm_lm-adam", "mlp-adam",
    "resnet18-sgd", "rnn-sgd", "unet-sgd", "vit-adamw",
]  # fmt: skip
if os.environ.get("TESSER_ALL_PLANS", "") not in ("", "0"):
    RUNS += [(name, workers, "tofu") for name in DOZEN for workers in (4, 6, 8)]
    RUNS = sorted(set(RUNS))
REPEATED = {"mlp-adam", "gpt-adamw", "resnet18-sgd"}


@pytest.mark.parametrize(("name", "workers", "preset"), RUNS, ids=[f"{run[0]}-{run[1]}-{run[2]}" for run in RUNS])
def test_the_numbers_of_one_worker(name: str, workers: int, preset: str, tmp_path: Path) -> None:
    case = {**PAIRS, **CASES}[name]
    program = tmp_path / "step.tesser"
    tesser.capture(case.step(), program)
    write_data(tmp_path / "data", case.samples(STEPS))
    words = ["--steps", STEPS, "--no-shuffle", "--seed", SEED]
    one = trained(program, tmp_path / "data", tmp_path / "one", *words)
    many = trained(program, tmp_path / "data", tmp_path / "many", *words, "--workers", workers, "--preset", preset)
    assert differences(many, one, case.tolerance) == []
    if name in REPEATED:
        again = trained(
            program, tmp_path / "data", tmp_path / "again", *words, "--workers", workers, "--preset", preset
        )
        assert again.losses == many.losses
        assert all(torch.equal(again.state[key], many.state[key]) for key in many.state)


def test_memory_is_foreseen_and_time_is_told(tmp_path: Path) -> None:
    program = tmp_path / "step.tesser"
    tesser.capture(models.load("gpt", "tiny"), program)
    write_data(tmp_path / "data", models.data("gpt", "tiny", samples=32, seed=1))
    run = train(program, tmp_path / "data", "--steps", 4, "--workers", 2, "--preset", "tofu")
    assert run.code == 0, run.errors
    assert run.of("start")[0]["workers"] == 2
    assert "shared memory" in run.of("start")[0]["paths"][0]
    workers = run.of("end")[0]["workers"]
    assert len(workers) == 2
    seconds = sum(event["seconds"] for event in run.of("step"))
    for worker in workers:
        assert worker["sent_bytes"] > 0
        assert 0 < worker["compute_seconds"] <= seconds
        assert 0 <= worker["waiting_seconds"] <= seconds
        assert abs(worker["predicted_peak_bytes"] - worker["peak_bytes"]) <= 0.05 * worker["peak_bytes"]
