"""RNN of the Tofu paper: L layers of H LSTM units over a sequence of vectors, each classified.

The paper does not say how wide the input is. 512 gives its memory (weights, gradients and one history) within 1% for
every L and H. The number of classes is not known either; it hardly counts. The sizes ``lstm`` and ``gru`` are the RDMA
paper's: 35.93 and 27.92 MB in 14 and 11 variables (weights of input and state, and a bias, for each gate) are one layer
of 1024 over vectors of 1024, with 1000 classes. PyTorch keeps a second bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from models.assembly import Field, Fields, assemble
from models.language_rnn import CELLS
from tesser.step import Step


@dataclass(frozen=True)
class Config:
    batch: int
    layers: int
    hidden: int
    inputs: int = 512
    sequence: int = 20
    classes: int = 256
    cell: str = "lstm"


MODELS = {
    "rnn": {
        "tiny": Config(8, layers=3, hidden=32, inputs=16, sequence=6, classes=10),
        "lstm": Config(32, layers=1, hidden=1024, inputs=1024, classes=1000),
        "gru": Config(32, layers=1, hidden=1024, inputs=1024, classes=1000, cell="gru"),
        **{f"{layers}x{hidden}k": Config(512, layers, hidden * 1024) for layers in (6, 8, 10) for hidden in (4, 6, 8)},
    }
}


class RNN(nn.Module):
    """vectors [B, S, inputs] -> logits [B, S, classes]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.recurrent = CELLS[config.cell](config.inputs, config.hidden, config.layers, batch_first=True)
        self.head = nn.Linear(config.hidden, config.classes)

    def forward(self, vectors: Tensor) -> Tensor:
        outputs, _ = self.recurrent(vectors)
        return self.head(outputs)


def fields(config: Config) -> Fields:
    return {
        "vectors": Field((config.sequence, config.inputs)),
        "labels": Field((config.sequence,), "index", config.classes),
    }


def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    logits = model(batch["vectors"])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


def step(size: str = "tiny", *, model: str = "rnn", **options: Any) -> Step:
    return assemble(
        MODELS[model],
        size,
        options,
        build=RNN,
        fields=fields,
        loss=loss,
        optimizer="momentum",
        learning_rate=0.01,
    )
