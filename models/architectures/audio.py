"""Sound and time series."""

from __future__ import annotations

import transformers as hf

from models.architectures.architecture import Architecture
from models.assembly import Field

VOCABULARY = 60
CLASSES = 7


def _wav2vec2() -> hf.Wav2Vec2ForSequenceClassification:
    return hf.Wav2Vec2ForSequenceClassification(
        hf.Wav2Vec2Config(
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=40,
            conv_dim=[8, 12, 12],
            conv_kernel=[10, 3, 3],
            conv_stride=[5, 2, 2],
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=4,
            layerdrop=0.0,
            apply_spec_augment=False,
            classifier_proj_size=16,
            num_labels=CLASSES,
        )
    )


def _wav2vec2_conformer() -> hf.Wav2Vec2ConformerForSequenceClassification:
    return hf.Wav2Vec2ConformerForSequenceClassification(
        hf.Wav2Vec2ConformerConfig(
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=40,
            conv_dim=[8, 12, 12],
            conv_kernel=[10, 3, 3],
            conv_stride=[5, 2, 2],
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=4,
            conv_depthwise_kernel_size=5,
            position_embeddings_type="relative",
            layerdrop=0.0,
            apply_spec_augment=False,
            classifier_proj_size=16,
            num_labels=CLASSES,
        )
    )


def _whisper() -> hf.WhisperForConditionalGeneration:
    return hf.WhisperForConditionalGeneration(
        hf.WhisperConfig(
            vocab_size=VOCABULARY,
            num_mel_bins=10,
            d_model=24,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            encoder_ffn_dim=40,
            decoder_ffn_dim=40,
            max_source_positions=15,
            max_target_positions=20,
            dropout=0.1,
            attention_dropout=0.1,
            use_cache=False,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=3,
        )
    )


def _patchtst() -> hf.PatchTSTForPrediction:
    return hf.PatchTSTForPrediction(
        hf.PatchTSTConfig(
            num_input_channels=3,
            context_length=20,
            prediction_length=6,
            patch_length=4,
            patch_stride=2,
            d_model=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            ffn_dim=40,
            dropout=0.1,
            head_dropout=0.1,
            loss="mse",
        )
    )


def _waves(samples: int) -> dict[str, Field]:
    return {"input_values": Field((samples,)), "labels": Field((), "index", CLASSES)}


ARCHITECTURES = {
    "patchtst": Architecture(
        _patchtst, {"past_values": Field((20, 3)), "future_values": Field((6, 3))}, batch=5, optimizer="adam"
    ),
    "wav2vec2": Architecture(_wav2vec2, _waves(250), batch=3),
    "wav2vec2_conformer": Architecture(_wav2vec2_conformer, _waves(250), batch=3, optimizer="adam"),
    "whisper": Architecture(
        _whisper, {"input_features": Field((10, 30)), "labels": Field((9,), "masked_index", VOCABULARY)}, batch=3
    ),
}
