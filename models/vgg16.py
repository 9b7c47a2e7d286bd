"""VGG-16, configuration D of Simonyan and Zisserman (2015), without batch normalisation.

``paper`` is the RDMA paper's: 512.32 MB in 32 variables are the same network with ten classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from models.assembly import assemble, image_fields, image_loss
from tesser.step import Step

_STAGES = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # width in units of the first stage's, convolutions


@dataclass(frozen=True)
class Config:
    batch: int
    image: int = 224
    channels: int = 3
    width: int = 64
    hidden: int = 4096
    pooled: int = 7
    classes: int = 1000
    dropout: float = 0.5


MODELS = {
    "vgg16": {
        "tiny": Config(batch=8, image=32, width=4, hidden=64, pooled=1, classes=10),
        "imagenet": Config(batch=32),
        "paper": Config(batch=32, classes=10),
    }
}


class VGG16(nn.Module):
    """images [B, channels, image, image] -> logits [B, classes]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = config.channels
        for multiple, convolutions in _STAGES:
            for _ in range(convolutions):
                outputs = config.width * multiple
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(config.pooled)
        self.classifier = nn.Sequential(
            nn.Linear(inputs * config.pooled**2, config.hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden, config.hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden, config.classes),
        )
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(images)).flatten(1))


fields = image_fields


def step(size: str = "tiny", *, model: str = "vgg16", **options: Any) -> Step:
    return assemble(
        MODELS[model],
        size,
        options,
        build=VGG16,
        fields=fields,
        loss=image_loss,
        optimizer="momentum",
        learning_rate=0.01,
        optimizer_options={"weight_decay": 5e-4},
    )
