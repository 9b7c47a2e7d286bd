"""Parameter counts of the full sizes against the published ones; nothing is allocated (meta device)."""

from __future__ import annotations

import pytest
import torch

import models

PUBLISHED = {
    ("alexnet", "imagenet"): 61_100_840,
    ("vgg16", "imagenet"): 138_357_544,
    ("inception_v3", "imagenet"): 27_161_264,
    ("resnet18", "imagenet"): 11_689_512,
    ("resnet50", "imagenet"): 25_557_032,
    ("mobilenet_v2", "imagenet"): 3_504_872,
    ("vit", "b16"): 86_567_656,
    ("vit", "b32"): 88_224_232,
    ("vit", "l16"): 304_326_632,
    ("gpt", "gpt2"): 124_439_808,
    ("gpt", "gpt2-medium"): 354_823_168,
    ("gpt", "gpt2-large"): 774_030_080,
    ("gpt", "gpt2-xl"): 1_557_611_200,
    ("llama", "2-7b"): 6_738_415_616,
    ("llama", "3-8b"): 8_030_261_248,
    ("llama", "3-70b"): 70_553_706_496,
    ("llama", "3-405b"): 405_853_388_800,
    # The paper's layer table: pairs of 3x3 convolutions, four 2x2 transposed ones, the last 1x1; all with biases.
    ("unet", "paper"): sum(
        9 * i * o + o
        for i, o in [
            (1, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), (512, 512),
            (512, 1024), (1024, 1024), (1024, 512), (512, 512), (512, 256), (256, 256), (256, 128), (128, 128),
            (128, 64), (64, 64),
        ]
    ) + sum(4 * i * i // 2 + i // 2 for i in (1024, 512, 256, 128)) + 64 * 2 + 2,
}  # fmt: skip

# MB (2^20 bytes) of parameters and number of variables in the RDMA paper's table of models.
RDMA_PAPER = {
    ("alexnet", "paper"): (176.42, 16),
    ("inception_v3", "paper"): (92.90, 196),
    ("vgg16", "paper"): (512.32, 32),
    ("fcn5", "paper"): (204.47, 10),
}

# GB (2^30 bytes) of weights, gradients and one history in the Tofu paper.
TOFU_PAPER = {
    ("rnn", f"{layers}x{hidden}k"): memory
    for layers, row in {6: (8.4, 18.6, 33.0), 8: (11.4, 25.3, 45.3), 10: (14.4, 32.1, 57.0)}.items()
    for hidden, memory in zip((4, 6, 8), row)
} | {
    (f"wresnet{depth}", f"w{width}"): memory
    for depth, row in {50: (4.2, 9.6, 17.1, 26.7), 101: (7.8, 17.1, 30.6, 47.7), 152: (10.5, 23.4, 41.7, 65.1)}.items()
    for width, memory in zip((4, 6, 8, 10), row)
}


def parameters(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    found = list(module.parameters())
    assert all(parameter.is_meta for parameter in found)
    return found


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in parameters(module))


@pytest.mark.parametrize(("name", "size"), PUBLISHED)
def test_published_count(name: str, size: str) -> None:
    assert count(models.load(name, size).model) == PUBLISHED[name, size]


@pytest.mark.parametrize(("size", "published"), [("base", 109_482_240), ("large", 335_141_888)])
def test_bert_encoder_with_pooler(size: str, published: int) -> None:
    assert count(models.load("bert", size).model.encoder) == published


def test_gpt3_has_the_175_billion_parameters_of_its_shape() -> None:
    layers, width, vocabulary, positions = 96, 12288, 50257, 2048
    expected = layers * (12 * width**2 + 13 * width) + (vocabulary + positions) * width + 2 * width
    assert count(models.load("gpt", "175b").model) == expected == 174_604_259_328


def test_an_untied_head_has_its_own_parameters() -> None:
    tied, untied = (count(models.load("gpt", "gpt2", tied=tied).model) for tied in (True, False))
    assert untied - tied == 50257 * 768


@pytest.mark.parametrize(
    ("model", "published"), [("lstm_lm", {"medium": 20e6, "large": 66e6}), ("gru_lm", {"medium": 18e6, "large": 57e6})]
)
def test_language_models_have_the_size_of_their_paper(model: str, published: dict[str, float]) -> None:
    for size, expected in published.items():
        assert count(models.load(model, size).model) == pytest.approx(expected, rel=0.015)


@pytest.mark.parametrize(("name", "size"), RDMA_PAPER)
def test_rdma_paper(name: str, size: str) -> None:
    megabytes, variables = RDMA_PAPER[name, size]
    module = models.load(name, size).model
    assert len(parameters(module)) == variables
    assert count(module) * 4 / 2**20 == pytest.approx(megabytes, abs=0.005)


@pytest.mark.parametrize(("size", "megabytes"), [("lstm", 35.93), ("gru", 27.92)])
def test_rdma_paper_recurrent_models(size: str, megabytes: float) -> None:
    module = models.load("rnn", size).model
    assert (count(module) - module.recurrent.bias_hh_l0.numel()) * 4 / 2**20 == pytest.approx(megabytes, abs=0.005)


@pytest.mark.parametrize(("name", "size"), TOFU_PAPER)
def test_tofu_paper(name: str, size: str) -> None:
    tolerance = 0.01 if name == "rnn" else 0.025
    assert 3 * count(models.load(name, size).model) * 4 / 2**30 == pytest.approx(TOFU_PAPER[name, size], rel=tolerance)


@pytest.mark.parametrize("name", models.names())
def test_every_size_builds_and_its_samples_fit_its_step(name: str) -> None:
    assert "tiny" in models.sizes(name)
    for size in models.sizes(name):
        step = models.load(name, size, device="meta")
        samples = models.data(name, size, samples=1) if size in ("tiny", "bench") else None
        for field, example in step.batch.items():
            assert example.is_meta
            if samples:
                assert samples[field].shape[1:] == example.shape[1:] and samples[field].dtype == example.dtype


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no model 'gtp'; there are alexnet"):
        models.load("gtp")
    with pytest.raises(ValueError, match="no size 'huge'; there are tiny"):
        models.load("gpt", "huge")
    with pytest.raises(ValueError, match="no optimizer 'lion'"):
        models.load("gpt", optimizer="lion")
