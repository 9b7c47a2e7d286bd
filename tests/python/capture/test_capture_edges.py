"""Steps at the edges of what capture takes: their programs give eager PyTorch's numbers, interpreted and in C++."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from capture_eager import train_eagerly
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import lr_scheduler

import tesser
from tests.python.commands import run_tesser, tesser_output, train

STEP_COUNT = 4


class Counting(nn.Module):
    """Has buffers, modules and batch tensors under names that programs use themselves."""

    def __init__(self, buffer: str, start: Tensor) -> None:
        super().__init__()
        self.learning_rate = nn.ModuleDict({"0": nn.Linear(4, 6)})
        self.update = nn.Linear(6, 2)
        self.buffer = buffer
        self.register_buffer(buffer, start)

    def forward(self, x: Tensor) -> Tensor:
        count = self._buffers[self.buffer]
        with torch.no_grad():
            count += 1
        return self.update(torch.tanh(self.learning_rate["0"](x))) * (1 - 0.5 ** (count - 998).float())


def named(buffer: str, start: Tensor) -> tesser.Step:
    model = Counting(buffer, start)

    def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        y = F.dropout(model(batch["seed"]), 0.1)
        metrics = {"loss": y.abs().mean(), "seconds": y.max(), "step": y.min(), "learning_rate": y.std()}
        return F.mse_loss(y, batch["update.weight.new"]), metrics

    batch = {"seed": torch.randn(7, 4), "update.weight.new": torch.randn(7, 2)}
    return tesser.Step(model, loss, batch, torch.optim.Adam(model.parameters(), lr=0.02))


class Matrix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.eye(4) * 2 + 0.1 * torch.arange(16.0).view(4, 4).sin())


def of_matrix(function: Callable[[Tensor], Tensor]) -> tesser.Step:
    model = Matrix()
    return tesser.Step(
        model,
        lambda model, batch: function(model.w).sum() * batch["x"].mean(),
        {"x": torch.ones(4, 4)},
        torch.optim.SGD(model.parameters(), lr=0.1),
        forward=lambda model, batch: function(model.w) + 0 * batch["x"][0, 0],
    )


MASK = torch.tensor([[True, False, True, True]]).expand(4, 4)


class Masked(nn.Module):
    """An encoder with a float mask in a buffer and a boolean one of padding; one sample is padding from end to end."""

    def __init__(self, norm_first: bool, causal: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 6, padding_idx=0)
        layer = nn.TransformerEncoderLayer(6, 2, 10, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.encoder, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(6, 3)
        slope = torch.arange(5.0)[None] - torch.arange(5.0)[:, None]
        mask = nn.Transformer.generate_square_subsequent_mask(5) if causal else slope.masked_fill(slope > 0, -torch.inf)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        padding = words == 0
        h = self.encoder(self.words(words), mask=self.mask, src_key_padding_mask=padding)
        return self.out(h.masked_fill(padding[:, :, None], 0.0).sum(1))


def masked(norm_first: bool, causal: bool = False) -> tesser.Step:
    model = Masked(norm_first, causal)
    return tesser.Step(
        model,
        lambda model, batch: F.cross_entropy(model(batch["words"]), batch["y"], ignore_index=-1),
        {
            "words": torch.tensor([[1, 2, 3, 0, 0], [5, 6, 7, 8, 1], [0, 0, 0, 0, 0], [2, 0, 4, 0, 6]]),
            "y": torch.tensor([0, 1, -1, 2]),
        },
        torch.optim.SGD(model.parameters(), lr=0.2),
        forward=lambda model, batch: model(batch["words"]),
    )


def decoder() -> tesser.Step:
    """The causal mask is made in the step, so its values are known."""
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, dropout=0.0, batch_first=True), 1)

    def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        return model(batch["x"], batch["memory"], tgt_mask=mask).square().mean()

    batch = {"x": torch.randn(3, 5, 6), "memory": torch.randn(3, 4, 6)}
    return tesser.Step(model, loss, batch, torch.optim.SGD(model.parameters(), lr=0.1))


def aligned(kind: str) -> tesser.Step:
    """CTC with an empty target, one that cannot be aligned, and frames behind a sample's end."""
    model = nn.Linear(3, 6)
    frames, letters = (9, 9, 5, 4), (4, 0, 2, 3)

    def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        lengths = (torch.tensor(frames), torch.tensor(letters)) if kind == "tensors" else (frames, letters)
        reduction = kind if kind in ("sum", "none") else "mean"
        probabilities = model(batch["sound"].transpose(0, 1)).log_softmax(2)
        return F.ctc_loss(probabilities, batch["text"], *lengths, reduction=reduction, zero_infinity=True).sum()

    text = torch.tensor([[1, 2, 2, 5], [0, 0, 0, 0], [3, 1, 0, 0], [4, 4, 4, 0]])
    batch = {"sound": torch.randn(4, 9, 3), "text": text}
    return tesser.Step(model, loss, batch, torch.optim.SGD(model.parameters(), lr=0.5))


