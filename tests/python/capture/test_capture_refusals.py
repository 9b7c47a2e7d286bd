"""What cannot become a program ends in one error that names the user's line and what to do instead."""

from __future__ import annotations

import importlib
import inspect
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import lr_scheduler

import tesser
from tesser import CaptureError, Step

Batch = dict[str, Tensor]


def _step(loss: Callable[[nn.Module, Batch], Any], model: nn.Module | None = None, **options: Any) -> Step:
    model = model or nn.Linear(4, 4)
    options.setdefault("batch", {"x": torch.randn(6, 4)})
    if "optimizer" not in options:
        options["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    return Step(model, loss, **options)


def _refusal(step: Step) -> CaptureError:
    state = {name: tensor.clone() for name, tensor in step.model.state_dict().items()}
    with pytest.raises(CaptureError) as caught:
        tesser.capture(step)
    assert not torch._C._len_torch_dispatch_stack(), "modes are left on after a refusal"
    for name, tensor in step.model.state_dict().items():
        assert type(tensor) is Tensor and torch.equal(tensor, state[name])
    assert re.match(r".*test_capture_refusals\.py:\d+: \S", str(caught.value)), "without the user's line"
    return caught.value


def _line(function: Callable[..., Any], text: str) -> int:
    """The only line of a function with this text."""
    lines, first = inspect.getsourcelines(function)
    (here,) = [first + offset for offset, line in enumerate(lines) if text in line]
    return here


def _item(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean() * model(batch["x"]).max().item()  # HERE


def _branch(model: nn.Module, batch: Batch) -> Tensor:
    y = model(batch["x"])
    if y.sum() > 0:  # HERE
        y = -y
    return y.mean()


def _tolist(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean() + sum(batch["x"][0].tolist())  # HERE


def _numpy(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean() + float(batch["x"].numpy().mean())  # HERE


def _python_float(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean() * float(batch["x"].mean())  # HERE


def _loop(model: nn.Module, batch: Batch) -> Tensor:
    y = model(batch["x"])
    for _ in range(int(batch["x"].argmax())):  # HERE
        y = y * 2
    return y.mean()


def _allclose(model: nn.Module, batch: Batch) -> Tensor:
    y = model(batch["x"])
    assert not torch.equal(y, batch["x"])  # HERE
    return y.mean()


def _nonzero(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean() + torch.nonzero(batch["x"] > 0).sum()  # HERE


def _masked_select(model: nn.Module, batch: Batch) -> Tensor:
    return torch.masked_select(model(batch["x"]), batch["x"] > 0).mean()  # HERE


def _boolean_index(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"])[batch["x"] > 0].mean()  # HERE


def _unique(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean() + torch.unique(batch["x"]).sum()  # HERE


def _one_hot(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean() + F.one_hot(batch["x"][:, 0].long()).sum()  # HERE


def _bincount(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean() + torch.bincount(batch["x"][:, 0].long()).sum()  # HERE


def _least_squares(model: nn.Module, batch: Batch) -> Tensor:
    return torch.linalg.lstsq(model(batch["x"]), batch["x"]).solution.mean()  # HERE


def _lengths(model: nn.Module, batch: Batch) -> Tensor:
    probabilities = model(batch["x"][:, None]).log_softmax(2)
    return F.ctc_loss(probabilities, torch.ones(1, 2).long(), batch["x"][:1, 0].long(), (2,))  # HERE


def _choice(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean() + torch.multinomial(batch["x"].abs(), 1).sum()  # HERE


def _fourier(model: nn.Module, batch: Batch) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(model(batch["x"]))).mean()  # HERE


def _diagonal(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).fill_diagonal_(1.0).mean()  # HERE


def _repeat_interleave(model: nn.Module, batch: Batch) -> Tensor:
    return torch.repeat_interleave(model(batch["x"]), batch["x"][:, 0].long(), 0).mean()  # HERE


@pytest.mark.parametrize(
    ("loss", "remedy"),
    [(loss, "torch.where") for loss in (_item, _branch, _tolist, _numpy, _python_float, _loop, _allclose)]
    + [(loss, "use a mask") for loss in (_nonzero, _masked_select, _boolean_index, _unique)]
    + [
        (_repeat_interleave, "Give it output_size"),
        (_one_hot, "num_classes"),
        (_bincount, "scatter_add"),
        (_least_squares, "the normal equations"),
        (_lengths, "input_lengths of ctc_loss depends on the data"),
        (_choice, "argmax of logits - log(-log(torch.rand(...)))"),
        (_fourier, "a product with a matrix of cosines and one of sines"),
        (_diagonal, "torch.where with a mask for fill_diagonal_"),
    ],
)
def test_what_no_program_holds_is_refused_at_its_line(loss: Callable[..., Tensor], remedy: str) -> None:
    error = _refusal(_step(loss))
    assert remedy in str(error)
    assert str(error).split(": ")[0].endswith(f"test_capture_refusals.py:{_line(loss, '# HERE')}")


def test_as_strided_is_refused() -> None:
    error = _refusal(_step(lambda m, b: m(b["x"]).as_strided((2, 2), (1, 2)).mean()))
    assert "addresses memory by strides" in str(error) and "use slicing" in str(error)


def test_operators_of_other_libraries_are_refused() -> None:
    library = torch.library.Library("elsewhere", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    library.impl("twice", lambda x: x.new_empty(x.shape), "Meta")
    error = _refusal(_step(lambda m, b: m(torch.ops.elsewhere.twice(b["x"])).mean()))
    assert "operator elsewhere::twice is not supported" in str(error)
    library._destroy()


def test_sparse_gradients_are_refused() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True))
    error = _refusal(_step(lambda m, b: m(b["x"]).mean(), model, batch={"x": torch.zeros(2, dtype=torch.int64)}))
    assert "sparse" in str(error)


def test_complex_numbers_are_refused() -> None:
    error = _refusal(_step(lambda m, b: torch.fft.rfft(m(b["x"])).abs().mean()))
    assert "complex64, which programs cannot hold: their numbers are real" in str(error)


def test_randomness_without_a_counter_is_refused() -> None:
    generator = torch.Generator()
    error = _refusal(_step(lambda m, b: m(b["x"]).mean() + torch.rand(3, generator=generator).sum()))
    assert "generator" in str(error)


@pytest.mark.parametrize(
    ("draw", "name"), [(lambda: random.random() < 2, "random"), (lambda: np.random.randint(3) < 3, "numpy.random")]
)
def test_numbers_of_other_generators_are_refused(draw: Callable[[], bool], name: str) -> None:
    """A layer left out by chance, say: it would be left out in every step, or in none."""

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        y = model(batch["x"])
        if draw():
            y = y.tanh()  # HERE
        return y.mean()

    error = _refusal(_step(loss))
    lines, first = inspect.getsourcelines(loss)
    (here,) = [first + offset for offset, line in enumerate(lines) if "# HERE" in line]
    assert f"test_capture_refusals.py:{here}: numbers are drawn with {name}, which" in str(error)


def test_dropout_inside_a_checkpoint_is_refused() -> None:
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Tanh())
    error = _refusal(_step(lambda m, b: checkpoint(m, b["x"], use_reentrant=False).sum(), model))
    assert "Leave dropout out of the checkpointed part" in str(error)


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (lambda m, b: m(b["x"]), r"no scalar of a floating type but torch.float32 of shape \[6, 4\]; reduce it"),
        (lambda m, b: m(b["x"]).sum(1), "reduce it"),
        (lambda m, b: m(b["x"]).argmax(), "no scalar of a floating type but torch.int64"),
        (lambda m, b: 1.0, "returned float; return a scalar tensor"),
        (lambda m, b: b["x"].mean(), "does not depend on any parameter"),
        (lambda m, b: m(b["x"]).detach().mean(), "does not depend on any parameter"),
        (lambda m, b: (m(b["x"]).mean(), {"y": m(b["x"])}), r"metric 'y' is of shape \[6, 4\]"),
        (lambda m, b: (m(b["x"]).mean(), {"y": 3}), "metric 'y' is int"),
        (lambda m, b: (m(b["x"]).mean(), [1]), "metrics are a mapping"),
    ],
)
def test_what_the_loss_returns_is_checked(loss: Callable[..., Any], text: str) -> None:
    with pytest.raises(CaptureError, match=text):
        tesser.capture(_step(loss))


def _mean(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).mean()


def test_batch_tensors_that_alias_are_refused() -> None:
    x = torch.randn(6, 5)
    for batch in ({"x": x[:, :4], "y": x[:, 1:]}, {"x": x[:, :4], "y": x}):
        error = _refusal(_step(_mean, batch=batch))
        assert "batch['y'] shares its memory with 'x'" in str(error) and "y.clone()" in str(error)
    model = nn.Linear(4, 4)
    error = _refusal(_step(_mean, model, batch={"x": model.weight.detach()}))
    assert "shares its memory with 'weight'" in str(error)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ({}, "non-empty mapping"),
        ([torch.zeros(2)], "non-empty mapping"),
        ({"x": [1.0]}, "is of type list"),
        ({"weight": torch.zeros(2, 4)}, "has the name of a parameter or buffer of the model; rename it"),
        ({"": torch.zeros(2, 4)}, "has a name that programs cannot hold"),
        ({"a\nb": torch.zeros(2, 4)}, "has a name that programs cannot hold"),
        ({"\ud800": torch.zeros(2, 4)}, "no Unicode text"),
        ({3: torch.zeros(2, 4)}, "has a name of type int; give it a string"),
        (
            {"x": torch.zeros(5, 4), "edges": torch.zeros(2, 9)},
            "give each tensor a dimension before its own",
        ),
        ({"x": torch.zeros(5, 4), "rate": torch.tensor(0.5)}, "Use a Python number for what stays the same"),
        ({"x": torch.zeros(0, 4)}, "which holds no sample"),
        ({"x": torch.zeros(2, 4, requires_grad=True)}, "needs a gradient"),
        ({"x": torch.zeros(2, 4, dtype=torch.complex64)}, "complex64, which programs cannot hold"),
        ({"x": torch.zeros(2, 4).to_sparse()}, "use a dense tensor"),
    ],
)
def test_batches_of_no_use_are_refused(batch: Any, text: str) -> None:
    assert text in str(_refusal(_step(_mean, batch=batch)))


def test_parameters_outside_the_optimizer_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    error = _refusal(_step(_mean, model, optimizer=torch.optim.SGD(model[0].parameters(), lr=0.1)))
    assert "not in the optimizer: 1.weight, 1.bias" in str(error) and "requires_grad_(False)" in str(error)


def test_parameters_of_another_model_are_refused() -> None:
    other, model = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    assert "parameter 2 of the optimizer's group 0, shape [4, 4], is not a parameter of the model" in str(
        _refusal(_step(_mean, model, optimizer=optimizer))
    )


def test_trained_tensors_outside_the_model_are_refused() -> None:
    free = torch.randn(4, requires_grad=True)
    assert "needs a gradient is not a parameter of the model" in str(
        _refusal(_step(lambda m, b: (m(b["x"]) * free).mean()))
    )


def test_a_parameter_kept_outside_the_modules_is_refused() -> None:
    model = nn.Linear(4, 4)
    weight, transposed = model.weight, model.weight.detach().t()
    error = _refusal(_step(lambda m, b: m(b["x"]).mean() + weight.square().sum(), model))
    assert "'weight' of the model is used through a reference" in str(error)
    error = _refusal(_step(lambda m, b: m(b["x"]).mean() + transposed.sum(), model))
    assert "'weight' of the model is used through a reference" in str(error)


def test_a_batch_tensor_that_is_not_the_given_one_is_refused() -> None:
    x = torch.randn(6, 4)
    error = _refusal(_step(lambda m, b: m(x[:2]).mean(), batch={"x": x}))
    assert "batch['x'] is used through a reference" in str(error)


def test_gradient_and_optimizer_hooks_are_refused() -> None:
    model = nn.Linear(4, 4)
    handle = model.weight.register_hook(lambda gradient: gradient * 2)
    assert "'weight' has a hook on its gradient" in str(_refusal(_step(_mean, model)))
    handle.remove()
    step = _step(_mean, model)
    step.optimizer.register_step_post_hook(lambda *arguments: None)
    assert "hooks on its step" in str(error := _refusal(step)) and "clip_norm or clip_value" in str(error)


def test_a_change_of_a_tensor_that_is_no_buffer_is_refused() -> None:
    calls = torch.zeros(())

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        calls.add_(1)
        return model(batch["x"]).mean() * calls

    assert "register_buffer" in str(_refusal(_step(loss)))
    assert calls == 0


def test_a_buffer_that_changes_its_shape_is_refused() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("seen", torch.zeros(0, 4))

        def forward(self, x: Tensor) -> Tensor:
            self.seen = torch.cat([self.seen, x.detach()])
            return self.linear(x) + self.seen.mean()

    error = _refusal(_step(_mean, Growing()))
    assert "buffer 'seen' changes in the step" in str(error) and "Give the buffer its final size" in str(error)
    assert f":{_line(Growing.forward, 'torch.cat')}: " in str(error)


def test_names_that_no_file_holds_are_refused() -> None:
    for name in ("a\nb", "__metadata__"):
        model = nn.Linear(4, 4)
        model.register_buffer(name, torch.zeros(2))
        assert f"the buffer {name!r} has a name that programs cannot hold" in str(_refusal(_step(_mean, model)))
    model = nn.Sequential()
    model.add_module("tab\t", nn.Linear(4, 4))
    assert r"the module 'tab\t' has a name" in str(_refusal(_step(_mean, model)))
    error = _refusal(_step(lambda m, b: (m(b["x"]).mean(), {"": b["x"].sum()})))
    assert "the metric '' has a name" in str(error)
    error = _refusal(_step(_mean, forward=lambda m, b: {1: m(b["x"])}))
    assert "the result 1 has a name of type int" in str(error)
    assert "the step 'a\\x07'" in str(_refusal(_step(_mean, name="a\a")))


def test_schedules_are_refused_at_the_line_of_the_step() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for schedule, text in (
        (lr_scheduler.LambdaLR(optimizer, lambda step: 1.0), "LambdaLR has no form as data. Use one of StepLR"),
        (lr_scheduler.StepLR(optimizer, 0), "step_size of StepLR is 0; give 1 or more"),
        (3, "a step's schedule is a tesser.schedules schedule"),
    ):
        error = _refusal(_step(_mean, model, optimizer=optimizer, schedule=schedule))
        assert f"test_capture_refusals.py:{_line(_step, 'return Step')}: {text}" in str(error)


def test_what_the_loss_returns_is_refused_at_the_line_of_the_loss() -> None:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["x"])

    assert f":{inspect.getsourcelines(loss)[1]}: the loss is no scalar" in str(_refusal(_step(loss)))


def test_fused_experts_of_transformers_point_to_their_option() -> None:
    from transformers.integrations import moe  # noqa: F401  (registers the operator)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        ends = torch.tensor([2, 6], dtype=torch.int32)
        return torch.ops.transformers.grouped_mm_fallback(model(batch["x"]), torch.ones(2, 4, 4), ends).mean()

    assert 'experts_implementation="batched_mm"' in str(_refusal(_step(loss)))


def test_parameters_that_share_memory_without_being_tied_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = nn.Parameter(model[0].weight.detach().t())
    error = _refusal(_step(_mean, model))
    assert "'0.weight' and '1.weight' share memory" in str(error) and "the same nn.Parameter" in str(error)


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        (lambda p: torch.optim.RMSprop(p), "The nearest to it is torch.optim.Adam"),
        (lambda p: torch.optim.LBFGS(p), "The nearest to it is torch.optim.SGD"),
        (lambda p: torch.optim.SGD(p, lr=0.1, differentiable=True), "differentiable=True"),
        (lambda p: "sgd", "of type str; use torch.optim.SGD, Adam or AdamW"),
    ],
)
def test_optimizers_without_an_operator_are_refused(optimizer: Callable[..., Any], text: str) -> None:
    model = nn.Linear(4, 4)
    assert text in str(_refusal(_step(_mean, model, optimizer=optimizer(list(model.parameters())))))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"accumulate": 4}, "batch['x'] has 6 entries along dimension 0, which 4 micro-batches"),
        ({"accumulate": 0}, "accumulate is 0"),
        ({"clip_norm": 0.0}, "clip_norm is 0.0"),
        ({"clip_value": -1.0}, "clip_value is -1.0"),
        ({"forward": lambda m, b: 3}, "returned int for 'result'"),
        ({"forward": lambda m, b: {}}, "returned no tensor"),
        ({"forward": lambda m, b: m(b["x"]).mean().item()}, "item()"),
        ({"model": "net"}, "must be a torch.nn.Module"),
        ({"loss": 3}, "loss of the step must be a function"),
    ],
)
def test_settings_are_checked(options: dict[str, Any], text: str) -> None:
    step = _step(_mean)
    for name, value in options.items():
        setattr(step, name, value)
    with pytest.raises(CaptureError) as caught:
        tesser.capture(step)
    assert text in str(caught.value)


