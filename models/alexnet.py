"""AlexNet in its one-tower form (Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014).

``imagenet`` is the form of 61,100,840 parameters known from PyTorch. ``paper`` is what the RDMA paper's 176.42 MB in 16
variables come to exactly: 384 maps in the fourth convolution, the first one unpadded, and ten classes.
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
    image: int = 224
    channels: int = 3
    maps: tuple[int, ...] = (64, 192, 384, 256, 256)
    hidden: int = 4096
    pooled: int = 6  # height and width of what the classifier sees
    first_padding: int = 2
    classes: int = 1000
    dropout: float = 0.5


MODELS = {
    "alexnet": {
        "tiny": Config(batch=8, image=67, maps=(8, 16, 24, 16, 16), hidden=64, pooled=1, classes=10),
        "imagenet": Config(batch=128),
        "paper": Config(batch=32, maps=(64, 192, 384, 384, 256), pooled=5, first_padding=0, classes=10),
    }
}


class AlexNet(nn.Module):
    """images [B, channels, image, image] -> logits [B, classes]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        first, second, third, fourth, fifth = config.maps
        self.features = nn.Sequential(
            nn.Conv2d(config.channels, first, 11, stride=4, padding=config.first_padding),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(first, second, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(second, third, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(third, fourth, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(fourth, fifth, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d(config.pooled)
        self.classifier = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(fifth * config.pooled**2, config.hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden, config.hidden),
            nn.ReLU(inplace=True),
            nn.Linear(config.hidden, config.classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(images)).flatten(1))


fields = image_fields


def step(size: str = "tiny", *, model: str = "alexnet", **options: Any) -> Step:
    return assemble(
        MODELS[model],
        size,
        options,
        build=AlexNet,
        fields=fields,
        loss=image_loss,
        optimizer="momentum",
        learning_rate=0.01,
        optimizer_options={"weight_decay": 5e-4},
    )
