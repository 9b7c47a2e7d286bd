"""Inception-v3 (Szegedy et al., "Rethinking the Inception architecture for computer vision", 2016) with its auxiliary
classifier.

``paper`` is the RDMA paper's: 92.90 MB in 196 variables are ten classes and batch normalisation without scales (94 + 2
convolutions with a weight and a shift each, two classifiers with two variables each).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models.assembly import assemble, image_fields
from tesser.step import Step


@dataclass(frozen=True)
class Config:
    batch: int
    image: int = 299
    channels: int = 3
    classes: int = 1000
    divisor: int = 1  # of every width
    pools_35: tuple[int, ...] = (32, 64, 64)  # maps behind the pooling of each block on the 35x35 grid
    maps_17: tuple[int, ...] = (128, 160, 160, 192)  # maps inside each block on the 17x17 grid
    blocks_8: int = 2
    auxiliary_kernel: int = 5  # of the auxiliary classifier's second convolution: what its pooling leaves
    scales: bool = True  # batch normalisation learns scales
    dropout: float = 0.5

    def width(self, maps: int) -> int:
        return maps // self.divisor


MODELS = {
    "inception_v3": {
        "tiny": Config(
            batch=8, image=107, classes=10, divisor=16, pools_35=(32,), maps_17=(128,), blocks_8=1, auxiliary_kernel=1
        ),
        "imagenet": Config(batch=32),
        "paper": Config(batch=32, classes=10, scales=False),
    }
}


class Convolution(nn.Module):
    """Convolution without bias, batch normalisation, ReLU. ``maps`` are those of the full width."""

    def __init__(self, config: Config, inputs: int, maps: int, kernel: int | tuple[int, int], **options: Any) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, config.width(maps), kernel, bias=False, **options)
        self.normalisation = nn.BatchNorm2d(config.width(maps), eps=0.001)
        if not config.scales:
            scale = self.normalisation.weight
            del self.normalisation.weight
            self.normalisation.register_buffer("weight", torch.ones_like(scale), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.normalisation(self.convolution(x)), inplace=True)


class Branches(nn.Module):
    """Several ways from one input, their results side by side; ``outputs`` counts the maps."""

    def __init__(self, ways: list[nn.Module], outputs: int) -> None:
        super().__init__()
        self.ways = nn.ModuleList(ways)
        self.outputs = outputs

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([way(x) for way in self.ways], dim=1)


class Fork(nn.Module):
    """A stem whose result goes through two convolutions side by side (1x3 and 3x1)."""

    def __init__(self, stem: nn.Module, config: Config, inputs: int) -> None:
        super().__init__()
        self.stem = stem
        self.across = Convolution(config, inputs, 384, (1, 3), padding=(0, 1))
        self.down = Convolution(config, inputs, 384, (3, 1), padding=(1, 0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return torch.cat([self.across(x), self.down(x)], dim=1)


def _pooled(config: Config, inputs: int, maps: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), Convolution(config, inputs, maps, 1))


def _block_35(config: Config, inputs: int, pool_maps: int) -> Branches:
    width = config.width
    return Branches(
        [
            Convolution(config, inputs, 64, 1),
            nn.Sequential(Convolution(config, inputs, 48, 1), Convolution(config, width(48), 64, 5, padding=2)),
            nn.Sequential(
                Convolution(config, inputs, 64, 1),
                Convolution(config, width(64), 96, 3, padding=1),
                Convolution(config, width(96), 96, 3, padding=1),
            ),
            _pooled(config, inputs, pool_maps),
        ],
        2 * width(64) + width(96) + width(pool_maps),
    )


def _reduction_17(config: Config, inputs: int) -> Branches:
    width = config.width
    return Branches(
        [
            Convolution(config, inputs, 384, 3, stride=2),
            nn.Sequential(
                Convolution(config, inputs, 64, 1),
                Convolution(config, width(64), 96, 3, padding=1),
                Convolution(config, width(96), 96, 3, stride=2),
            ),
            nn.MaxPool2d(3, stride=2),
        ],
        width(384) + width(96) + inputs,
    )


def _block_17(config: Config, inputs: int, maps: int) -> Branches:
    width = config.width
    across: dict[str, Any] = {"kernel": (1, 7), "padding": (0, 3)}
    down: dict[str, Any] = {"kernel": (7, 1), "padding": (3, 0)}
    return Branches(
        [
            Convolution(config, inputs, 192, 1),
            nn.Sequential(
                Convolution(config, inputs, maps, 1),
                Convolution(config, width(maps), maps, **across),
                Convolution(config, width(maps), 192, **down),
            ),
            nn.Sequential(
                Convolution(config, inputs, maps, 1),
                Convolution(config, width(maps), maps, **down),
                Convolution(config, width(maps), maps, **across),
                Convolution(config, width(maps), maps, **down),
                Convolution(config, width(maps), 192, **across),
            ),
            _pooled(config, inputs, 192),
        ],
        4 * width(192),
    )


def _reduction_8(config: Config, inputs: int) -> Branches:
    width = config.width
    return Branches(
        [
            nn.Sequential(Convolution(config, inputs, 192, 1), Convolution(config, width(192), 320, 3, stride=2)),
            nn.Sequential(
                Convolution(config, inputs, 192, 1),
                Convolution(config, width(192), 192, (1, 7), padding=(0, 3)),
                Convolution(config, width(192), 192, (7, 1), padding=(3, 0)),
                Convolution(config, width(192), 192, 3, stride=2),
            ),
            nn.MaxPool2d(3, stride=2),
        ],
        width(320) + width(192) + inputs,
    )


def _block_8(config: Config, inputs: int) -> Branches:
    width = config.width
    return Branches(
        [
            Convolution(config, inputs, 320, 1),
            Fork(Convolution(config, inputs, 384, 1), config, width(384)),
            Fork(
                nn.Sequential(Convolution(config, inputs, 448, 1), Convolution(config, width(448), 384, 3, padding=1)),
                config,
                width(384),
            ),
            _pooled(config, inputs, 192),
        ],
        width(320) + 4 * width(384) + width(192),
    )


class InceptionV3(nn.Module):
    """images [B, channels, image, image] -> logits [B, classes]; with the auxiliary classifier's logits beside them in
    training."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.stem = nn.Sequential(
            Convolution(config, config.channels, 32, 3, stride=2),
            Convolution(config, width(32), 32, 3),
            Convolution(config, width(32), 64, 3, padding=1),
            nn.MaxPool2d(3, stride=2),
            Convolution(config, width(64), 80, 1),
            Convolution(config, width(80), 192, 3),
            nn.MaxPool2d(3, stride=2),
        )
        maps = width(192)
        blocks: list[Branches] = []
        for pool_maps in config.pools_35:
            blocks.append(_block_35(config, maps, pool_maps))
            maps = blocks[-1].outputs
        blocks.append(_reduction_17(config, maps))
        maps = blocks[-1].outputs
        for inner in config.maps_17:
            blocks.append(_block_17(config, maps, inner))
            maps = blocks[-1].outputs
        self.blocks = nn.Sequential(*blocks)
        self.auxiliary = nn.Sequential(
            nn.AvgPool2d(5, stride=3),
            Convolution(config, maps, 128, 1),
            Convolution(config, width(128), 768, config.auxiliary_kernel),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width(768), config.classes),
        )
        last_blocks = [_reduction_8(config, maps)]
        for _ in range(config.blocks_8):
            last_blocks.append(_block_8(config, last_blocks[-1].outputs))
        maps = last_blocks[-1].outputs
        self.last_blocks = nn.Sequential(*last_blocks)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Dropout(config.dropout), nn.Flatten(), nn.Linear(maps, config.classes)
        )

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        middle = self.blocks(self.stem(images))
        logits = self.classifier(self.last_blocks(middle))
        return (logits, self.auxiliary(middle)) if self.training else logits


fields = image_fields


def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    logits, auxiliary = model(batch["images"])
    cross_entropy = nn.functional.cross_entropy
    return cross_entropy(logits, batch["labels"]) + 0.4 * cross_entropy(auxiliary, batch["labels"])


def step(size: str = "tiny", *, model: str = "inception_v3", **options: Any) -> Step:
    return assemble(
        MODELS[model],
        size,
        options,
        build=InceptionV3,
        fields=fields,
        loss=loss,
        optimizer="momentum",
        learning_rate=0.01,
        optimizer_options={"weight_decay": 4e-5},
    )
