"""Small trainings, by a hub or by DistributedDataParallel over Gloo, and what comes of them."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

import tesser.hub

NONCE = "a nonce of tests"
_jobs = itertools.count()


class Digits(nn.Module):
    """Convolutions with batch normalisation, in channels_last: its weights are not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten()
        )
        self.classifier = nn.Linear(64, 5)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images))


class Language(nn.Module):
    """Tied weights; an LSTM, which keeps its weights in a list; attention, which reads weights of a module that it does
    not call; and a frozen table. Without biases of attention: a key's has no gradient but for rounding, of which Adam
    makes steps."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.positions = nn.Parameter(torch.randn(6, 8), requires_grad=False)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
        self.head = nn.Linear(8, 11)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.embedding(tokens) + self.positions)
        return self.head(hidden + self.attention(hidden, hidden, hidden, need_weights=False)[0])


class Branches(nn.Module):
    """Rank and step choose what is used; one layer never is."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(6, 6)
        self.even, self.odd, self.never = nn.Linear(6, 1), nn.Linear(6, 1), nn.Linear(6, 1)

    def forward(self, inputs: torch.Tensor, number: int) -> torch.Tensor:
        hidden = torch.tanh(self.both(inputs))
        if number == 3:  # nobody uses either
            return hidden.sum(1, keepdim=True)
        return self.even(hidden) if number % 2 == 0 else self.odd(hidden)


