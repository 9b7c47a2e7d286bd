"""The client alone, as docs/hub_pytorch.md has it."""

from __future__ import annotations

import re

import pytest
import torch

from tesser.hub import Client, HubError, HubInputError, Key, Numbers, ParameterGroup, Server, Settings
from tests.python.hub.processes import Replicas
from tests.python.hub.training import NONCE, new_job

SETTINGS = Settings(
    replicas=2,
    groups=(ParameterGroup("sgd", momentum=True),),
    keys=(Key("weight", 1000), Key("rows", 60, row_elements=6)),
)


def exchange(rank: int, replicas: int, url: str, job: str) -> torch.Tensor:
    with Client([url], job, NONCE, rank, SETTINGS) as client:
        client.set_initial(0, torch.ones(1000))
        assert client.start() == 0 and not client.is_return
        assert client.paths() == [f"{url}: shared memory (same machine)"]
        gradient, weights = client.gradient(0), client.weights(0)
        for step in range(3):
            gradient.fill_(step + rank)
            client.push(0)
            client.push_rows(1, torch.tensor([rank, 7]), torch.full((2, 6), 1.0))
            client.commit([Numbers(learning_rate=0.1, momentum=0.5)])
            client.wait_all()
        (momentum,), updates = client.read_state(0)
        assert updates == 3 and client.state() == "running"
        rows = client.weights(1).clone()
    del client  # memory stays as long as tensors show it
    assert momentum.tolist() == pytest.approx([0.5 * 0.25 + 1.5 * 0.5 + 2.5] * 1000)
    assert rows.view(10, 6)[:, 0].tolist() == pytest.approx([-0.2125, -0.2125, *[0.0] * 5, -0.425, 0.0, 0.0])
    return weights.clone()


def test_two_workers(replicas: Replicas) -> None:
    with Server(processors="0") as server:
        for weights in replicas.run(exchange, 2, server.url, new_job()):
            # Momentum of averages 0.5, 1.5, 2.5.
            assert weights.tolist() == pytest.approx([1 - 0.1 * (0.5 + 1.75 + 3.375)] * 1000)
    server.close()  # again, which does nothing


def lose(rank: int, replicas: int, url: str, job: str) -> str:
    if rank == 0:
        with pytest.raises(RuntimeError, match="the script's own"), Client([url], job, NONCE, rank, SETTINGS) as client:
            client.start()
            raise RuntimeError("the script's own")
        del client
        return ""
    client = Client([url], job, NONCE, rank, SETTINGS)
    client.start()
    for key in range(2):
        client.push_none(key)
    client.commit([Numbers(learning_rate=0.1)])
    with pytest.raises(HubError) as caught:
        client.wait_all()
    return str(caught.value)


def test_an_exception_is_a_loss_and_a_process_goes_on(replicas: Replicas, hub: str) -> None:
    _, message = replicas.run(lose, 2, hub, new_job())
    assert re.search(r"rank 0 \(\S+, process \d+\) is lost", message), message


def test_wrong_sizes_are_refused(hub: str) -> None:
    settings = Settings(
        replicas=1, groups=(ParameterGroup(),), keys=(Key("weight", 10), Key("rows", 6, row_elements=3))
    )
    with Client([hub], new_job(), NONCE, 0, settings) as client:
        with pytest.raises(ValueError, match=r"weight: expected 10 contiguous elements of float32, not 9"):
            client.set_initial(0, torch.zeros(9))
        client.start()
        with pytest.raises(HubInputError, match="2 rows to give of 12 bytes each"):
            client.push_rows(1, torch.tensor([2]), torch.zeros(1, 3))
        with pytest.raises(ValueError, match="expected int64 rows"):
            client.push_rows(1, torch.tensor([1]), torch.zeros(1, 3).half())
        with pytest.raises(ValueError, match="numbers of 2 parameter groups, where there are 1"):
            client.commit([Numbers(0.1), Numbers(0.1)])
