"""Parts that are unlike the whole: steps whose cuts once ended the run give the numbers of one worker, under plans that
tesser finds and under plans drawn at random."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tesser
from tests.python.commands import binary, train
from tests.python.distributed.runs import trained
from tests.python.models.equality import Tolerance, differences, write_data

STEPS = 3
TOLERANCE = Tolerance(loss=1e-5, relative=1e-4, absolute=1e-6)
WORDS = ["--steps", STEPS, "--no-shuffle"]


class FirstNormalisations(nn.Module):
    """Normalisations whose input needs no gradient, so that their backward operators have output masks."""

    def __init__(self) -> None:
        super().__init__()
        self.group = nn.GroupNorm(4, 8)
        self.shifted_group = nn.GroupNorm(4, 8)
        self.layer = nn.LayerNorm(6)
        self.shifted_layer = nn.LayerNorm(6)
        self.scaled_layer = nn.LayerNorm(6)
        for norm in (self.shifted_group, self.shifted_layer):
            norm.weight.requires_grad_(False)
        self.scaled_layer.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        norms = [self.group, self.shifted_group, self.layer, self.shifted_layer, self.scaled_layer]
        return sum((index + 1) * norm(x).sin() for index, norm in enumerate(norms))


class Padding(nn.Module):
    """Convolutions of which parts, or all, reach nothing but their padding."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.transposed = nn.ConvTranspose3d(2, 3, 1, stride=3, padding=1, output_padding=2)
        self.sparse = nn.Conv2d(6, 4, 1, stride=5, padding=1)
        self.narrow = nn.Conv2d(4, 4, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        up = self.transposed(hidden)  # [4, 3, 4, 7, 4]
        down = self.sparse(up.flatten(1, 2)[:, :6, :3, :3])  # [4, 4, 1, 1], of the padding alone
        return hidden.square().mean() + up.sin().mean() + (down + self.narrow(up.flatten(1, 2)[:, 2:6])).cos().mean()


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 12))

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * self.weight * 0.1 + 1
        extremes = scaled.amax(0) + scaled.amin(0) + scaled.max() * scaled.min()
        return scaled.prod(0) + extremes + (scaled > 1).any(0) + (scaled > 0.9).all(0)


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        norms = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), norms[0], nn.ReLU(), norms[1], nn.Conv2d(8, 2, 3))
        for norm in norms:
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
            norm.eval()
        norms[1].requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Undescribed(nn.Module):
    """Tensors without dimensions, which PyTorch takes as one element and no description foresees."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 2, 16).view(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        rows = torch.baddbmm(w[0], w.view(1, 4, 4), w.view(1, 4, 4)).sin()
        first = w[0, 0]
        chosen = torch.index_select(w[1, 0], 0, torch.zeros(1, dtype=torch.int64))
        return (
            rows.sum() + first.cumsum(0) + w[0, 1].softmax(0) + w[0, 2].sort(0).values + w[0, 3].topk(1).values.sum()
            + chosen.sum() + w[1, 1].unfold(0, 1, 1).sum()
        ) * x.mean(1)  # fmt: skip


KINDS: dict[str, tuple[Callable[[], nn.Module], list[int]]] = {
    "normalisations": (FirstNormalisations, [4, 8, 6]),
    "padding": (Padding, [4, 2, 2, 3, 3]),
    "products": (Products, [6, 12]),
    "frozen": (Frozen, [4, 3, 6, 7]),
    "undescribed": (Undescribed, [4, 4]),
}


def make(kind: str, directory: Path) -> tuple[Path, Path]:
    """A captured step and its data."""
    torch.manual_seed(0)
    model, shape = KINDS[kind][0](), KINDS[kind][1]
    x = torch.rand(STEPS * shape[0], *shape[1:])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    step = tesser.Step(model, lambda m, b: m(b["x"]).square().mean(), {"x": x[: shape[0]]}, optimizer, name=kind)
    tesser.capture(step, directory / "step.tesser")
    write_data(directory / "data", {"x": x})
    return directory / "step.tesser", directory / "data"


def draw(program: Path, workers: int, seed: int) -> Path:
    plan = program.parent / f"{workers}-{seed}.plan"
    command = [binary().parent / "random_plan", program, workers, seed, plan]  # tests/partition/random_plan.cc
    subprocess.run([str(word) for word in command], check=True, timeout=60)
    return plan


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_one_worker(kind: str, tmp_path: Path) -> None:
    program, data = make(kind, tmp_path)
    one = trained(program, data, tmp_path / "one", *WORDS)
    runs = {
        "tofu": ["--workers", 2, "--preset", "tofu"],
        "dp": ["--workers", 3, "--preset", "dp"],
        "random-1": ["--workers", 3, "--plan", draw(program, 3, 1)],
        "random-2": ["--workers", 4, "--plan", draw(program, 4, 2)],
    }
    for name, words in runs.items():
        many = trained(program, data, tmp_path / name, *WORDS, *words)
        assert differences(many, one, TOLERANCE) == [], name


def test_what_is_not_described_is_named_once(tmp_path: Path) -> None:
    program, data = make("undescribed", tmp_path)
    run = train(program, data, *WORDS, "--workers", 2)
    assert run.code == 0, run.errors
    warnings = [note["message"] for note in run.of("note") if note["message"].startswith("warning: ")]
    found = {re.match(r"warning: (\S+) has no description that fits \(", text).group(1) for text in warnings}
    assert len(warnings) == len(set(warnings))
    assert {f"aten::{name}" for name in ("cumsum", "_softmax", "topk", "index_select", "unfold")} <= found
    cumsum = next(text for text in warnings if "aten::cumsum " in text)
    assert re.search(r"node cumsum\S* at \S*test_cuts\.py:\d+\); describe it in a \.tdl file", cumsum), cumsum
