"""BERT (Devlin et al., 2019) with both its pre-training losses: masked tokens and next sentence.

Attention is written out, since the original drops some of its probabilities, which fused attention does not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models.assembly import Field, Fields, assemble
from tesser.step import Step


@dataclass(frozen=True)
class Config:
    batch: int
    layers: int
    width: int
    heads: int
    sequence: int = 512
    vocabulary: int = 30_522
    segments: int = 2
    dropout: float = 0.1
    epsilon: float = 1e-12


MODELS = {
    "bert": {
        "tiny": Config(4, layers=2, width=32, heads=4, sequence=16, vocabulary=96),
        "base": Config(32, layers=12, width=768, heads=12),
        "large": Config(32, layers=24, width=1024, heads=16),
    }
}


class Attention(nn.Module):
    """x [B, S, width], hidden [B, 1, 1, S] true where a key is padding -> [B, S, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.output = nn.Linear(config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        batch, sequence, width = x.shape

        def heads_first(values: Tensor) -> Tensor:
            return values.view(batch, sequence, self.heads, width // self.heads).transpose(1, 2)

        query, key, value = (heads_first(part(x)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5
        probabilities = self.dropout(scores.masked_fill(hidden, -1e9).softmax(dim=-1))
        return self.output((probabilities @ value).transpose(1, 2).reshape(batch, sequence, width))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, hidden)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Encoder(nn.Module):
    """tokens, segments [B, S], present [B, S] bool -> states [B, S, width], pooled [B, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocabulary, config.width)
        self.position_embedding = nn.Embedding(config.sequence, config.width)
        self.segment_embedding = nn.Embedding(config.segments, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.pooler = nn.Linear(config.width, config.width)

    def forward(self, tokens: Tensor, segments: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions) + self.segment_embedding(segments)
        x = self.dropout(self.norm(x))
        hidden = present.logical_not()[:, None, None, :]
        for block in self.blocks:
            x = block(x, hidden)
        return x, torch.tanh(self.pooler(x[:, 0]))


class BERT(nn.Module):
    """The encoder with its two pre-training heads -> token logits [B, S, vocabulary], next-sentence logits [B, 2]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.transform = nn.Sequential(
            nn.Linear(config.width, config.width), nn.GELU(), nn.LayerNorm(config.width, eps=config.epsilon)
        )
        self.decoder = nn.Linear(config.width, config.vocabulary)
        self.next_sentence = nn.Linear(config.width, 2)
        self.decoder.weight = self.encoder.token_embedding.weight
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor, segments: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        states, pooled = self.encoder(tokens, segments, present)
        return self.decoder(self.transform(states)), self.next_sentence(pooled)


def fields(config: Config) -> Fields:
    return {
        "tokens": Field((config.sequence,), "index", config.vocabulary),
        "segments": Field((config.sequence,), "index", config.segments),
        "present": Field((config.sequence,), "prefix"),
        "targets": Field((config.sequence,), "masked_index", config.vocabulary),
        "follows": Field((), "index", 2),
    }


def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Cross entropy of the masked tokens (other targets are ignored) plus that of the next sentence."""
    logits, follows = model(batch["tokens"], batch["segments"], batch["present"])
    cross_entropy = nn.functional.cross_entropy
    masked = cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
    return masked + cross_entropy(follows, batch["follows"])


def step(size: str = "tiny", *, model: str = "bert", **options: Any) -> Step:
    return assemble(
        MODELS[model],
        size,
        {"clip_norm": 1.0, **options},
        build=BERT,
        fields=fields,
        loss=loss,
        optimizer="adamw",
        learning_rate=1e-4,
        optimizer_options={"weight_decay": 0.01},
    )
