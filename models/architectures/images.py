"""Images and video: classification, segmentation, reconstruction."""

from __future__ import annotations

from collections.abc import Mapping

import transformers as hf
from torch import Tensor, nn

from models.architectures.architecture import Architecture
from models.assembly import Field, Fields

CLASSES = 7


def _images(size: int, channels: int = 3) -> Fields:
    return {"pixel_values": Field((channels, size, size)), "labels": Field((), "index", CLASSES)}


def _segmented(size: int) -> Fields:
    """Images with a class for some of their pixels."""
    return {"pixel_values": Field((3, size, size)), "labels": Field((size, size), "masked_index", CLASSES)}


def _beit() -> hf.BeitForImageClassification:
    return hf.BeitForImageClassification(
        hf.BeitConfig(
            image_size=20,
            patch_size=5,
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=40,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            drop_path_rate=0.2,
            use_relative_position_bias=True,
            use_mean_pooling=True,
            num_labels=CLASSES,
        )
    )


def _convnextv2() -> hf.ConvNextV2ForImageClassification:
    return hf.ConvNextV2ForImageClassification(
        hf.ConvNextV2Config(
            hidden_sizes=[8, 12, 16, 24], depths=[1, 1, 2, 1], drop_path_rate=0.2, image_size=64, num_labels=CLASSES
        )
    )


def _dpt() -> hf.DPTForDepthEstimation:
    return hf.DPTForDepthEstimation(
        hf.DPTConfig(
            image_size=32,
            patch_size=8,
            hidden_size=24,
            num_hidden_layers=4,
            num_attention_heads=3,
            intermediate_size=40,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[8, 12, 16, 20],
            fusion_hidden_size=12,
            use_batch_norm_in_fusion_residual=True,
        )
    )


def _depth_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return nn.functional.l1_loss(model(batch["pixel_values"]).predicted_depth, batch["depth"])


def _efficientnet() -> hf.EfficientNetForImageClassification:
    return hf.EfficientNetForImageClassification(
        hf.EfficientNetConfig(
            image_size=32,
            width_coefficient=0.25,
            depth_coefficient=0.5,
            hidden_dim=320,
            dropout_rate=0.2,
            num_labels=CLASSES,
            in_channels=[8, 8, 16],
            out_channels=[8, 16, 24],
            kernel_sizes=[3, 3, 5],
            strides=[1, 2, 2],
            num_block_repeats=[1, 2, 2],
            expand_ratios=[1, 3, 3],
            depthwise_padding=[],
        )
    )


def _levit() -> hf.LevitForImageClassification:
    return hf.LevitForImageClassification(
        hf.LevitConfig(
            image_size=64,
            hidden_sizes=[16, 24, 32],
            num_attention_heads=[2, 3, 4],
            depths=[1, 1, 1],
            key_dim=[8, 8, 8],
            num_labels=CLASSES,
        )
    )


def _mobilevit() -> hf.MobileViTForSemanticSegmentation:
    return hf.MobileViTForSemanticSegmentation(
        hf.MobileViTConfig(
            image_size=32,
            hidden_sizes=[12, 16, 20],
            neck_hidden_sizes=[8, 8, 12, 16, 16, 20, 24],
            num_attention_heads=2,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            aspp_out_channels=12,
            semantic_loss_ignore_index=-100,
            num_labels=CLASSES,
        )
    )


def _poolformer() -> hf.PoolFormerForImageClassification:
    return hf.PoolFormerForImageClassification(
        hf.PoolFormerConfig(hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], drop_path_rate=0.2, num_labels=CLASSES)
    )


def _regnet() -> hf.RegNetForImageClassification:
    return hf.RegNetForImageClassification(
        hf.RegNetConfig(
            embedding_size=8, hidden_sizes=[8, 12, 16, 24], depths=[1, 2, 2, 1], groups_width=4, num_labels=CLASSES
        )
    )


def _segformer() -> hf.SegformerForSemanticSegmentation:
    return hf.SegformerForSemanticSegmentation(
        hf.SegformerConfig(
            hidden_sizes=[8, 12, 16, 24],
            depths=[1, 1, 2, 1],
            num_attention_heads=[1, 2, 2, 3],
            decoder_hidden_size=20,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            drop_path_rate=0.1,
            num_labels=CLASSES,
            semantic_loss_ignore_index=-100,
        )
    )


def _swin() -> hf.SwinForImageClassification:
    return hf.SwinForImageClassification(
        hf.SwinConfig(
            image_size=24,
            patch_size=2,
            embed_dim=12,
            depths=[2, 2],
            num_heads=[2, 3],
            window_size=4,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            drop_path_rate=0.2,
            num_labels=CLASSES,
        )
    )


def _vit_mae() -> hf.ViTMAEForPreTraining:
    return hf.ViTMAEForPreTraining(
        hf.ViTMAEConfig(
            image_size=20,
            patch_size=5,
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=40,
            decoder_hidden_size=20,
            decoder_num_hidden_layers=1,
            decoder_num_attention_heads=2,
            decoder_intermediate_size=32,
            hidden_dropout_prob=0.1,
        )
    )


def _vivit() -> hf.VivitForVideoClassification:
    return hf.VivitForVideoClassification(
        hf.VivitConfig(
            image_size=12,
            num_frames=4,
            tubelet_size=[2, 4, 4],
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=40,
            hidden_dropout_prob=0.1,
            num_labels=CLASSES,
        )
    )


ARCHITECTURES = {
    "beit": Architecture(_beit, _images(20), batch=5),
    "convnextv2": Architecture(_convnextv2, _images(64), batch=3),
    "dpt": Architecture(
        _dpt, {"pixel_values": Field((3, 32, 32)), "depth": Field((64, 64))}, batch=3, loss=_depth_loss
    ),
    "efficientnet": Architecture(_efficientnet, _images(32), batch=6, optimizer="momentum", learning_rate=1e-3),
    "levit": Architecture(_levit, _images(64), batch=9, optimizer="momentum", learning_rate=1e-4),
    "mobilevit": Architecture(_mobilevit, _segmented(32), batch=3, learning_rate=3e-4),
    "poolformer": Architecture(_poolformer, _images(32), batch=5),
    "regnet": Architecture(_regnet, _images(32), batch=6, optimizer="momentum", learning_rate=1e-3),
    "segformer": Architecture(_segformer, _segmented(32), batch=3, optimizer="adam", learning_rate=3e-4),
    "swin": Architecture(_swin, _images(24), batch=3),
    "vit_mae": Architecture(_vit_mae, {"pixel_values": Field((3, 20, 20))}, batch=5),
    "vivit": Architecture(
        _vivit, {"pixel_values": Field((4, 3, 12, 12)), "labels": Field((), "index", CLASSES)}, batch=3
    ),
}
