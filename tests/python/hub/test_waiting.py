"""After step() the weights are on their way, and every way to them by the model waits. The other replica commits late,
so that who does not wait sees the weights of before."""

from __future__ import annotations

import copy
import io
import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

import tesser.hub
from tests.python.hub.processes import Replicas
from tests.python.hub.training import NONCE, Language, language_loss, new_job

LATE = 0.15


def saved(model: nn.Module) -> dict[str, torch.Tensor]:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False).state_dict()


def forward_of_lstm(model: nn.Module) -> dict[str, torch.Tensor]:
    """It uses a list of its own."""
    with torch.no_grad():
        model.lstm(torch.zeros(1, 1, 8))
    return {f"lstm.{name}": each.detach().clone() for name, each in zip(names_of(model.lstm), model.lstm._flat_weights)}


def names_of(lstm: nn.LSTM) -> list[str]:
    return [name for names in lstm._all_weights for name in names]


WAYS: dict[str, Callable[[nn.Module], dict[str, torch.Tensor]]] = {
    "attribute": lambda model: {"embedding.weight": model.embedding.weight.detach().clone()},
    "parameters": lambda model: {name: each.detach().clone() for name, each in model.named_parameters()},
    "state_dict": lambda model: {name: each.clone() for name, each in model.state_dict().items()},
    "part of state_dict": lambda model: {
        f"lstm.{name}": each.clone() for name, each in model.lstm.state_dict().items()
    },
    "copy": lambda model: copy.deepcopy(model).state_dict(),
    "file": saved,
    "average": lambda model: torch.optim.swa_utils.AveragedModel(model).module.state_dict(),
    "forward of an LSTM": forward_of_lstm,
    "functional call": lambda model: {
        "head.weight": torch.func.functional_call(model.head, {"bias": torch.zeros(11)}, torch.eye(8)).detach().T
    },
}


def look(rank: int, replicas: int, hub: str, job: str, way: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = Language()
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.5)
    model, optimizer = tesser.hub.wrap(model, optimizer, hub=hub, job=job, nonce=NONCE, rank=rank, replicas=replicas)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    language_loss(model, 0, rank).backward()
    time.sleep(LATE * rank)
    optimizer.step()
    if rank == 1:
        seen = {name: each.clone() for name, each in model.state_dict().items()}
        assert all(not torch.equal(seen[name], before[name]) for name in seen if name != "positions")
    else:
        began = time.monotonic()
        seen = WAYS[way](model)
        assert time.monotonic() - began > LATE / 2
    optimizer.close()
    assert type(model.embedding._parameters) is dict
    return seen


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_the_weights_waits(replicas: Replicas, hub: str, way: str) -> None:
    seen, expected = replicas.run(look, 2, hub, new_job(), way)
    assert seen
    for name, value in seen.items():
        assert torch.equal(value, expected[name]), name


def look_at_attention(rank: int, replicas: int, hub: str, job: str) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    layer, optimizer = tesser.hub.wrap(layer, optimizer, hub=hub, job=job, nonce=NONCE, rank=rank, replicas=replicas)
    inputs = torch.randn(2, 3, 8)
    layer(inputs, inputs, inputs, need_weights=False)[0].square().sum().backward()
    time.sleep(LATE * rank)
    optimizer.step()
    with torch.no_grad():
        seen = layer(inputs, inputs, inputs, need_weights=False)[0]
        optimizer.synchronize()
        assert torch.equal(seen, layer(inputs, inputs, inputs, need_weights=False)[0])
    optimizer.close()


def test_attention_waits_for_the_module_that_it_does_not_call(replicas: Replicas, hub: str) -> None:
    replicas.run(look_at_attention, 2, hub, new_job())


def step_without_overlap(rank: int, replicas: int, hub: str, job: str) -> None:
    loose = nn.Parameter(torch.ones(3))
    model = nn.Linear(3, 1)
    for overlap in (False, True):
        model, optimizer = tesser.hub.wrap(
            model, torch.optim.SGD([*model.parameters(), loose], lr=0.5), hub=hub, job=f"{job} {overlap}", nonce=NONCE,
            rank=rank, replicas=replicas, overlap=overlap,
        )  # fmt: skip
        weight = model.weight
        before = weight.detach().clone(), loose.detach().clone()
        model(loose).backward()
        time.sleep(LATE * rank)
        optimizer.step()
        if not overlap:
            assert not torch.equal(weight, before[0])
        assert not torch.equal(loose, before[1])
        optimizer.close()


def test_step_waits_without_overlap_and_for_parameters_of_no_module(replicas: Replicas, hub: str) -> None:
    replicas.run(step_without_overlap, 2, hub, new_job())
