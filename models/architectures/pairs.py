"""Two parts trained together: encoder and decoder, image and text."""

from __future__ import annotations

from collections.abc import Mapping

import transformers as hf
from torch import Tensor, nn

from models.architectures.architecture import Architecture
from models.assembly import Field

VOCABULARY = 80


def _bart() -> hf.BartForConditionalGeneration:
    return hf.BartForConditionalGeneration(
        hf.BartConfig(
            vocab_size=VOCABULARY,
            d_model=24,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            encoder_ffn_dim=40,
            decoder_ffn_dim=36,
            max_position_embeddings=32,
            attention_dropout=0.1,
            activation_dropout=0.1,
            use_cache=False,
        )
    )


def _t5() -> hf.T5ForConditionalGeneration:
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=VOCABULARY,
            d_model=24,
            d_kv=8,
            d_ff=40,
            num_layers=2,
            num_heads=3,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=10,
            feed_forward_proj="gated-gelu",
            decoder_start_token_id=0,
            use_cache=False,
        )
    )


def _clip() -> hf.CLIPModel:
    return hf.CLIPModel(
        hf.CLIPConfig(
            text_config={
                "vocab_size": VOCABULARY,
                "hidden_size": 24,
                "num_hidden_layers": 2,
                "num_attention_heads": 3,
                "intermediate_size": 40,
                "max_position_embeddings": 16,
                "eos_token_id": VOCABULARY - 1,
                "bos_token_id": 0,
                "attention_dropout": 0.1,
            },
            vision_config={
                "image_size": 20,
                "patch_size": 5,
                "hidden_size": 30,
                "num_hidden_layers": 2,
                "num_attention_heads": 5,
                "intermediate_size": 44,
                "attention_dropout": 0.1,
            },
            projection_dim=20,
        )
    )


def _clip_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return model(**batch, return_loss=True).loss


def _sequences(source: int, target: int) -> dict[str, Field]:
    return {
        "input_ids": Field((source,), "index", VOCABULARY),
        "attention_mask": Field((source,), "prefix_ones"),
        "labels": Field((target,), "masked_index", VOCABULARY),
    }


ARCHITECTURES = {
    "bart": Architecture(_bart, _sequences(11, 7), batch=3),
    "clip": Architecture(
        _clip,
        {
            "input_ids": Field((9,), "index", VOCABULARY),
            "attention_mask": Field((9,), "prefix_ones"),
            "pixel_values": Field((3, 20, 20)),
        },
        batch=7,
        learning_rate=3e-4,
        loss=_clip_loss,
    ),
    "t5": Architecture(_t5, _sequences(10, 9), batch=3, optimizer="adam"),
}
