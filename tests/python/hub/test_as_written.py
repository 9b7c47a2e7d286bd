"""Scripts for DistributedDataParallel train through a hub as they are written, to the same numbers on every rank."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

import tesser.hub
from tests.python.hub.processes import HubProcess, Replicas
from tests.python.hub.test_equality import ABSOLUTE, RELATIVE
from tests.python.hub.training import NONCE, close_group, new_file, new_job, open_group

STEPS = 6


def inputs(step: int, rank: int, rows: int = 5) -> torch.Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(100 * step + rank))


def loss(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    x = inputs(step, rank)
    return (model(x) - x[:, :3]).square().mean()


def layers() -> list[nn.Module]:
    return [nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3))]


def normalised() -> list[nn.Module]:
    return [nn.Sequential(nn.Linear(6, 20), nn.BatchNorm1d(20, affine=False), nn.Tanh(), nn.Linear(20, 3))]


def generator_and_critic() -> list[nn.Module]:
    """Without a bias before normalisation: its gradient is none but for rounding, of which Adam makes steps."""
    return [
        nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6)),
        nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)),
    ]


@dataclass(frozen=True)
class Run:
    """What a script has: models and optimizers after wrapping, and the lists of parameters from before."""

    rank: int
    models: list[nn.Module]
    optimizers: list[torch.optim.Optimizer]
    kept: list[list[nn.Parameter]]


@dataclass(frozen=True)
class Script:
    train: Callable[[Run], object]
    models: Callable[[], list[nn.Module]] = layers
    optimizer: Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer] = field(
        default=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3)
    )
    distributed: dict = field(default_factory=dict)  # options of DistributedDataParallel


def adversaries(run: Run, set_to_none: bool = True) -> None:
    """The generator's backward pass leaves gradients at the critic, which its own step drops."""
    (generator, critic), (of_generator, of_critic) = run.models, run.optimizers
    ones, judge = torch.ones(5, 1), nn.functional.binary_cross_entropy_with_logits
    for step in range(STEPS):
        of_critic.zero_grad(set_to_none)
        fake = generator(inputs(2 * step, run.rank))
        both = judge(critic(inputs(2 * step + 1, run.rank)), ones) + judge(critic(fake.detach()), 0 * ones)
        both.backward()
        of_critic.step()
        of_generator.zero_grad(set_to_none)
        judge(critic(fake), ones).backward()
        of_generator.step()


def accumulate(run: Run) -> None:
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            for part in range(2):
                loss(model, step + 10 * part, run.rank).backward()
        loss(model, step + 20, run.rank).backward()
        optimizer.step()


def accumulate_without_no_sync(run: Run) -> None:
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        for part in range(3):
            loss(model, step + 10 * part, run.rank).backward()
        optimizer.step()
        optimizer.zero_grad()


def drop_by_hand(run: Run) -> None:
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        loss(model, step + 10, run.rank).backward()
        for each in model.parameters() if step % 2 else run.kept[0]:
            each.grad = None
        loss(model, step, run.rank).backward()
        optimizer.step()
        model.zero_grad()


def drop_some(run: Run) -> None:
    """As training by self-distillation does with its last layer at first."""
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(model, step, run.rank).backward()
        if step < 3:
            run.kept[0][-1].grad = None
        optimizer.step()


def skip_steps(run: Run) -> None:
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        loss(model, step, run.rank).backward()
        if step % 2 == 0:
            optimizer.step()
        optimizer.zero_grad(set_to_none=step % 3 == 0)


def step_twice(run: Run) -> None:
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        if step % 3 == 0:  # and so they add up
            optimizer.zero_grad()
        loss(model, step, run.rank).backward()
        optimizer.step()
        optimizer.step()


def change_numbers(run: Run) -> None:
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        optimizer.param_groups[0]["momentum"] = 0.5 + 0.05 * step
        optimizer.param_groups[0]["weight_decay"] = 0.01 * step
        optimizer.zero_grad()
        loss(model, step, run.rank).backward()
        optimizer.step()


