"""Three steps of architectures of the transformers package give PyTorch's losses, parameters and buffers, both by the
program interpreted in PyTorch and by the tesser command (docs/exactness.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

import tesser
from models import architectures
from tests.python.models.equality import (
    TOLERANCES,
    differences,
    train_with_interpreter,
    train_with_pytorch,
    train_with_tesser,
    write_data,
)

STEPS = 3

# An operator that each is here for.
NAMES = {
    "albert": "aten::_softmax",
    "bart": "aten::tril",
    "beit": "aten::index_put",
    "bloom": "aten::baddbmm",
    "clip": "aten::argmax",
    "convnextv2": "aten::linalg_vector_norm",
    "deberta_v2": "aten::gather",
    "distilbert": "aten::nll_loss_forward",
    "dpt": "aten::sgn",
    "efficientnet": "aten::avg_pool2d_backward",
    "gemma2": "aten::tanh",
    "gpt2": "aten::addmm",
    "gpt_neo": "aten::where.self",
    "gpt_neox": "aten::neg",
    "levit": "aten::hardswish",
    "mamba": "aten::softplus",
    "mamba2": "aten::flip",
    "mistral": "aten::gt.Tensor",
    "mixtral": "aten::topk",
    "mobilevit": "tesser::dropout.channels",
    "opt": "aten::cumsum",
    "patchtst": "aten::unfold",
    "phi": "aten::cos",
    "poolformer": "aten::native_group_norm",
    "qwen3": "aten::_scaled_dot_product_flash_attention_for_cpu",
    "regnet": "aten::sigmoid",
    "roberta": "aten::cumsum",
    "rwkv": "aten::maximum",
    "segformer": "aten::upsample_bilinear2d",
    "swin": "aten::roll",
    "t5": "aten::minimum",
    "vit_mae": "aten::sort",
    "vivit": "aten::convolution",
    "wav2vec2": "aten::_weight_norm_interface",
    "wav2vec2_conformer": "aten::glu",
    "whisper": "aten::repeat",
    "xlnet": "aten::index_select",
}

# oneDNN pads the weights of each group of a convolution to whole blocks while it computes their gradient.
GROUPED = {"convnextv2", "efficientnet", "mobilevit", "regnet", "segformer"}


def test_there_are_the_architectures_named_here() -> None:
    assert architectures.names() == sorted(NAMES)
    with pytest.raises(ValueError, match="no architecture 'gtp2'; there are albert"):
        architectures.load("gtp2")


@pytest.mark.parametrize("name", NAMES)
def test_architecture_trains_as_in_pytorch(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    step = architectures.load(name)
    samples = architectures.data(name, samples=STEPS * len(next(iter(step.batch.values()))), seed=1)
    program, data = tmp_path / "step.tesser", tmp_path / "data"
    captured = tesser.capture(step, program)
    assert NAMES[name] in {node.op for node in captured.program.nodes}
    write_data(data, samples)
    by_tesser = train_with_tesser(program, data, tmp_path / "run", steps=STEPS, scratch_foreseen=name not in GROUPED)
    by_interpreter = train_with_interpreter(program, step, samples)
    theirs = train_with_pytorch(step, samples)
    assert len(theirs.losses) == STEPS and theirs.losses[0] != theirs.losses[-1]
    tolerance = TOLERANCES[torch.float32]
    assert differences(by_interpreter, theirs, tolerance) == []
    assert differences(by_tesser, theirs, tolerance) == []


def test_experts_that_take_as_many_tokens_as_come_are_refused() -> None:
    config = transformers.MixtralConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=3,
        experts_implementation="eager",
    )
    model = transformers.MixtralForCausalLM(config)
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    step = tesser.Step(
        model,
        lambda model, batch: model(**batch).loss,
        {"input_ids": tokens, "labels": tokens.clone()},
        torch.optim.SGD(model.parameters(), lr=0.1),
    )
    with pytest.raises(tesser.CaptureError, match=r"modeling_mixtral\.py:\d+: aten::nonzero: .* depends on the data"):
        tesser.capture(step)
