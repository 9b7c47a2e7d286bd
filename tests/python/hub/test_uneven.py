"""Replicas that do not take the same number of steps: whoever is left ends with an error that names who has gone, and
whoever was done ends well. Colocated hubs, so that each replica needs the other's process."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection

import pytest
import torch

import tesser.hub
from tests.python.hub.processes import context
from tests.python.hub.test_wrap import free_port
from tests.python.hub.training import TRAININGS

TRAINING = TRAININGS["convolutions, channels last"]
# What the design allows for a loss to be known, and for reading it on a machine that does other things.
SECONDS = 15.0
STEPS, FEWER = 6, 4


def train(rank: int, how: str, report: Connection) -> None:
    torch.manual_seed(0)
    model = TRAINING.model()
    model, optimizer = tesser.hub.wrap(model, TRAINING.optimizer(model), hub="colocated")
    steps = STEPS if rank == 0 or how == "evaluates" else FEWER
    for step in range(steps):
        optimizer.zero_grad()
        if how == "evaluates" and rank == 0 and step == 2:
            until = time.monotonic() + 0.5
            with torch.no_grad():
                while time.monotonic() < until:
                    TRAINING.loss(model.eval(), 50, 0)
            model.train()
        TRAINING.loss(model, step, rank).backward()
        if how == "changes weights" and rank == 1 and step == steps - 1:
            model.classifier.weight.data.clamp_(-0.01, 0.01)
        optimizer.step()
        report.send(("step", step + 1, time.monotonic()))
    if how == "fails" and rank == 1:
        raise RuntimeError("the script's own")
    weights = {name: each.detach().numpy().copy() for name, each in model.named_parameters()}
    optimizer.close()
    report.send(("end", weights, time.monotonic()))


def work(rank: int, how: str, port: int, report: Connection) -> None:
    torch.set_num_threads(1)
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        train(rank, how, report)
    except Exception as error:
        report.send(("error", f"{type(error).__name__}: {error}", time.monotonic()))
        raise


def alone(steps: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = TRAINING.model()
    optimizer = TRAINING.optimizer(model)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(2):
            (TRAINING.loss(model, step, rank) / 2).backward()
        optimizer.step()
    return dict(model.named_parameters())


def run(how: str) -> list[tuple[int, object, float]]:
    """Of each rank: its exit code, what it reported last, and how long after the last step of rank 1."""
    port = free_port()
    replicas, reports = [], []
    for rank in range(2):
        here, there = context.Pipe()
        replicas.append(context.Process(target=work, args=(rank, how, port, there)))
        replicas[-1].start()
        there.close()
        reports.append(here)
    ends: list[list[tuple]] = [[], []]
    try:
        for rank in (1, 0):
            while True:
                assert reports[rank].poll(4 * SECONDS), f"rank {rank} has not ended; it said {ends[rank]}"
                try:
                    ends[rank].append(reports[rank].recv())
                except EOFError:
                    break
            replicas[rank].join(4 * SECONDS)
        last = max(when for kind, _, when in ends[1] if kind == "step")
        return [(each.exitcode, end[-1][1], end[-1][2] - last) for each, end in zip(replicas, ends)]
    finally:
        for each in replicas:
            each.kill()


def check_weights(seen: object, steps: int) -> None:
    for name, value in alone(steps).items():
        torch.testing.assert_close(torch.from_numpy(seen[name]), value.detach(), rtol=1e-4, atol=1e-5)


def test_who_leaves_ends_well_and_the_other_is_told() -> None:
    (code, error, seconds), (of_leaver, weights, _) = run("leaves")
    assert code == 1 and seconds < SECONDS
    assert "rank 1 has left after step 4: all replicas must take the same number of steps" in error
    assert of_leaver == 0
    check_weights(weights, FEWER)


@pytest.mark.parametrize("how", ["fails", "changes weights"])
def test_who_fails_is_named_by_the_other(how: str) -> None:
    (code, error, seconds), (of_other, reason, _) = run(how)
    assert code == of_other == 1 and seconds < SECONDS
    assert "HubError" in error and "rank 1 (" in error and "is lost" in error, error
    assert ("the script's own" if how == "fails" else "classifier.weight was changed by hand") in reason


def test_a_pause_is_no_loss() -> None:
    ends = run("evaluates")
    assert [code for code, _, _ in ends] == [0, 0], ends
    for _, weights, _ in ends:
        check_weights(weights, STEPS)
