"""WResNet of the Tofu paper: ResNet-50, 101 and 152 with every width multiplied by W.

The paper's memory (weights, gradients and one history, so three times the weights) comes out within 2.5%.
"""

from __future__ import annotations

from typing import Any

from models.assembly import assemble, image_fields, image_loss
from models.resnet import Config, ResNet
from tesser.step import Step


def _sizes(blocks: tuple[int, ...]) -> dict[str, Config]:
    tiny = tuple(max(1, count // 10) for count in blocks[1:3])
    sizes = {"tiny": Config(8, tiny, True, image=16, width=16, classes=10)}
    for multiple in (4, 6, 8, 10):
        sizes[f"w{multiple}"] = Config(32, blocks, True, width=64 * multiple)
    return sizes


MODELS = {
    "wresnet50": _sizes((3, 4, 6, 3)),
    "wresnet101": _sizes((3, 4, 23, 3)),
    "wresnet152": _sizes((3, 8, 36, 3)),
}

fields = image_fields


def step(size: str = "tiny", *, model: str = "wresnet50", **options: Any) -> Step:
    """``width=64 * W`` gives any other multiple W."""
    return assemble(
        MODELS[model],
        size,
        options,
        build=ResNet,
        fields=fields,
        loss=image_loss,
        optimizer="momentum",
        learning_rate=0.1,
        optimizer_options={"weight_decay": 1e-4},
    )