class Words(nn.Module):
    """Whose gradients of words come by rows, or whole."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(200, 12, sparse=sparse)
        self.bags = nn.EmbeddingBag(50, 12, sparse=sparse)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(tokens).mean(1) + self.bags(tokens % 50))


def _numbers(step: int, rank: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 * step + rank)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 300), nn.Tanh(), nn.Linear(300, 4))


def perceptron_loss(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    inputs = torch.randn(6, 10, generator=_numbers(step, rank))
    return nn.functional.cross_entropy(model(inputs), (inputs[:, :4]).argmax(1))


def digits_loss(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    images = torch.randn(4, 3, 8, 8, generator=_numbers(step, rank)).to(memory_format=torch.channels_last)
    return nn.functional.cross_entropy(model(images), images[:, 0, 0, :5].argmax(1))


def language_loss(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    tokens = torch.randint(11, (5, 7), generator=_numbers(step, rank))
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def words_loss(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    tokens = torch.randint(200, (4, 5), generator=_numbers(step, rank))
    return nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 3)


def branches_loss(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    inputs = torch.randn(4, 6, generator=_numbers(step, rank))
    number = 3 if step == 3 else rank if step % 2 else 0
    return (model(inputs, number) - inputs[:, :1]).square().mean()


def two_groups(model: nn.Module, kind: type, **options: object) -> torch.optim.Optimizer:
    """Biases without decay, and at another rate."""
    weights = [each for each in model.parameters() if each.dim() > 1]
    rest = [each for each in model.parameters() if each.dim() <= 1]
    return kind([{"params": weights, "weight_decay": 0.02}, {"params": rest, "lr": 0.03}], lr=0.05, **options)


@dataclass(frozen=True)
class Training:
    """`optimizer` makes one for a model, `schedule` for an optimizer."""

    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, int, int], torch.Tensor]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    schedule: Callable[[torch.optim.Optimizer], object] | None = None
    clip_norm: float = 0.0
    parts: int = 1  # backward passes a step
    average: bool = True
    distributed: dict = field(default_factory=dict)  # options of DistributedDataParallel


def one_cycle(optimizer: torch.optim.Optimizer) -> object:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.1, 0.05], total_steps=20)  # changes momentum as well


def cosine(optimizer: torch.optim.Optimizer) -> object:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)


TRAININGS = {
    "sgd": Training(perceptron, perceptron_loss, lambda model: torch.optim.SGD(model.parameters(), lr=0.1)),
    "momentum in groups, one cycle": Training(
        perceptron,
        perceptron_loss,
        lambda model: two_groups(model, torch.optim.SGD, momentum=0.9, nesterov=True),
        one_cycle,
    ),
    "dampening, maximize": Training(
        perceptron,
        lambda *arguments: -perceptron_loss(*arguments),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8, dampening=0.3, maximize=True),
    ),
    "adamw in groups, cosine": Training(
        perceptron, perceptron_loss, lambda model: two_groups(model, torch.optim.AdamW), cosine
    ),
    "clipped": Training(
        perceptron,
        perceptron_loss,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9),
        clip_norm=0.2,
    ),
    "three backward passes": Training(
        perceptron, perceptron_loss, lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), parts=3
    ),
    "sum": Training(
        perceptron, perceptron_loss, lambda model: torch.optim.SGD(model.parameters(), lr=0.05), average=False
    ),
    "convolutions, channels last": Training(
        Digits,
        digits_loss,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    ),
    "language, tied": Training(
        Language,
        language_loss,
        lambda model: torch.optim.Adam(
            [each for each in model.parameters() if each.requires_grad], lr=0.01, amsgrad=True
        ),
    ),
    "rows": Training(
        lambda: Words(sparse=True),
        words_loss,
        lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
        parts=2,
    ),
    "no rows": Training(
        lambda: Words(sparse=False),
        words_loss,
        lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
        parts=2,
    ),
    "unused": Training(
        Branches,
        branches_loss,
        lambda model: torch.optim.AdamW(model.parameters(), lr=0.02),
        distributed={"find_unused_parameters": True},
    ),
}


@dataclass
class Result:
    losses: list[float]
    model: dict[str, torch.Tensor]
    optimizer: dict


def _snapshot(losses: list[float], model: nn.Module, optimizer: torch.optim.Optimizer) -> Result:
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    return Result(losses, weights, optimizer.state_dict())


def train(
    training: Training,
    rank: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: range,
    clip: Callable[[], object] = lambda: None,
    no_sync: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    factor: float = 1.0,
) -> list[float]:
    schedule = training.schedule(optimizer) if training.schedule else None
    for _ in range(steps.start if schedule else 0):
        schedule.step()
    losses = []
    for step in steps:
        optimizer.zero_grad()
        for part in range(training.parts):
            with contextlib.nullcontext() if part == training.parts - 1 else no_sync():
                loss = training.loss(model, step + 100 * part, rank)
                (loss * factor).backward()
        clip()
        optimizer.step()
        if schedule:
            schedule.step()
        losses.append(loss.item())
    return losses


def by_hub(
    rank: int, replicas: int, name: str, steps: range, job: str, start: dict | None = None, **options: object
) -> Result:
    """`start`: state dicts of model and optimizer, loaded before wrap or, where start["after"], after it."""
    training = TRAININGS[name]
    torch.manual_seed(rank)
    model = training.model()
    optimizer = training.optimizer(model)
    if start and not start["after"]:
        model.load_state_dict(start["model"])
        optimizer.load_state_dict(start["optimizer"])
    model, optimizer = tesser.hub.wrap(
        model, optimizer, rank=rank, replicas=replicas, job=job, nonce=NONCE, clip_norm=training.clip_norm,
        average=training.average, **{"chunk_bytes": 4096, **options},
    )  # fmt: skip
    if start and start["after"]:
        model.load_state_dict(start["model"])
        optimizer.load_state_dict(start["optimizer"])
    losses = train(training, rank, model, optimizer, steps, no_sync=optimizer.no_sync)
    result = _snapshot(losses, model, optimizer)
    optimizer.close()
    for key, value in model.state_dict().items():
        assert torch.equal(value, result.model[key]), f"{key} is another after close()"
    return result


def by_distributed_data_parallel(rank: int, replicas: int, name: str, steps: range) -> Result:
    training = TRAININGS[name]
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(training.model(), **training.distributed)
    optimizer = training.optimizer(model.module)

    def clip() -> None:
        if training.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)

    factor = 1.0 if training.average else float(replicas)
    losses = train(training, rank, model, optimizer, steps, clip, model.no_sync, factor)
    return _snapshot(losses, model.module, optimizer)


def open_group(rank: int, replicas: int, file: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=replicas)


def close_group(rank: int, replicas: int) -> None:
    torch.distributed.destroy_process_group()


def new_job() -> str:
    return f"job {next(_jobs)} {secrets.token_hex(4)}"


def new_file() -> str:
    return str(Path(tempfile.mkdtemp()) / "group")
