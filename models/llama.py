"""Llama: root mean square normalisation, rotary positions, SwiGLU, grouped-query attention, no biases.

Sizes of Llama 3 (8b, 70b, 405b) and Llama 2 (7b).
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
    width: int
    heads: int
    key_value_heads: int
    feed_forward: int
    sequence: int = 8192
    vocabulary: int = 128_256
    rotary_base: float = 500_000.0
    epsilon: float = 1e-5


MODELS = {
    "llama": {
        "tiny": Config(4, 2, 32, 4, 2, 88, sequence=16, vocabulary=64),
        "2-7b": Config(1, 32, 4096, 32, 32, 11_008, sequence=4096, vocabulary=32_000, rotary_base=10_000.0),
        "3-8b": Config(1, 32, 4096, 32, 8, 14_336),
        "3-70b": Config(1, 80, 8192, 64, 8, 28_672),
        "3-405b": Config(1, 126, 16_384, 128, 8, 53_248),
    }
}


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x [B, heads, S, D]: turns each pair (i, i + D/2) by its position's angle; cosine and sine are [S, D/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class Attention(nn.Module):
    """[B, S, width] -> [B, S, width]; several query heads share a head of keys and values."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.key_value_heads = config.key_value_heads
        self.size = config.width // config.heads
        self.query = nn.Linear(config.width, config.heads * self.size, bias=False)
        self.key = nn.Linear(config.width, config.key_value_heads * self.size, bias=False)
        self.value = nn.Linear(config.width, config.key_value_heads * self.size, bias=False)
        self.output = nn.Linear(config.heads * self.size, config.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, sequence, _ = x.shape

        def heads_first(values: Tensor, heads: int) -> Tensor:
            return values.view(batch, sequence, heads, self.size).transpose(1, 2)

        def shared(values: Tensor) -> Tensor:
            group = self.heads // self.key_value_heads
            return values.unsqueeze(2).expand(-1, -1, group, -1, -1).reshape(batch, self.heads, sequence, self.size)

        query = _rotate(heads_first(self.query(x), self.heads), cosine, sine)
        key = _rotate(heads_first(self.key(x), self.key_value_heads), cosine, sine)
        value = heads_first(self.value(x), self.key_value_heads)
        mixed = nn.functional.scaled_dot_product_attention(query, shared(key), shared(value), is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, sequence, self.heads * self.size))


class FeedForward(nn.Module):
    """[B, S, width] -> [B, S, width]: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.feed_forward, bias=False)
        self.up = nn.Linear(config.width, config.feed_forward, bias=False)
        self.down = nn.Linear(config.feed_forward, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=config.epsilon)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=config.epsilon)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    """tokens [B, sequence] -> logits [B, sequence, vocabulary]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=config.epsilon)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        size = config.width // config.heads
        frequency = config.rotary_base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
        angle = torch.outer(torch.arange(config.sequence, dtype=torch.float32), frequency)
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.head(self.norm(x))


fields = token_fields


def step(size: str = "tiny", *, model: str = "llama", **options: Any) -> Step:
    return assemble(
        MODELS[model],
        size,
        {"clip_norm": 1.0, **options},
        build=Llama,
        fields=fields,
        loss=token_loss,
        optimizer="adamw",
        learning_rate=3e-4,
        optimizer_options={"betas": (0.9, 0.95), "weight_decay": 0.1},
    )
