"""Encoders of text, with masked-token and sequence losses."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import transformers as hf
from torch import Tensor, nn

from models.architectures.architecture import Architecture
from models.assembly import Field, Fields

VOCABULARY = 90


def _masked_tokens(sequence: int) -> Fields:
    """Tokens, true where they are no padding, and the targets of some of them."""
    return {
        "input_ids": Field((sequence,), "index", VOCABULARY),
        "attention_mask": Field((sequence,), "prefix_ones"),
        "labels": Field((sequence,), "masked_index", VOCABULARY),
    }


_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
}


def _albert() -> hf.AlbertForMaskedLM:
    # one group of weights for all three layers
    return hf.AlbertForMaskedLM(
        hf.AlbertConfig(
            **_SIZES | {"num_hidden_layers": 3},
            embedding_size=10,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            attn_implementation="eager",
        )
    )


def _deberta_v2() -> hf.DebertaV2ForMaskedLM:
    return hf.DebertaV2ForMaskedLM(
        hf.DebertaV2Config(
            **_SIZES,
            relative_attention=True,
            position_buckets=6,
            max_relative_positions=-1,
            pos_att_type=["p2c", "c2p"],
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            conv_kernel_size=3,
            position_biased_input=False,
        )
    )


def _distilbert() -> hf.DistilBertForSequenceClassification:
    return hf.DistilBertForSequenceClassification(
        hf.DistilBertConfig(
            vocab_size=VOCABULARY,
            dim=24,
            n_layers=2,
            n_heads=3,
            hidden_dim=40,
            max_position_embeddings=32,
            num_labels=5,
            seq_classif_dropout=0.2,
        )
    )


def _weighted_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Classes of unequal weight, and targets that are not quite certain."""
    logits = model(batch["input_ids"], batch["attention_mask"]).logits
    weight = torch.tensor([0.5, 1.0, 2.0, 1.0, 0.25])
    return nn.functional.cross_entropy(logits, batch["labels"], weight, label_smoothing=0.1)


def _roberta() -> hf.RobertaForMaskedLM:
    # positions count the tokens that are no padding
    return hf.RobertaForMaskedLM(hf.RobertaConfig(**_SIZES, pad_token_id=1))


def _xlnet() -> hf.XLNetLMHeadModel:
    return hf.XLNetLMHeadModel(
        hf.XLNetConfig(vocab_size=VOCABULARY, d_model=24, n_layer=2, n_head=3, d_inner=40, dropout=0.1)
    )


ARCHITECTURES = {
    "albert": Architecture(_albert, _masked_tokens(11), batch=5, optimizer="adam"),
    "deberta_v2": Architecture(_deberta_v2, _masked_tokens(13), batch=3),
    "distilbert": Architecture(
        _distilbert,
        {
            "input_ids": Field((14,), "index", VOCABULARY),
            "attention_mask": Field((14,), "prefix_ones"),
            "labels": Field((), "index", 5),
        },
        batch=6,
        optimizer="momentum",
        learning_rate=1e-2,
        optimizer_options={"weight_decay": 0.01},
        loss=_weighted_loss,
    ),
    "roberta": Architecture(_roberta, _masked_tokens(12), batch=5),
    "xlnet": Architecture(_xlnet, _masked_tokens(9), batch=3, optimizer="sgd", learning_rate=1e-2),
}
