"""Fully connected networks: FCN-5 of the RDMA paper, and the benchmark's mlp.

The paper gives 204.47 MB in ten variables. An input of 784, four layers of 4096 and ten classes have exactly these, so
that is its shape here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from models.assembly import Field, Fields, assemble
from tesser.step import Step


@dataclass(frozen=True)
class Config:
    batch: int
    inputs: int
    width: int
    classes: int
    layers: int = 5  # linear layers, the last one to the classes


MODELS = {
    "fcn5": {
        "tiny": Config(batch=16, inputs=48, width=96, classes=10),
        "paper": Config(batch=32, inputs=784, width=4096, classes=10),
    },
    "mlp": {
        "tiny": Config(batch=16, inputs=64, width=64, classes=64),
        "bench": Config(batch=64, inputs=1024, width=1024, classes=1024),
    },
}


class FullyConnected(nn.Sequential):
    """features [B, inputs] -> logits [B, classes]; ReLU between the layers."""

    def __init__(self, config: Config) -> None:
        widths = [config.inputs] + [config.width] * (config.layers - 1) + [config.classes]
        layers: list[nn.Module] = []
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        super().__init__(*layers[:-1])


def fields(config: Config) -> Fields:
    return {"features": Field((config.inputs,)), "labels": Field((), "index", config.classes)}


def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["features"]), batch["labels"])


def step(size: str = "tiny", *, model: str = "fcn5", **options: Any) -> Step:
    optimizer = "adamw" if model == "mlp" else "sgd"
    learning_rate = 1e-3 if model == "mlp" else 1e-2
    return assemble(
        MODELS[model],
        size,
        options,
        build=FullyConnected,
        fields=fields,
        loss=loss,
        optimizer=optimizer,
        learning_rate=learning_rate,
    )