class Positions(nn.Module):
    """Builds a table of the input's length in its first pass, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("positions", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if self.positions.shape[0] != x.shape[1]:
            self.positions = torch.arange(x.shape[1], dtype=torch.float32).sqrt()
        return self.linear(x) + self.positions


def cached() -> tesser.Step:
    model = Positions()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return tesser.Step(model, lambda m, b: m(b["x"]).square().mean(), {"x": torch.randn(2, 4)}, optimizer)


def scheduled(make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]) -> tesser.Step:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.02}], lr=0.1)
    return tesser.Step(
        model, lambda m, b: m(b["x"]).square().mean(), {"x": torch.randn(3, 4)}, optimizer, schedule=make(optimizer)
    )


STEPS: dict[str, Callable[[], tesser.Step]] = {
    "buffer step": lambda: named("step", torch.tensor(1000)),
    "buffer step of floats": lambda: named("step", torch.tensor(1000.0)),
    "buffer constant/0": lambda: named("constant/0", torch.tensor(1000)),
    "buffer learning_rate/0": lambda: named("learning_rate/0", torch.tensor(1000)),
    "inverse": lambda: of_matrix(torch.linalg.inv),
    "cholesky": lambda: of_matrix(lambda w: torch.linalg.cholesky(w @ w.T)),
    "solve": lambda: of_matrix(lambda w: torch.linalg.solve(w, torch.ones(4))),
    "sign": lambda: of_matrix(lambda w: torch.sgn(w) * w),
    "known number": lambda: of_matrix(lambda w: w[:, : torch.tensor(min(w.size(1), 3))]),
    "known branch": lambda: of_matrix(lambda w: w * 2 if MASK.any() and torch.arange(3).sum() == 3 else w),
    "known mask": lambda: of_matrix(lambda w: w[torch.ones(4, 4).tril() > 0]),
    "known repeats": lambda: of_matrix(lambda w: torch.repeat_interleave(w, torch.tensor([1, 2, 1, 2]), dim=0)),
    "given output size": lambda: of_matrix(
        lambda w: torch.repeat_interleave(w, torch.tensor([1, 2, 1, 2]), dim=0, output_size=6)
    ),
    "known positions": lambda: of_matrix(lambda w: w[MASK[0].nonzero().squeeze(1)]),
    "encoder": lambda: masked(norm_first=False),
    "encoder, norm first": lambda: masked(norm_first=True),
    "causal encoder": lambda: masked(norm_first=False, causal=True),
    "decoder": decoder,
    "ctc": lambda: aligned("mean"),
    "ctc, lengths in tensors": lambda: aligned("tensors"),
    "ctc, sum": lambda: aligned("sum"),
    "cached buffer": cached,
    "cosine past its end": lambda: scheduled(lambda o: lr_scheduler.CosineAnnealingLR(o, 2, 1e-3)),
    "no warm-up": lambda: scheduled(
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.01, 1.0, 1), lr_scheduler.StepLR(o, 2, 0.5)], [0]
        )
    ),
    "one cycle to its end": lambda: scheduled(
        lambda o: lr_scheduler.OneCycleLR(o, [0.1, 0.02], total_steps=STEP_COUNT, cycle_momentum=False)
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STEPS)
def test_numbers_are_those_of_eager_pytorch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(4)
    step = STEPS[name]()
    program, data = tmp_path / "step.tesser", tmp_path / "data"
    tesser.capture(step, program)
    batches = [step.batch] * STEP_COUNT
    interpreted = tesser.interpret(program, STEP_COUNT, batches, seed=5)
    data.mkdir()
    save_file({key: tensor.clone() for key, tensor in step.batch.items()}, data / "data.safetensors")
    before = {key: tensor.clone() for key, tensor in step.model.state_dict().items()}
    losses, metrics = train_eagerly(step, batches, seed=5)
    state = step.model.state_dict()
    assert any(not torch.equal(tensor, before[key]) for key, tensor in state.items())

    ran = train(
        program, data, "--steps", STEP_COUNT, "--no-shuffle", "--seed", 5, "--checkpoint", tmp_path / "checkpoint"
    )
    assert ran.code == 0, ran.errors
    weights = tmp_path / "weights.safetensors"
    tesser_output("export", tmp_path / "checkpoint", "-o", weights)
    exported = load_file(weights)
    assert exported.keys() == state.keys()
    assert interpreted.losses == pytest.approx(losses, rel=1e-5)
    assert ran.losses == pytest.approx(losses, rel=1e-5)
    for event, expected in zip(ran.of("step"), metrics, strict=True):
        assert event["metrics"] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for key, expected in state.items():
        torch.testing.assert_close(interpreted.state[key], expected, rtol=1e-5, atol=2e-6)
        torch.testing.assert_close(exported[key], expected, rtol=1e-5, atol=2e-6)


def test_the_programs_own_names_give_way() -> None:
    program = tesser.capture(named("step", torch.tensor(1000))).program
    own = {value.role: value.name for value in program.inputs if value.role in ("step", "seed", "learning_rate")}
    assert own == {"step": "step_1", "learning_rate": "learning_rate/0", "seed": "seed_1"}
    assert [value.name for value in program.inputs_of("buffer")] == ["step"]
    assert [value.name for value in program.inputs_of("batch")] == ["seed", "update.weight.new"]
    (changed,) = [output for output in program.outputs if output.name == "update.weight"]
    assert changed.value == "update.weight.new_1"


def test_a_factorisation_that_fails_ends_the_run(tmp_path: Path) -> None:
    """PyTorch raises there; the result of the kernel is of no use."""
    step = of_matrix(lambda w: torch.linalg.cholesky(w - 4 * torch.eye(4)))
    tesser.capture(step, tmp_path / "step.tesser")
    run = tesser.interpret(tmp_path / "step.tesser", 1, [step.batch])
    assert run.losses[0] != run.losses[0]
    results = tesser.Interpreter.open(tmp_path / "step.tesser", "forward.json").forward(step.batch)
    assert results["result"].isnan().all()
    (tmp_path / "data").mkdir()
    save_file(dict(step.batch), tmp_path / "data" / "data.safetensors")
    ran = train(tmp_path / "step.tesser", tmp_path / "data", "--steps", 2)
    assert ran.code == 1 and "nan" in ran.errors


def test_a_run_past_the_end_of_a_one_cycle_is_refused(tmp_path: Path) -> None:
    step = STEPS["one cycle to its end"]()
    tesser.capture(step, tmp_path / "step.tesser")
    (tmp_path / "data").mkdir()
    save_file(dict(step.batch), tmp_path / "data" / "data.safetensors")
    ran = train(tmp_path / "step.tesser", tmp_path / "data", "--steps", STEP_COUNT + 2)
    assert ran.code == 2
    assert "has rates for 5 steps" in ran.errors and "train 5 steps" in ran.errors
    shown = run_tesser("show", tmp_path / "step.tesser")
    assert "end" in shown.output
    document = json.loads((tmp_path / "step.tesser" / "program.json").read_text())
    assert document["schedules"][0]["parts"][2] == {"kind": "end"}
