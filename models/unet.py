"""U-Net (Ronneberger et al., 2015) as published: unpadded convolutions, the contracting path's maps cropped and set
beside the expanding path's."""

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
    image: int = 572
    channels: int = 1
    width: int = 64
    levels: int = 4  # poolings
    classes: int = 2
    dropout: float = 0.5  # at the end of the contracting path

    @property
    def labelled(self) -> int:
        """Height and width of the output: 388 for an image of 572."""
        size = self.image
        for _ in range(self.levels):
            if (size - 4) % 2 != 0:
                raise ValueError(f"an image of {self.image} cannot be halved {self.levels} times")
            size = (size - 4) // 2
        size -= 4
        for _ in range(self.levels):
            size = size * 2 - 4
        return size


MODELS = {
    "unet": {
        "tiny": Config(batch=2, image=60, width=8, levels=2, classes=3),
        "paper": Config(batch=1),
    }
}


def _two_convolutions(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """images [B, channels, image, image] -> logits [B, classes, labelled, labelled]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        widths = [config.width * 2**level for level in range(config.levels + 1)]
        self.down = nn.ModuleList(
            _two_convolutions(inputs, outputs) for inputs, outputs in zip([config.channels, *widths], widths)
        )
        self.dropout = nn.Dropout(config.dropout)
        rising = widths[::-1]
        self.upsample = nn.ModuleList(
            nn.ConvTranspose2d(inputs, outputs, 2, stride=2) for inputs, outputs in zip(rising, rising[1:])
        )
        self.up = nn.ModuleList(_two_convolutions(2 * outputs, outputs) for outputs in rising[1:])
        self.classifier = nn.Conv2d(config.width, config.classes, 1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = images
        kept: list[Tensor] = []
        for level, layer in enumerate(self.down):
            x = layer(x)
            if level < len(self.down) - 1:
                kept.append(x)
                x = nn.functional.max_pool2d(x, 2)
        x = self.dropout(x)
        for upsample, layer in zip(self.upsample, self.up):
            x = upsample(x)
            skip = kept.pop()
            margin = (skip.shape[-1] - x.shape[-1]) // 2
            end = margin + x.shape[-1]
            x = layer(torch.cat([skip[:, :, margin:end, margin:end], x], dim=1))
        return self.classifier(x)


def fields(config: Config) -> Fields:
    return {
        "images": Field((config.channels, config.image, config.image)),
        "labels": Field((config.labelled, config.labelled), "index", config.classes),
    }


def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["images"]), batch["labels"])


def step(size: str = "tiny", *, model: str = "unet", **options: Any) -> Step:
    return assemble(
        MODELS[model],
        size,
        options,
        build=UNet,
        fields=fields,
        loss=loss,
        optimizer="sgd",
        learning_rate=0.01,
        optimizer_options={"momentum": 0.99},
    )
