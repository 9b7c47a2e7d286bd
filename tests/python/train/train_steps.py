"""Small training steps for the tests of the command."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tesser import Step

BATCH = 8
CONTEXT = 12
CHARACTERS = 8


class Classifier(nn.Module):
    """Has what a checkpoint must keep: optimizer state, running statistics, random numbers that depend on the step."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.input = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(16, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.output(self.dropout(torch.relu(self.norm(self.input(images)))))


def classifier_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    logits = model(batch["images"])
    accuracy = (logits.argmax(dim=1) == batch["labels"]).float().mean()
    return nn.functional.cross_entropy(logits, batch["labels"]), {"accuracy": accuracy}


def classifier_forward(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    loss, metrics = classifier_loss(model, batch)
    return {"loss": loss, "logits": model(batch["images"]), **metrics}


def classifier_step(dropout: float = 0.2) -> Step:
    torch.manual_seed(0)
    model = Classifier(dropout)
    return Step(
        model=model,
        loss=classifier_loss,
        batch={"images": torch.zeros(BATCH, 6), "labels": torch.zeros(BATCH, dtype=torch.int64)},
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        forward=classifier_forward,
        name="classifier",
    )


class LanguageModel(nn.Module):
    """A causal model with tied embeddings: each place sees the mean of what came before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, 16)
        self.mix = nn.Linear(32, 16)
        self.head = nn.Linear(16, CHARACTERS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        length = tokens.shape[1]
        past = torch.cumsum(x, dim=1) / torch.arange(1, length + 1).view(1, length, 1)
        return self.head(torch.tanh(self.mix(torch.cat([x, past], dim=2))))


def language_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    tokens = batch["tokens"]
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.reshape(-1, CHARACTERS), tokens[:, 1:].reshape(-1))


def language_step() -> Step:
    torch.manual_seed(0)
    model = LanguageModel()
    return Step(
        model=model,
        loss=language_loss,
        batch={"tokens": torch.zeros(BATCH, CONTEXT + 1, dtype=torch.int64)},
        optimizer=torch.optim.Adam(model.parameters(), lr=2e-2),
        forward=lambda model, batch: {"logits": model(batch["tokens"])},
        forward_batch={"tokens": torch.zeros(1, CONTEXT, dtype=torch.int64)},
        name="language",
    )
