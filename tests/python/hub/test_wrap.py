"""What wrap() refuses and what it agrees on, and what an optimizer refuses later."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import tesser.hub
from tesser.hub import freed_memory
from tesser.hub.error import HubError, HubInputError
from tests.python.hub.processes import Replicas
from tests.python.hub.training import NONCE, new_job


def wrapped(hub: str, model: nn.Module, optimizer: torch.optim.Optimizer, **options: object) -> tuple:
    return tesser.hub.wrap(model, optimizer, hub=hub, job=new_job(), nonce=NONCE, rank=0, replicas=1, **options)


def sgd(model: nn.Module, **options: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


def shares_memory() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight.data = model[0].weight.data
    return model


class Overlapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3).expand(2, 3))


REFUSED: dict[str, tuple[Callable[[], tuple], str]] = {
    "optimizer": (
        lambda: (model := nn.Linear(2, 2), torch.optim.Adagrad(model.parameters())),
        "does not update as Adagrad does; it has torch.optim.SGD, Adam and AdamW",
    ),
    "dtype": (
        lambda: (model := nn.Linear(2, 2).double(), sgd(model)),
        "weight is torch.float64; .* float32 parameters",
    ),
    "device": (lambda: (model := nn.Linear(2, 2, device="meta"), sgd(model)), "weight is on meta"),
    "memory": (lambda: (model := shares_memory(), sgd(model)), r"0\.weight and 1\.weight are two parameters"),
    "overlap": (lambda: (model := Overlapping(), sgd(model)), "weight has holes or overlaps in memory"),
    "nothing": (lambda: (model := nn.Linear(2, 2).requires_grad_(False), sgd(model)), "no parameter of the optimizer"),
    "differentiable": (lambda: (model := nn.Linear(2, 2), sgd(model, differentiable=True)), "differentiable=True"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_exchanged_is_refused(hub: str, what: str) -> None:
    make, message = REFUSED[what]
    with pytest.raises(HubInputError, match=message):
        wrapped(hub, *make())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_dtype": torch.float64}, "gradients travel as one of torch.float32"),
        ({"on_loss": "ignore"}, "on_loss is 'ignore'; it is one of stop, continue, wait"),
        ({"chunk_bytes": 100}, "chunks of 100 bytes"),
        ({"clip_norm": -1.0}, "norm to clip gradients to must be positive"),
        ({"nonce": "short"}, "its nonce 8 or more"),
        ({"rank": 3}, "rank 3 of 1 replicas"),
        ({"hub": "colocated", "on_loss": "wait"}, "a colocated hub dies with its worker"),
        ({"job": None, "on_loss": "wait"}, "a worker that returns must know the job and its nonce"),
    ],
)
def test_settings_that_cannot_be_are_refused(hub: str, options: dict, message: str) -> None:
    model = nn.Linear(2, 2)
    given = {"hub": hub, "job": new_job(), "nonce": NONCE, "rank": 0, "replicas": 1} | options
    with pytest.raises(HubInputError, match=message):
        tesser.hub.wrap(model, sgd(model), **given)


def test_without_torchrun_the_message_says_what_to_give(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(2, 2)
    for variable in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TESSER_HUB_NONCE"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(HubInputError, match=r"RANK is ''\nWhat to do: .*rank= to tesser.hub.wrap"):
        tesser.hub.wrap(model, sgd(model), hub=hub)
    with pytest.raises(HubInputError, match="nonce= or TESSER_HUB_NONCE would be agreed on there"):
        tesser.hub.wrap(model, sgd(model), hub=hub, job="a", rank=0, replicas=1)
    with pytest.raises(HubInputError, match="colocated hubs find one another there"):
        tesser.hub.wrap(model, sgd(model), hub="colocated", rank=0, replicas=1)


def test_a_hub_that_is_not_there_is_named() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(HubError, match=r"127\.0\.0\.1:1"):
        wrapped("http://127.0.0.1:1", model, sgd(model))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tesser.hub import library

    monkeypatch.setenv("TESSER_HUB_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(HubInputError, match=r"none.so\nWhat to do: build it with ./x build"):
        library.find()


def backward(model: nn.Module) -> None:
    model(torch.ones(3, 2)).sum().backward()


def test_gradients_changed_after_they_have_gone_are_refused(hub: str) -> None:
    model = nn.Linear(2, 2)
    model, optimizer = wrapped(hub, model, sgd(model))
    backward(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with pytest.raises(HubInputError, match=r"gradient of weight was changed after it had gone.*\n.*clip_norm= of"):
        optimizer.step()


def test_gradients_kept_may_be_changed(hub: str) -> None:
    model = nn.Linear(2, 2)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    model, optimizer = wrapped(hub, model, sgd(model))
    with optimizer.no_sync():
        backward(model)
    for each in model.parameters():
        each.grad.fill_(2.0)
    optimizer.step()
    for name, each in model.state_dict().items():
        torch.testing.assert_close(each, before[name] - 0.2)
    optimizer.close()


def test_sparse_gradients_of_tied_weights_are_refused(hub: str) -> None:
    model = nn.ModuleList([nn.Embedding(5, 2, sparse=True), nn.Embedding(5, 2)])
    model[1].weight = model[0].weight
    model, _optimizer = wrapped(hub, model, sgd(model))
    with pytest.raises(HubInputError, match=r"0\.weight has a sparse gradient.*\nWhat to do: sparse=False"):
        model[0](torch.tensor([1])).sum().backward()


def test_what_a_job_cannot_change_is_refused(hub: str) -> None:
    model = nn.Linear(2, 2)
    model, optimizer = wrapped(hub, model, sgd(model, momentum=0.9))
    backward(model)
    optimizer.param_groups[0]["momentum"] = 0
    with pytest.raises(HubInputError, match="parameter group 0 changed momentum from True to False"):
        optimizer.step()
    with pytest.raises(HubInputError, match="add groups before"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    optimizer.close()


def test_a_schedule_of_the_first_optimizer_and_closures_work(hub: str) -> None:
    model = nn.Linear(2, 2)
    first = sgd(model)
    schedule = torch.optim.lr_scheduler.StepLR(first, 1, gamma=0.5)
    before = model.bias.detach().clone()
    model, optimizer = wrapped(hub, model, first)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        return loss

    for _ in range(3):
        assert optimizer.step(closure).item() is not None
        schedule.step()
    torch.testing.assert_close(model.bias.detach(), before - 0.1 - 0.05 - 0.025)
    assert optimizer.steps_done == 3 and not optimizer.is_return
    optimizer.close()
    with pytest.raises(HubInputError, match="the optimizer has been closed"):
        optimizer.step()


def test_gradients_with_a_graph_of_their_own(hub: str) -> None:
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()
    model, optimizer = wrapped(hub, model, sgd(model))
    model(torch.ones(1, 2)).square().sum().backward(create_graph=True)
    expected = before - 0.1 * model.weight.grad
    assert not model.weight.grad.requires_grad
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), expected)
    optimizer.close()


def values_of_rank_0(rank: int, replicas: int, hub: str, job: str) -> None:
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3).requires_grad_(False))
    model.register_buffer("flags", torch.tensor([rank == 0, False, True]))
    model.register_buffer("nothing", torch.zeros(0))
    model.register_buffer("number", torch.tensor(7 - rank, dtype=torch.int64))
    model[1].running_mean.fill_(float("nan") if rank == 0 else 1.0)
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    model, optimizer = tesser.hub.wrap(model, optimizer, hub=hub, job=job, nonce=NONCE, rank=rank, replicas=replicas)
    torch.manual_seed(0)
    expected = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    assert torch.equal(model[0].weight, expected[0].weight)
    assert torch.equal(model[2].weight, expected[2].weight)
    assert model.flags.tolist() == [True, False, True]
    assert model.number.item() == 7
    assert model[1].running_mean.isnan().all()
    model.number += rank
    optimizer.broadcast_buffers()
    assert model.number.item() == 7
    optimizer.close()


def test_values_of_rank_0_win(replicas: Replicas, hub: str) -> None:
    replicas.run(values_of_rank_0, 2, hub, new_job())


def find_one_another(rank: int, replicas: int, port: int, hub: str, local: int) -> tuple[list[str], torch.Tensor]:
    variables = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(replicas),
        "LOCAL_WORLD_SIZE": str(local),
    }  # fmt: skip
    os.environ.update(variables)
    try:
        torch.manual_seed(rank)
        model = nn.Linear(300, 300)
        model, optimizer = tesser.hub.wrap(model, torch.optim.Adam(model.parameters()), hub=hub)
        paths = optimizer.paths()
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.full((1, 300), float(rank))).sum().backward()
            optimizer.step()
        weight = model.weight.detach().clone()
        optimizer.state_dict()
        optimizer.close()
        return paths, weight
    finally:
        for variable in variables:
            del os.environ[variable]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("local", [2, 1], ids=["one machine", "as on two"])
def test_colocated_hubs_find_one_another(replicas: Replicas, local: int) -> None:
    seen = replicas.run(find_one_another, 2, free_port(), "colocated", local)
    assert all(len(paths) == 2 for paths, _ in seen)
    assert torch.equal(seen[0][1], seen[1][1])


def test_job_and_nonce_are_agreed_on(replicas: Replicas, hub: str) -> None:
    seen = replicas.run(find_one_another, 2, free_port(), hub, 2)
    assert torch.equal(seen[0][1], seen[1][1])


FAULTS_OF_TENSORS = """
import resource, sys
import torch
import tesser.hub

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hub, job, nonce = sys.argv[1:]
_, optimizer = tesser.hub.wrap(model, optimizer, hub=hub, job=job, nonce=nonce, rank=0, replicas=1)
torch.ones(16 << 20).sum()
for _ in range(11):
    before = faults()
    torch.ones(16 << 20).sum()
    print(faults() - before)
optimizer.close()
"""


def test_memory_of_gradients_is_used_again(hub: str) -> None:
    # In a process of its own: what malloc does depends on all that was allocated before.
    environment = {name: value for name, value in os.environ.items() if name not in freed_memory.VARIABLES}
    command = [sys.executable, "-c", FAULTS_OF_TENSORS, hub, new_job(), NONCE]
    run = subprocess.run(command, env=environment, text=True, capture_output=True)
    assert run.returncode == 0, run.stderr
    faults = [int(line) for line in run.stdout.split()]
    assert sorted(faults)[5] < 4000, f"such a tensor has 16384 pages; page faults of each: {faults}"
