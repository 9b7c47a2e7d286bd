"""MobileNet-v2 (Sandler et al., 2018): inverted residuals around depthwise convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from models.assembly import assemble, image_fields, image_loss
from tesser.step import Step

# Expansion, maps, blocks, stride of the first block: table 2 of the paper.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@dataclass(frozen=True)
class Config:
    batch: int
    image: int = 224
    channels: int = 3
    stem: int = 32
    last: int = 1280
    stages: tuple[tuple[int, int, int, int], ...] = _STAGES
    classes: int = 1000
    dropout: float = 0.2


MODELS = {
    "mobilenet_v2": {
        "tiny": Config(
            batch=8, image=32, stem=8, last=64, stages=((1, 8, 1, 1), (6, 8, 2, 2), (6, 16, 2, 2)), classes=10
        ),
        "imagenet": Config(batch=32),
    }
}


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    ]


class InvertedResidual(nn.Module):
    """[B, inputs, H, W] -> [B, outputs, H / stride, W / stride]; inside, ``expansion`` times as many maps as the
    input."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        layers = _convolution(inputs, inner, 1) if expansion != 1 else []
        layers += _convolution(inner, inner, 3, stride, groups=inner)
        layers += [nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    """images [B, channels, image, image] -> logits [B, classes]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        layers = _convolution(config.channels, config.stem, 3, stride=2)
        maps = config.stem
        for expansion, outputs, blocks, stride in config.stages:
            for index in range(blocks):
                layers.append(InvertedResidual(maps, outputs, stride if index == 0 else 1, expansion))
                maps = outputs
        layers += _convolution(maps, config.last, 1)
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(config.dropout),
            nn.Linear(config.last, config.classes),
        )
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images))


fields = image_fields


def step(size: str = "tiny", *, model: str = "mobilenet_v2", **options: Any) -> Step:
    return assemble(
        MODELS[model],
        size,
        options,
        build=MobileNetV2,
        fields=fields,
        loss=image_loss,
        optimizer="momentum",
        learning_rate=0.045,
        optimizer_options={"weight_decay": 4e-5},
    )
