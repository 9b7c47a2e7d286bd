"""A worker that is killed and started again has rank 0's buffers, rank 0 its own: as if nobody had been lost."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch

import tesser.hub
from tests.python.hub.processes import SECONDS, context
from tests.python.hub.test_as_written import loss, normalised
from tests.python.hub.training import NONCE, new_job

STEPS, LOSS = 6, 3


def work(rank: int, hub: str, job: str, dies: bool, report: Connection) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    (model,) = normalised()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = tesser.hub.wrap(
        model, optimizer, hub=hub, job=job, nonce=NONCE, rank=rank, replicas=2, on_loss="wait"
    )
    for step in range(optimizer.steps_done, STEPS):
        if dies and step == LOSS:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss(model, step, rank).backward()
        optimizer.step()
    report.send({name: value.numpy().copy() for name, value in model.state_dict().items()})
    optimizer.close()


def run(hub: str, lost: int | None) -> list[dict[str, np.ndarray]]:
    """State of each rank at the end."""
    job, running = new_job(), []

    def start(rank: int, dies: bool) -> tuple:
        here, there = context.Pipe()
        process = context.Process(target=work, args=(rank, hub, job, dies, there))
        process.start()
        there.close()
        running.append(process)
        return here, process

    try:
        started = [start(rank, rank == lost) for rank in range(2)]
        if lost is not None:
            started[lost][1].join(SECONDS)
            started[lost] = start(lost, False)
        assert all(report.poll(SECONDS) for report, _ in started)
        return [report.recv() for report, _ in started]
    finally:
        for process in running:
            process.join(SECONDS)
            process.kill()


@pytest.fixture(scope="module")
def undisturbed(hub: str) -> list[dict[str, np.ndarray]]:
    return run(hub, None)


@pytest.mark.parametrize("lost", [0, 1])
def test_buffers_of_who_returns(hub: str, undisturbed: list, lost: int) -> None:
    for rank, state in enumerate(run(hub, lost)):
        for name, value in state.items():
            assert np.array_equal(value, undisturbed[rank][name]), f"{name} at rank {rank}"
