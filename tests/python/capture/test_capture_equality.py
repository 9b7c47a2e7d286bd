"""A captured program, interpreted, gives the numbers of a plain PyTorch loop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from capture_eager import batches_like, train_eagerly
from capture_steps import STEPS, language_model

import tesser
from tesser.interpreter import Interpreter

SEED = 11
STEP_COUNT = 4


def _model_state(step: tesser.Step) -> dict[str, torch.Tensor]:
    return dict(step.model.named_parameters()) | dict(step.model.named_buffers())


def _assert_state_equal(state: dict[str, torch.Tensor], step: tesser.Step) -> None:
    for name, expected in _model_state(step).items():
        torch.testing.assert_close(
            state[name], expected.detach(), rtol=1e-4, atol=2e-6, msg=lambda text, name=name: f"{name}: {text}"
        )
    for name, parameter in step.model.named_parameters():
        for slot, expected in step.optimizer.state.get(parameter, {}).items():
            if slot != "step" and expected is not None:
                torch.testing.assert_close(state[f"{name}/{slot}"], expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", STEPS)
def test_program_trains_as_pytorch_does(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    step = STEPS[name]()
    before = {name: tensor.detach().clone() for name, tensor in _model_state(step).items()}
    tesser.capture(step, tmp_path / "step.tesser")
    for tensor_name, tensor in _model_state(step).items():
        assert torch.equal(tensor, before[tensor_name]), f"capture changed {tensor_name}"
    assert not torch._C._len_torch_dispatch_stack() and step.model.training

    batches = batches_like(step, STEP_COUNT)
    run = tesser.interpret(tmp_path / "step.tesser", STEP_COUNT, batches, seed=SEED)
    losses, metrics = train_eagerly(step, batches, seed=SEED)
    assert run.losses == pytest.approx(losses, rel=1e-5)
    for found, expected in zip(run.metrics, metrics):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    _assert_state_equal(run.state, step)


@pytest.mark.parametrize("name", [name for name, make in STEPS.items() if make().forward is not None])
def test_forward_program_evaluates_as_pytorch_does(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    step = STEPS[name]()
    tesser.capture(step, tmp_path / "step.tesser")
    assert step.model.training
    batch = step.forward_batch or step.batch
    results = Interpreter.open(tmp_path / "step.tesser", "forward.json").forward(batch)
    step.model.eval()
    with torch.no_grad():
        expected = step.forward(step.model, batch)
    expected = expected if isinstance(expected, dict) else {"result": expected}
    assert results.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(results[key], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["encoder", "language_model", "gru_both_ways"])
def test_program_goes_on_from_an_optimizer_with_history(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    step = STEPS[name]()
    batches = batches_like(step, 6)
    train_eagerly(step, batches[:3], seed=SEED)
    captured = tesser.capture(step, tmp_path / "step.tesser")
    # SGD does not count its steps: 1 says that there are buffers.
    first_step = 1 if name == "gru_both_ways" else 3
    assert captured.program.first_step == first_step
    run = tesser.interpret(tmp_path / "step.tesser", 3, batches[3:], seed=SEED)
    losses, _ = train_eagerly(step, batches[3:], seed=SEED, first_step=first_step)
    assert run.losses == pytest.approx(losses, rel=1e-5)
    _assert_state_equal(run.state, step)


def test_interpreter_reports_a_batch_of_another_shape(tmp_path: Path) -> None:
    step = language_model()
    tesser.capture(step, tmp_path / "step.tesser")
    interpreter = Interpreter.open(tmp_path / "step.tesser")
    with pytest.raises(tesser.ProgramError, match=r"tokens.*int32.*takes int64"):
        interpreter.step({"tokens": step.batch["tokens"].int(), "targets": step.batch["targets"]})
    with pytest.raises(tesser.ProgramError, match="no 'targets'"):
        interpreter.step({"tokens": step.batch["tokens"]})


def test_program_without_state_cannot_be_run(tmp_path: Path) -> None:
    tesser.capture(language_model(), tmp_path / "step.tesser", state=False)
    assert not (tmp_path / "step.tesser" / "state.safetensors").exists()
    with pytest.raises(tesser.ProgramError, match="captured without state"):
        Interpreter.open(tmp_path / "step.tesser")
