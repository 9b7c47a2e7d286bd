"""GPT: learned positions, layer normalisation before each part, attention over the past, GELU; the head shares the
embedding unless ``tied=False``.

Sizes from nano to the 175 billion parameters of GPT-3 (table 2.1 of Brown et al., 2020). Dropout is on the embedding
and on what each part adds; the attention's probabilities have none, as with today's fused attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models.assembly import assemble, token_fields, token_loss
from tesser.step import Step


@dataclass(frozen=True)
class Config:
    batch: int
    layers: int
    heads: int
    width: int
    sequence: int = 1024
    vocabulary: int = 50257
    dropout: float = 0.1
    tied: bool = True


MODELS = {
    "gpt": {
        "tiny": Config(4, layers=2, heads=4, width=32, sequence=16, vocabulary=64),
        "bench": Config(8, layers=6, heads=8, width=256, sequence=128, vocabulary=256, dropout=0.0),
        "nano": Config(8, layers=3, heads=3, width=48),
        "micro": Config(8, layers=4, heads=4, width=128),
        "mini": Config(8, layers=6, heads=6, width=192),
        "gpt2": Config(8, layers=12, heads=12, width=768),
        "gpt2-medium": Config(8, layers=24, heads=16, width=1024),
        "gpt2-large": Config(8, layers=36, heads=20, width=1280),
        "gpt2-xl": Config(8, layers=48, heads=25, width=1600),
        "2.7b": Config(8, layers=32, heads=32, width=2560, sequence=2048, dropout=0.0),
        "6.7b": Config(8, layers=32, heads=32, width=4096, sequence=2048, dropout=0.0),
        "13b": Config(8, layers=40, heads=40, width=5120, sequence=2048, dropout=0.0),
        "175b": Config(8, layers=96, heads=96, width=12288, sequence=2048, dropout=0.0),
    }
}


class Attention(nn.Module):
    """[B, S, width] -> [B, S, width], each position seeing itself and those before it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.query_key_value = nn.Linear(config.width, 3 * config.width)
        self.output = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        split = self.query_key_value(x).view(batch, sequence, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, sequence, width))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * config.width, config.width),
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class GPT(nn.Module):
    """tokens [B, S] -> logits [B, S, vocabulary], S up to ``sequence``."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocabulary, config.width)
        self.position_embedding = nn.Embedding(config.sequence, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.head.weight = self.token_embedding.weight
        self._initialise(config)

    def _initialise(self, config: Config) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for block in self.blocks:  # what 2 * layers additions sum up to keeps its size
            for last in (block.attention.output, block.feed_forward[2]):
                nn.init.normal_(last.weight, std=0.02 / (2 * config.layers) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))
        return self.head(self.norm(self.blocks(x)))


fields = token_fields


def decayed_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: matrices with weight decay; biases and normalisation scales without."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]


def step(size: str = "tiny", *, model: str = "gpt", **options: Any) -> Step:
    if size != "bench":
        options = {"clip_norm": 1.0, **options}
    learning_rate = options.pop("learning_rate", 3e-4)

    def adamw(module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(decayed_groups(module, 0.1), lr=learning_rate, betas=(0.9, 0.95))

    return assemble(
        MODELS[model],
        size,
        {"learning_rate": learning_rate, **options},
        build=GPT,
        fields=fields,
        loss=token_loss,
        optimizer=adamw,
        learning_rate=learning_rate,
    )
