"""Checkpoints move between a hub and plain PyTorch, in torch's format."""

from __future__ import annotations

import io

import pytest
import torch

from tests.python.hub.processes import Replicas
from tests.python.hub.test_equality import check
from tests.python.hub.training import TRAININGS, Result, by_hub, new_job, train

BEGIN, END = range(3), range(3, 6)
NAMES = ("language, tied", "momentum in groups, one cycle", "unused")


def plainly(rank: int, replicas: int, name: str, steps: range, start: dict | None = None) -> Result:
    """Without a hub."""
    training = TRAININGS[name]
    torch.manual_seed(0)
    model = training.model()
    optimizer = training.optimizer(model)
    if start:
        model.load_state_dict(start["model"])
        optimizer.load_state_dict(start["optimizer"])
    losses = train(training, rank, model, optimizer, steps)
    return Result(losses, model.state_dict(), optimizer.state_dict())


def through_a_file(result: Result, after: bool) -> dict:
    file = io.BytesIO()
    torch.save({"model": result.model, "optimizer": result.optimizer, "after": after}, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("after", [False, True], ids=["before wrap", "after wrap"])
@pytest.mark.parametrize("name", NAMES)
def test_from_plain_pytorch(replicas: Replicas, hub: str, name: str, after: bool) -> None:
    (begun,) = replicas.run(plainly, 1, name, BEGIN)
    start = through_a_file(begun, after)
    seen = replicas.run(by_hub, 1, name, END, new_job(), start, hub=hub)
    check(seen, replicas.run(plainly, 1, name, END, start))


@pytest.mark.parametrize("name", NAMES)
def test_to_plain_pytorch(replicas: Replicas, hub: str, name: str) -> None:
    (begun,) = replicas.run(by_hub, 1, name, BEGIN, new_job(), hub=hub)
    (whole,) = replicas.run(plainly, 1, name, range(6))
    whole.losses = whole.losses[3:]
    check(replicas.run(plainly, 1, name, END, through_a_file(begun, False)), [whole])


@pytest.mark.parametrize("after", [False, True], ids=["before wrap", "after wrap"])
def test_a_run_in_two_parts_is_one_run(replicas: Replicas, hub: str, after: bool) -> None:
    name = "language, tied"
    whole = replicas.run(by_hub, 2, name, range(6), new_job(), hub=hub)
    begun = replicas.run(by_hub, 2, name, BEGIN, new_job(), hub=hub)
    start = through_a_file(begun[0], after)
    rest = replicas.run(by_hub, 2, name, END, new_job(), start, hub=hub, network=True)
    for one, other in zip(rest, whole):
        assert one.losses == other.losses[3:]
        assert all(torch.equal(value, other.model[key]) for key, value in one.model.items())