def closures(run: Run) -> None:
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):

        def closure(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            value = loss(model, step, run.rank)
            value.backward()
            return value

        optimizer.step(closure)


def zero_in_place(run: Run) -> None:
    """Through a list from before wrapping, right after step(), while the hub may read."""
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        loss(model, step, run.rank).backward()
        optimizer.step()
        for each in run.kept[0]:
            each.grad.data.zero_() if step % 2 else each.grad.zero_()


def freeze_and_thaw(run: Run) -> None:
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        run.kept[0][-2].requires_grad_(not 2 <= step < 4)
        run.kept[0][-1].requires_grad_(not 2 <= step < 4)
        optimizer.zero_grad()
        loss(model, step, run.rank).backward()
        optimizer.step()


def evaluate_between(run: Run) -> None:
    """Statistics are rank 0's before each forward, of whichever kind; what was seen goes into the weights' losses."""
    (model,), (optimizer,) = run.models, run.optimizers
    for step in range(STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            loss(model, step + 10, run.rank).backward()
        loss(model, step, run.rank).backward()
        optimizer.step()
        if step % 2:
            model.eval()
            with torch.no_grad():
                loss(model, 50 + step, run.rank)
            loss(model, 60 + step, run.rank).backward()
            model.train()
            optimizer.step()


def load_and_train_in_eval_mode(run: Run) -> None:
    (model,), (optimizer,) = run.models, run.optimizers
    model.eval()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(STEPS):
        if step == 3:
            model.load_state_dict(kept)
        optimizer.zero_grad()
        loss(model, step, run.rank).backward()
        optimizer.step()


SCRIPTS = {
    "two models": Script(
        adversaries, generator_and_critic, lambda each: torch.optim.Adam(each, lr=0.01, betas=(0.5, 0.9))
    ),
    "two models, zeros in place": Script(
        lambda run: adversaries(run, set_to_none=False),
        generator_and_critic,
        lambda each: torch.optim.Adam(each, lr=0.01, betas=(0.5, 0.9)),
    ),
    "no_sync": Script(accumulate),
    "without no_sync": Script(accumulate_without_no_sync),
    "dropped by hand": Script(drop_by_hand),
    "some dropped": Script(drop_some),
    "skipped": Script(skip_steps),
    "twice": Script(step_twice),
    "numbers": Script(change_numbers),
    "closures": Script(closures),
    "zeros in place": Script(zero_in_place),
    "frozen for a while": Script(freeze_and_thaw, distributed={"find_unused_parameters": True}),
    "statistics": Script(evaluate_between, normalised),
    "eval mode": Script(load_and_train_in_eval_mode, normalised),
}


def by_hand(rank: int, replicas: int, name: str, job: str | None, **options: object) -> list[dict]:
    """By a hub, or by DistributedDataParallel where there is no job."""
    script = SCRIPTS[name]
    torch.manual_seed(rank)
    models = script.models()
    kept = [list(model.parameters()) for model in models]
    optimizers = [script.optimizer(each) for each in kept]
    for number, (model, optimizer) in enumerate(zip(models, optimizers)):
        if job is None:
            models[number] = nn.parallel.DistributedDataParallel(model, **script.distributed)
        else:
            models[number], optimizers[number] = tesser.hub.wrap(
                model, optimizer, rank=rank, replicas=replicas, job=f"{job} {number}", nonce=NONCE, **options
            )
    script.train(Run(rank, models, optimizers, kept))
    states = [
        {key.removeprefix("module."): value.clone() for key, value in model.state_dict().items()} for model in models
    ]
    for optimizer in optimizers:
        with contextlib.suppress(AttributeError):
            optimizer.close()
    assert not any(hasattr(model, "no_sync") for model in models if job is not None)
    return states


@pytest.fixture(scope="module")
def expected(replicas: Replicas) -> dict[str, list[list[dict]]]:
    replicas.run(open_group, 2, new_file())
    found = {name: replicas.run(by_hand, 2, name, None) for name in SCRIPTS}
    replicas.run(close_group, 2)
    return found


def check(seen: list[list[dict]], expected: list[list[dict]]) -> None:
    for rank, (models, others) in enumerate(zip(seen, expected, strict=True)):
        for number, (model, other) in enumerate(zip(models, others, strict=True)):
            assert model.keys() == other.keys()
            for name, value in model.items():
                where = f"{name} of model {number} at rank {rank}"
                torch.testing.assert_close(
                    value, other[name], rtol=RELATIVE, atol=ABSOLUTE, msg=lambda text, where=where: f"{where}: {text}"
                )


@pytest.mark.parametrize("name", SCRIPTS)
def test_as_written(replicas: Replicas, hub: str, expected: dict, name: str) -> None:
    check(replicas.run(by_hand, 2, name, new_job(), hub=hub), expected[name])


@pytest.mark.parametrize("name", ["two models", "without no_sync", "statistics"])
@pytest.mark.parametrize(
    "options", [{"network": True}, {"overlap": False}], ids=["over the network", "without overlap"]
)
def test_on_other_ways(replicas: Replicas, hub: str, expected: dict, name: str, options: dict) -> None:
    seen = replicas.run(by_hand, 2, name, new_job(), hub=hub, **options)
    wanted = copy.deepcopy(expected[name])
    if "overlap" in options:
        # Rank 0's statistics are there when step() is over, not only at the next forward.
        for model, other in zip(seen[1], wanted[1]):
            other.update({key: value for key, value in model.items() if "running" in key or "num_batches" in key})
    check(seen, wanted)


@pytest.mark.parametrize("racks", [1, 2])
def test_on_two_hubs(replicas: Replicas, hub: str, expected: dict, racks: int) -> None:
    with HubProcess() as other:
        for name in ("two models", "statistics"):
            seen = replicas.run(by_hand, 2, name, new_job(), hub=[hub, other.url], racks=racks, chunk_bytes=256)
            check(seen, expected[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_are_exact_with_gradients_of_two_bytes(replicas: Replicas, hub: str, dtype: torch.dtype) -> None:
    first, second = replicas.run(by_hand, 2, "eval mode", new_job(), hub=hub, gradient_dtype=dtype)
    assert all(torch.equal(value, second[0][name]) for name, value in first[0].items())
