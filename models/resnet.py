"""Residual networks (He et al., 2016), in PyTorch's form: the stride of a bottleneck lies on its 3x3 convolution.

The size ``cifar`` (and ``bench``, the same) is for 32x32 images: a 3x3 stem of stride 1 and no pooling behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from models.assembly import assemble, image_fields, image_loss
from tesser.step import Step


@dataclass(frozen=True)
class Config:
    batch: int
    blocks: tuple[int, ...]
    bottleneck: bool
    image: int = 224
    channels: int = 3
    width: int = 64  # maps of the first stage, before a bottleneck's factor 4
    small_stem: bool = False
    classes: int = 1000


def _sizes(blocks: tuple[int, ...], bottleneck: bool) -> dict[str, Config]:
    cifar = Config(32, blocks, bottleneck, image=32, small_stem=True, classes=10)
    return {
        "tiny": Config(8, (2, 1), bottleneck, image=16, width=16, classes=10),
        "bench": cifar,
        "cifar": cifar,
        "imagenet": Config(32, blocks, bottleneck),
    }


MODELS = {
    "resnet18": _sizes((2, 2, 2, 2), bottleneck=False),
    "resnet50": _sizes((3, 4, 6, 3), bottleneck=True),
}


class Residual(nn.Module):
    """[B, inputs, H, W] -> [B, outputs, H / stride, W / stride]; a bottleneck is a quarter as wide inside."""

    def __init__(self, inputs: int, outputs: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        inner = outputs // 4 if bottleneck else outputs
        kernels = ((1, 1), (3, stride), (1, 1)) if bottleneck else ((3, stride), (3, 1))
        layers: list[nn.Module] = []
        maps = inputs
        for index, (kernel, step) in enumerate(kernels):
            last = index == len(kernels) - 1
            width = outputs if last else inner
            layers += [nn.Conv2d(maps, width, kernel, step, padding=kernel // 2, bias=False), nn.BatchNorm2d(width)]
            if not last:
                layers.append(nn.ReLU(inplace=True))
            maps = width
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.layers(x) + self.shortcut(x))


class ResNet(nn.Module):
    """images [B, channels, image, image] -> logits [B, classes]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        stem: list[nn.Module] = [
            nn.Conv2d(config.channels, config.width, 3, padding=1, bias=False)
            if config.small_stem
            else nn.Conv2d(config.channels, config.width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(config.width),
            nn.ReLU(inplace=True),
        ]
        if not config.small_stem:
            stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        self.stem = nn.Sequential(*stem)
        maps = config.width
        stages: list[nn.Module] = []
        for stage, count in enumerate(config.blocks):
            outputs = config.width * 2**stage * (4 if config.bottleneck else 1)
            blocks: list[nn.Module] = []
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Residual(maps, outputs, stride, config.bottleneck))
                maps = outputs
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(maps, config.classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.pool(self.stages(self.stem(images))).flatten(1))


fields = image_fields


def step(size: str = "tiny", *, model: str = "resnet18", **options: Any) -> Step:
    bench = size == "bench"
    return assemble(
        MODELS[model],
        size,
        options,
        build=ResNet,
        fields=fields,
        loss=image_loss,
        optimizer="adamw" if bench else "momentum",
        learning_rate=1e-3 if bench else 0.1,
        optimizer_options=None if bench else {"weight_decay": 1e-4},
    )
