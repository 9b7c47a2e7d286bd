"""Vision Transformer (Dosovitskiy et al., 2021): patches as tokens behind a class token, learned positions,
normalisation first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models.assembly import assemble, image_fields, image_loss
from tesser.step import Step


@dataclass(frozen=True)
class Config:
    batch: int
    layers: int
    width: int
    heads: int
    patch: int = 16
    image: int = 224
    channels: int = 3
    classes: int = 1000
    dropout: float = 0.1


MODELS = {
    "vit": {
        "tiny": Config(4, layers=2, width=32, heads=4, patch=8, image=32, classes=10),
        "s16": Config(32, layers=12, width=384, heads=6),
        "b16": Config(32, layers=12, width=768, heads=12),
        "b32": Config(32, layers=12, width=768, heads=12, patch=32),
        "l16": Config(32, layers=24, width=1024, heads=16),
        "h14": Config(32, layers=32, width=1280, heads=16, patch=14),
    }
}


class Block(nn.Module):
    """[B, tokens, width] -> [B, tokens, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(width, eps=1e-6)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(config.dropout)
        self.feed_forward_norm = nn.LayerNorm(width, eps=1e-6)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(config.dropout),
        )

    def attend(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        split = self.query_key_value(x).chunk(3, dim=-1)
        query, key, value = (
            part.reshape(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in split
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attend(self.attention_norm(x)))
        return x + self.feed_forward(self.feed_forward_norm(x))


class VisionTransformer(nn.Module):
    """images [B, channels, image, image] -> logits [B, classes]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        tokens = (config.image // config.patch) ** 2 + 1
        self.patches = nn.Conv2d(config.channels, config.width, config.patch, stride=config.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.position_embedding = nn.Parameter(torch.empty(1, tokens, config.width).normal_(std=0.02))
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width, eps=1e-6)
        self.head = nn.Linear(config.width, config.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.blocks(self.dropout(x + self.position_embedding))
        return self.head(self.norm(x)[:, 0])


fields = image_fields


def step(size: str = "tiny", *, model: str = "vit", **options: Any) -> Step:
    return assemble(
        MODELS[model],
        size,
        {"clip_norm": 1.0, **options},
        build=VisionTransformer,
        fields=fields,
        loss=image_loss,
        optimizer="adamw",
        learning_rate=1e-3,
        optimizer_options={"weight_decay": 0.1},
    )
