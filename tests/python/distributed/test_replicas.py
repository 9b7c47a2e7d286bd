"""Replicas that meet in the parameter hub give the numbers of one process that sees their batches together
(docs/runtime.md, replicas)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import models
import tesser
from tests.python.commands import command, finish, run_environment, start, start_training, train
from tests.python.distributed.runs import END_SECONDS, children, is_running, trained, weights
from tests.python.models.equality import TOLERANCES, Run, differences, write_data
from tests.python.namespaces import two_namespaces
from tests.python.train.train_steps import classifier_loss, classifier_step

TOLERANCE = TOLERANCES[torch.float32]
BATCH = 4
SLACK = 1.0


class Network(nn.Module):
    """A convolution, whose weight the executor keeps channels-last, a tied embedding, and sizes that fill no chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.hidden = nn.Linear(8 * 16, 24)
        self.embedding = nn.Embedding(10, 24)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor, words: Tensor) -> Tensor:
        features = torch.tanh(self.convolution(images)).flatten(1)
        return (torch.tanh(self.hidden(features)) * self.scale + self.embedding(words)) @ self.embedding.weight.t()


def network_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["images"], batch["words"]), batch["labels"])


def network_step(
    make: Callable[[nn.Module], torch.optim.Optimizer], batch: int = BATCH, **options: object
) -> tesser.Step:
    torch.manual_seed(0)
    model = Network()
    return tesser.Step(
        model=model,
        loss=network_loss,
        batch={
            "images": torch.zeros(batch, 3, 4, 4),
            "words": torch.zeros(batch, dtype=torch.int64),
            "labels": torch.zeros(batch, dtype=torch.int64),
        },
        optimizer=make(model),
        name="network",
        **options,
    )


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def adamw_groups(model: nn.Module) -> torch.optim.Optimizer:
    convolution, *others = model.parameters()
    groups = [{"params": [convolution], "weight_decay": 0.2}, {"params": others, "lr": 3e-3}]
    return torch.optim.AdamW(groups, lr=1e-3, eps=1e-5)


@dataclass(frozen=True)
class Case:
    replicas: int
    workers: int
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    clip_norm: float | None = None
    preset: str = "default"