def test_frozen_models_are_refused() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.requires_grad_(False)
    assert "there is nothing to train" in str(_refusal(_step(_mean, model, optimizer=optimizer)))


def test_lazy_models_are_refused() -> None:
    model = nn.LazyLinear(3)
    with pytest.raises(CaptureError, match="run the model once"):
        tesser.capture(_step(_mean, model))


def test_another_default_dtype_is_refused() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert "default dtype is torch.float64" in str(_refusal(_step(_mean)))
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_exception_of_the_users_names_its_line() -> None:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["x"]), batch["labels"])

    error = _refusal(_step(loss))
    line = inspect.getsourcelines(loss)[1] + 1
    assert f"test_capture_refusals.py:{line}: KeyError: 'labels'" in str(error)


def test_packed_sequences_and_projections_are_refused() -> None:
    model = nn.LSTM(4, 4, proj_size=2)
    error = _refusal(_step(lambda m, b: m(b["x"])[0].mean(), model))
    assert "proj_size" in str(error)


def test_nothing_is_left_when_the_output_cannot_be_written(tmp_path: Path) -> None:
    captured = tesser.capture(_step(_mean))
    target = tmp_path / "notes.tesser"
    target.mkdir()
    (target / "diary.txt").write_text("mine")
    with pytest.raises(CaptureError, match="exists and is no program directory"):
        captured.save(target)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.tesser"]
    assert (target / "diary.txt").read_text() == "mine"
    with pytest.raises(CaptureError, match="no such directory"):
        captured.save(tmp_path / "missing" / "step.tesser")
    (tmp_path / "file.tesser").write_text("")
    with pytest.raises(CaptureError, match="exists and is no program directory"):
        captured.save(tmp_path / "file.tesser")


def test_a_program_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    step = _step(_mean, forward=lambda m, b: m(b["x"]))
    tesser.capture(step, tmp_path / "step.tesser")
    assert (tmp_path / "step.tesser" / "forward.json").exists()
    step.forward = None
    tesser.capture(step, tmp_path / "step.tesser")
    assert sorted(path.name for path in (tmp_path / "step.tesser").iterdir()) == ["program.json", "state.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["step.tesser"]


def test_a_failure_while_writing_leaves_the_old_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = tesser.capture(_step(_mean))
    captured.save(tmp_path / "step.tesser")
    before = (tmp_path / "step.tesser" / "program.json").read_text()

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(importlib.import_module("tesser.capture"), "save_file", full)
    with pytest.raises(CaptureError, match="cannot be written: No space left on device"):
        captured.save(tmp_path / "step.tesser")
    assert (tmp_path / "step.tesser" / "program.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["step.tesser"]
