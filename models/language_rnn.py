"""LSTM and GRU language models: embedding, recurrent layers with dropout around and between them, projection to the
vocabulary.

``medium`` and ``large`` are the sizes of Zaremba et al., "Recurrent neural network regularization" (2014). The RDMA
paper's LSTM and GRU, which have no embedding, are sizes of models/rnn.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from models.assembly import assemble, token_fields, token_loss
from tesser.step import Step


@dataclass(frozen=True)
class Config:
    batch: int
    sequence: int
    vocabulary: int
    hidden: int
    cell: str
    layers: int = 2
    dropout: float = 0.0
    initial: float = 0.1  # parameters start uniformly within this


def _sizes(cell: str) -> dict[str, Config]:
    return {
        "tiny": Config(8, 10, 40, 32, cell, dropout=0.2),
        "bench": Config(32, 32, 256, 256, cell),
        "medium": Config(20, 35, 10_000, 650, cell, dropout=0.5, initial=0.05),
        "large": Config(20, 35, 10_000, 1500, cell, dropout=0.65, initial=0.04),
    }


MODELS = {"lstm_lm": _sizes("lstm"), "gru_lm": _sizes("gru")}
CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentLanguageModel(nn.Module):
    """tokens [B, S] -> logits [B, S, vocabulary]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.recurrent = CELLS[config.cell](
            config.hidden, config.hidden, config.layers, batch_first=True, dropout=config.dropout
        )
        self.head = nn.Linear(config.hidden, config.vocabulary)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.initial, config.initial)

    def forward(self, tokens: Tensor) -> Tensor:
        outputs, _ = self.recurrent(self.dropout(self.embedding(tokens)))
        return self.head(self.dropout(outputs))


fields = token_fields


def step(size: str = "tiny", *, model: str = "lstm_lm", **options: Any) -> Step:
    options = options if size == "bench" else {"clip_norm": 5.0, **options}
    return assemble(
        MODELS[model],
        size,
        options,
        build=RecurrentLanguageModel,
        fields=fields,
        loss=token_loss,
        optimizer="adamw",
        learning_rate=1e-3,
    )
