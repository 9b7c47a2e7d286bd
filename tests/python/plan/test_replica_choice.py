"""How workers are divided into replicas of a partitioned step (docs/formats/plan.md): each division wins somewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import models
import tesser
from tests.python.commands import run_tesser, tesser_output, train
from tests.python.models.equality import write_data

WORKERS = 4


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "gpt.tesser"
    tesser.capture(models.load("gpt", "tiny"), path)
    return path


def plan_of(program: Path, plan: Path, *words: object) -> dict:
    tesser_output("plan", program, "-o", plan, *words)
    return json.loads(plan.read_text())


def peak(program: Path, plan: Path, *words: object) -> int:
    return plan_of(program, plan, *words)["predicted"]["peak_bytes"]


def division(program: Path, plan: Path, *words: object) -> tuple[int, int]:
    """Replicas, and workers of each."""
    found = plan_of(program, plan, "--workers", WORKERS, "--replicas", "auto", *words)
    return found["options"].get("replicas", 1), found["workers"]


def test_each_division_wins_somewhere(program: Path, tmp_path: Path) -> None:
    plan = tmp_path / "a.plan"
    alone = peak(program, plan, "--workers", 1)
    half = peak(program, plan, "--workers", 2, "--preset", "tofu")
    # Where a worker can hold all, replicas need no exchange but that of gradients.
    assert division(program, plan, "--memory", alone) == (4, 1)
    assert division(program, plan, "--memory", alone - 1) == (2, 2)
    assert division(program, plan, "--memory", half * 3 // 4) == (1, 4)
    # Gradients as large as all weights over a slow network cost more than the activations of few samples.
    links = tmp_path / "slow.json"
    links.write_text(json.dumps({"links": [{"name": "network", "parts": 4, "bandwidth": 1e6, "latency": 1e-6}]}))
    wide = tmp_path / "wide.tesser"
    tesser.capture(models.load("mlp", "bench", batch=2), wide)
    assert division(wide, plan, "--topology", links) == (1, 4)


def test_a_run_takes_the_division(program: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_data(data, models.data("gpt", "tiny", samples=64, seed=1))
    bound = ["--memory", peak(program, tmp_path / "1.plan", "--workers", 1) - 1]
    words = ["--steps", 2, "--seed", 1]
    by_itself = train(program, data, *words, "--workers", WORKERS, "--replicas", "auto", *bound)
    assert by_itself.code == 0, by_itself.errors
    start = by_itself.of("start")[0]
    assert (start["replicas"], start["workers"]) == (2, WORKERS)
    assert any("2 x 2" in event["message"] for event in by_itself.of("note"))
    assert division(program, tmp_path / "some.plan", *bound) == (2, 2)
    planned = train(program, data, *words, "--plan", tmp_path / "some.plan")
    assert planned.code == 0, planned.errors
    forced = train(program, data, *words, "--replicas", 2, "--workers", 2, *bound)
    assert planned.losses == forced.losses == by_itself.losses
    one = train(program, data, *words, "--plan", tmp_path / "some.plan", "--replicas", 1)
    assert (one.of("start")[0].get("replicas", 1), one.of("start")[0]["workers"]) == (1, 2)
    refused = run_tesser("train", program, "--data", data, "--plan", tmp_path / "some.plan", "--replicas", "auto")
    assert refused.code == 2 and "a plan says itself" in refused.errors