CASES = {
    "two-momentum": Case(2, 1, momentum),
    "three-adamw": Case(3, 1, adamw_groups),
    "two-by-two-adamw": Case(2, 2, adamw_groups),
    "two-clipped": Case(2, 1, momentum, clip_norm=0.3),
    "two-by-two-clipped": Case(2, 2, momentum, clip_norm=0.3),
    "two-by-three-tofu-clipped": Case(2, 3, adamw_groups, clip_norm=0.05, preset="tofu"),
    "two-by-two-tofu": Case(2, 2, momentum, preset="tofu"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven batches of four and a sample."""
    directory = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(4)
    np.save(directory / "images.npy", random.standard_normal((45, 3, 4, 4)).astype(np.float32))
    np.save(directory / "words.npy", random.integers(0, 10, 45))
    np.save(directory / "labels.npy", random.integers(0, 10, 45))
    return directory


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_of_one_process(name: str, data: Path, tmp_path: Path) -> None:
    """Over two epochs and a bit, each of which leaves out what does not fill a batch for every replica."""
    case = CASES[name]
    step = network_step(case.optimizer, clip_norm=case.clip_norm)
    tesser.capture(step, tmp_path / "network.tesser")
    whole = network_step(case.optimizer, case.replicas * BATCH, clip_norm=case.clip_norm)
    tesser.capture(whole, tmp_path / "whole.tesser")
    steps = 2 * (11 // case.replicas) + 2
    one = trained(tmp_path / "whole.tesser", data, tmp_path / "one", "--steps", steps, "--seed", 7)
    words = ["--steps", steps, "--seed", 7, "--replicas", case.replicas, "--workers", case.workers]
    words += ["--preset", case.preset]
    many = trained(tmp_path / "network.tesser", data, tmp_path / "many", *words)
    assert differences(many, one, TOLERANCE) == []


def test_parameters_are_updated_where_they_lie(tmp_path: Path) -> None:
    """By this plan workers would update parts of biases for one another, which a hub cannot do."""
    tesser.capture(models.load("gpt", "tiny"), tmp_path / "gpt.tesser")
    write_data(tmp_path / "data", models.data("gpt", "tiny", samples=64, seed=1))
    words = ["--steps", 3, "--seed", 7, "--replicas", 2]
    whole = trained(tmp_path / "gpt.tesser", tmp_path / "data", tmp_path / "one", *words)
    words += ["--workers", 2, "--preset", "tofu"]
    cut = trained(tmp_path / "gpt.tesser", tmp_path / "data", tmp_path / "many", *words)
    assert differences(cut, whole, TOLERANCE) == []


def test_what_is_told(data: Path, tmp_path: Path) -> None:
    """Places, sizes and memory; and the same bits again, over the network too."""
    program = tmp_path / "network.tesser"
    tesser.capture(network_step(adamw_groups), program)
    words = ["--steps", 7, "--seed", 7, "--replicas", 2]
    run = train(program, data, *words)
    alone = train(program, data, "--steps", 1)
    assert run.code == alone.code == 0, (run.errors, alone.errors)
    begin, end = run.of("start")[0], run.of("end")[0]
    assert (begin["replicas"], begin["workers"], begin["batch_size"]) == (2, 2, 2 * BATCH)
    assert (begin["batches_per_epoch"], begin["left_out"]) == (5, 5)
    assert any("shared memory to the hub" in path for path in begin["paths"])
    assert [event["epoch"] for event in run.of("step")] == [1] * 5 + [2] * 2
    assert [(worker["replica"], worker["worker"]) for worker in end["workers"]] == [(0, 0), (1, 0)]
    for worker in end["workers"]:
        assert worker["sent_bytes"] > 0
        assert worker["copied_gradient_bytes"] == 0, "kernels write gradients where the hub reads them"
        foreseen, measured = worker["predicted_peak_bytes"], worker["peak_bytes"]
        assert foreseen <= measured <= foreseen + end["scratch_bytes"]  # of the convolution
        assert foreseen < alone.of("end")[0]["predicted_peak_bytes"], "optimizer state is the hub's"
    network = train(program, data, *words, "--network")  # where each replica has weights of its own
    assert network.code == 0, network.errors
    assert any("TCP to the hub" in path for path in network.of("start")[0]["paths"])
    assert network.losses == run.losses


def with_pytorch(model: nn.Module, optimizer: torch.optim.Optimizer, data: Path, pieces: list[list[slice]]) -> Run:
    """Each step takes one batch a replica, a piece of the samples; each replica has buffers of its own, as under
    DistributedDataParallel, and the gradients are averaged."""
    samples = {path.stem: torch.from_numpy(np.load(path)) for path in data.glob("*.npy")}
    replicas: list[nn.Module] = []
    losses = []
    loss_of = network_loss if isinstance(model, Network) else classifier_loss
    for batches in pieces:
        while len(replicas) < len(batches) - 1:
            replicas.append(deepcopy(model))
        gradients, total = [torch.zeros_like(parameter) for parameter in model.parameters()], 0.0
        for replica, batch in zip([model, *replicas], batches, strict=False):
            for ours, theirs in zip(replica.parameters(), model.parameters(), strict=True):
                ours.data.copy_(theirs.data)
            loss = loss_of(replica, {name: tensor[batch] for name, tensor in samples.items()})
            loss = loss[0] if isinstance(loss, tuple) else loss
            for sum_, gradient in zip(gradients, torch.autograd.grad(loss, replica.parameters()), strict=True):
                sum_ += gradient / len(batches)
            total += loss.item() / len(batches)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        losses.append(total)
    return Run(losses, {name: tensor.detach().clone() for name, tensor in model.state_dict().items()})


def batches(size: int, *numbers: int) -> list[slice]:
    return [slice(number * size, (number + 1) * size) for number in numbers]


def test_a_run_goes_on_with_any_number_of_replicas(data: Path, tmp_path: Path) -> None:
    """Adam's corrections and moments, and the place in the data, go from one process to replicas and back."""
    step = network_step(adamw_groups)
    tesser.capture(step, tmp_path / "network.tesser")
    losses: list[float] = []
    for until, words in [(2, []), (4, ["--replicas", 2]), (6, ["--replicas", 3, "--every", 1]), (8, ["--workers", 2])]:
        run = train(
            tmp_path / "network.tesser", data, "--no-shuffle", "--steps", until, *words, "--resume",
            "--checkpoint", tmp_path / "run",
        )  # fmt: skip
        assert run.code == 0, run.errors
        losses += run.losses
    pieces = [
        batches(BATCH, 0), batches(BATCH, 1), batches(BATCH, 2, 3), batches(BATCH, 4, 5), batches(BATCH, 6, 7, 8),
        batches(BATCH, 0, 1, 2), batches(BATCH, 3), batches(BATCH, 4),
    ]  # fmt: skip
    expected = with_pytorch(step.model, step.optimizer, data, pieces)
    assert differences(Run(losses, weights(tmp_path / "run")), expected, TOLERANCE) == []


def test_batch_normalisation_is_each_replicas_own(samples: Path, tmp_path: Path) -> None:
    """As under DistributedDataParallel: what is kept of the running statistics is the first replica's."""
    step = classifier_step(dropout=0.0)
    step.optimizer = torch.optim.SGD(step.model.parameters(), lr=0.05, momentum=0.9)
    tesser.capture(step, tmp_path / "classifier.tesser")
    run = trained(
        tmp_path / "classifier.tesser", samples / "train", tmp_path / "run", "--no-shuffle", "--steps", 4, "--replicas",
        2, "--evaluate", samples / "check",
    )  # fmt: skip
    pieces = [batches(8, 0, 1), batches(8, 2, 3), batches(8, 0, 1), batches(8, 2, 3)]
    expected = with_pytorch(step.model, step.optimizer, samples / "train", pieces)
    assert differences(run, expected, TOLERANCE) == []


def test_random_numbers_differ(data: Path, tmp_path: Path) -> None:
    """Two replicas with the same samples, but each with its own dropout; the first has a run's alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 64), nn.Dropout(0.5), nn.Linear(64, 10))

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch["images"].flatten(1)), batch["labels"])

    step = tesser.Step(
        model=model, loss=loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), name="dropout",
        batch={"images": torch.zeros(BATCH, 3, 4, 4), "labels": torch.zeros(BATCH, dtype=torch.int64)},
    )  # fmt: skip
    tesser.capture(step, tmp_path / "dropout.tesser")
    same = tmp_path / "same"
    same.mkdir()
    for name in ("images", "labels"):
        first = np.load(data / f"{name}.npy")[:BATCH]
        np.save(same / f"{name}.npy", np.concatenate([first, first]))
    words = ["--no-shuffle", "--steps", 1, "--seed", 7]
    alone = train(tmp_path / "dropout.tesser", same, *words)
    both = train(tmp_path / "dropout.tesser", same, *words, "--replicas", 2)
    assert both.code == alone.code == 0, (both.errors, alone.errors)
    assert abs(both.losses[0] - alone.losses[0]) > 1e-3


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_lost_replica_is_named(how: signal.Signals, data: Path, tmp_path: Path) -> None:
    tesser.capture(network_step(momentum), tmp_path / "network.tesser")
    process = start_training(
        tmp_path / "network.tesser", data, "--steps", 10**7, "--replicas", 2, "--workers", 2, "--checkpoint",
        tmp_path / "run", "--every", 5,
    )  # fmt: skip
    while '"event":"checkpoint"' not in process.stdout.readline():
        assert process.poll() is None, process.stderr.read()
    pids = children(process)
    assert sorted(pids) == [0, 1, 2, 3]
    began = time.monotonic()
    os.kill(pids[2], how)
    run = finish(process)
    assert time.monotonic() - began < END_SECONDS + SLACK
    assert run.code == 1
    assert f"error: replica 1, worker 0 (process {pids[2]} on" in run.errors, run.errors
    assert "is complete: go on from it with --resume" in run.errors
    assert not any(is_running(pid) for pid in pids.values())


def test_replicas_meet_in_a_hub_that_runs(data: Path, tmp_path: Path) -> None:
    tesser.capture(network_step(momentum), tmp_path / "network.tesser")
    hub = start("hub", "serve", "--listen", "127.0.0.1:0", "--no-pin", variables={"TESSER_HUB_TOKEN": "a hub's token"})
    try:
        url = hub.stdout.readline().split()[-1]
        words = ["--steps", 4, "--replicas", 2]
        elsewhere = train(
            tmp_path / "network.tesser", data, *words, "--hub", url, variables={"TESSER_HUB_TOKEN": "a hub's token"}
        )
        assert elsewhere.code == 0, elsewhere.errors
        refused = train(tmp_path / "network.tesser", data, *words, "--hub", url, variables={"TESSER_HUB_TOKEN": "no"})
        assert refused.code != 0 and "token" in refused.errors, refused.errors
    finally:
        hub.kill()
        hub.communicate()
    assert elsewhere.losses == train(tmp_path / "network.tesser", data, *words).losses


@pytest.fixture(scope="module")
def machines() -> Iterator[list[str]]:
    with two_namespaces("r") as names:
        yield names


# External workers come by themselves, those of hosts are started by a launcher; of two replicas of two workers each is
# on a machine of its own.
@pytest.mark.parametrize("workers", [1, 2])
def test_replicas_on_two_machines(workers: int, machines: list[str], data: Path, tmp_path: Path) -> None:
    tesser.capture(network_step(adamw_groups, clip_norm=0.3), tmp_path / "network.tesser")
    tesser.capture(network_step(adamw_groups, 2 * BATCH, clip_norm=0.3), tmp_path / "whole.tesser")
    words = ["--steps", 6, "--seed", 7]
    one = trained(tmp_path / "whole.tesser", data, tmp_path / "one", *words)
    leading = [
        "train", tmp_path / "network.tesser", "--data", data, "--json", "--threads", 1, *words, "--replicas", 2,
        "--workers", workers, "--network", "--checkpoint", tmp_path / "many",
    ]  # fmt: skip
    if workers == 1:
        leading += ["--external", "--listen", "10.98.0.1:7414"]
    else:
        hosts = ",".join(machine for machine in machines for _ in range(workers))
        leading += ["--hosts", hosts, "--launcher", "ip netns exec", "--listen", "10.98.0.1:0"]

    def inside(machine: str, *arguments: object) -> subprocess.Popen:
        return subprocess.Popen(
            ["ip", "netns", "exec", machine, *command(*arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=run_environment(TESSER_RUN_TOKEN="secret"),
        )  # fmt: skip

    coordinator = inside(machines[0], *leading)
    others = [
        inside(machine, "worker", "--coordinator", "http://10.98.0.1:7414", "--worker", number)
        for number, machine in enumerate(machines if workers == 1 else [])
    ]
    run = finish(coordinator)
    endings = [other.communicate(timeout=20) for other in others]
    assert run.code == 0, (run.errors, endings)
    assert any("TCP to the hub" in path for path in run.of("start")[0]["paths"])
    assert differences(Run(run.losses, weights(tmp_path / "many")), one, TOLERANCE) == []


def test_what_replicas_cannot_do_is_refused(data: Path, tmp_path: Path) -> None:
    cases = [
        ({"clip_value": 0.1}, ["--replicas", 2], "clips gradients by the 2-norm of all of them"),
        ({"clip_value": 0.1, "clip_norm": 1.0}, ["--replicas", 2], "clips gradients by the 2-norm of all of them"),
        ({}, ["--replicas", 2, "--external", "--listen", "0.0.0.0:0"], "need one address of this machine"),
        ({}, ["--replicas", 12], "has 11 full batches of 4 samples, fewer than the 12 replicas"),
    ]
    for number, (options, words, message) in enumerate(cases):
        tesser.capture(network_step(momentum, **options), tmp_path / f"{number}.tesser")
        run = train(tmp_path / f"{number}.tesser", data, *words)
        assert run.code == 2
        assert message in run.errors, run.errors
