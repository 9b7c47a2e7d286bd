"""What a run computes and says: the numbers of a plain PyTorch loop over the documented order of the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tesser.data import order
from tests.python.commands import contents, run_tesser, train
from tests.python.train.train_steps import BATCH, classifier_step, language_step


def pytorch_losses(data: Path, epochs: int, seed: int | None) -> list[float]:
    step = classifier_step(dropout=0.0)
    arrays = {name: torch.from_numpy(np.load(data / f"{name}.npy")) for name in ("images", "labels")}
    samples = len(arrays["images"])
    losses = []
    for epoch in range(epochs):
        places = np.arange(samples) if seed is None else order(seed, epoch, samples)
        for first in range(0, samples - BATCH + 1, BATCH):
            batch = {name: array[places[first : first + BATCH]] for name, array in arrays.items()}
            step.optimizer.zero_grad()
            loss, _ = step.loss(step.model, batch)
            loss.backward()
            step.optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize("seed", [None, 0, 11])
def test_losses_are_those_of_pytorch_over_the_documented_order(programs: Path, data: Path, seed: int | None) -> None:
    words = ["--no-shuffle"] if seed is None else ["--seed", seed]
    run = train(programs / "plain.tesser", data / "train", "--epochs", 3, *words)
    assert run.code == 0, run.errors
    np.testing.assert_allclose(run.losses, pytorch_losses(data / "train", 3, seed), rtol=1e-5)


def test_events(classifier: Path, data: Path, tmp_path: Path) -> None:
    run = train(
        classifier,
        data / "train",
        "--epochs",
        2,
        "--evaluate",
        data / "check",
        "--checkpoint",
        tmp_path / "run",
        "--every",
        4,
    )
    assert run.code == 0, run.errors
    assert [event["event"] for event in run.events if event["event"] != "checkpoint"] == (
        ["start", *["step"] * 5, "evaluation", *["step"] * 5, "evaluation", "end"]
    )
    start = run.of("start")[0]
    assert (start["step"], start["until_step"], start["batches_per_epoch"], start["samples"]) == (0, 10, 5, 43)
    assert start["left_out"] == 3
    steps = run.of("step")
    assert [step["step"] for step in steps] == list(range(1, 11))
    assert [step["epoch"] for step in steps] == [1] * 5 + [2] * 5
    assert all(step["learning_rate"] == 1e-2 and 0 <= step["metrics"]["accuracy"] <= 1 for step in steps)
    assert [event["step"] for event in run.of("checkpoint")] == [4, 8, 10]
    evaluation = run.of("evaluation")[-1]
    assert evaluation["results"].keys() == {"loss", "accuracy"}
    assert (evaluation["samples"], evaluation["left_out"]) == (16, 1)
    end = run.of("end")[0]
    assert (end["steps"], end["step"], end["interrupted"]) == (10, 10, False)
    assert end["final_loss"] == steps[-1]["loss"]
    assert end["peak_bytes"] > 0 and end["samples_per_second"] > 0
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["lock", "step-00000008", "step-00000010"]


def test_two_runs_are_equal_to_the_bit(classifier: Path, data: Path, tmp_path: Path) -> None:
    runs = [train(classifier, data / "train", "--steps", 12, "--checkpoint", tmp_path / name) for name in "ab"]
    assert runs[0].losses == runs[1].losses and len(runs[0].losses) == 12
    assert contents(tmp_path / "a" / "step-00000012") == contents(tmp_path / "b" / "step-00000012")
    other = train(classifier, data / "train", "--steps", 12, "--seed", 1)
    assert other.losses != runs[0].losses


def test_lines_for_people(classifier: Path, data: Path, tmp_path: Path) -> None:
    words = ("train", classifier, "--data", data / "train", "--epochs", 2, "--evaluate", data / "check", "--threads", 1)
    run = run_tesser(*words)
    assert run.code == 0, run.errors
    assert "leaves out the 3 samples" in run.output
    assert "epoch 2/2  step 10/10  loss " in run.output
    assert "epoch 2, step 10: evaluation: loss " in run.output
    assert "done after step 10, loss " in run.output
    assert "\r" not in run.output


def test_evaluate_agrees_with_the_run_and_with_pytorch(programs: Path, data: Path, tmp_path: Path) -> None:
    program = programs / "plain.tesser"
    run = train(program, data / "train", "--epochs", 2, "--evaluate", data / "check", "--checkpoint", tmp_path / "run")
    results = run.of("evaluation")[-1]["results"]
    weights = tmp_path / "weights.safetensors"
    exported = run_tesser("export", tmp_path / "run", "-o", weights)
    assert exported.code == 0, exported.errors
    for source in (tmp_path / "run", tmp_path / "run" / "step-00000010", weights):
        evaluated = run_tesser(
            "evaluate", program, "--weights", source, "--data", data / "check", "--threads", 1, "--json"
        )
        assert evaluated.code == 0, evaluated.errors
        assert evaluated.events[0]["results"] == results
    people = run_tesser("evaluate", program, "--weights", weights, "--data", data / "check")
    assert people.code == 0 and people.output.startswith("loss ") and "1 do not fill a batch" in people.output

    from safetensors.torch import load_file

    step = classifier_step()
    step.model.load_state_dict(load_file(weights), strict=True)
    step.model.eval()
    images, labels = (torch.from_numpy(np.load(data / "check" / f"{name}.npy"))[:16] for name in ("images", "labels"))
    with torch.no_grad():
        loss, metrics = step.loss(step.model, {"images": images, "labels": labels})
    assert results["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert results["accuracy"] == pytest.approx(metrics["accuracy"].item())


def test_run_writes_the_results_of_one_batch(programs: Path, data: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    images, labels = (
        torch.from_numpy(np.load(data / "check" / f"{name}.npy"))[:BATCH] for name in ("images", "labels")
    )
    save_file({"images": images, "labels": labels}, tmp_path / "batch.safetensors")
    output = tmp_path / "results.safetensors"
    run = run_tesser("run", programs / "plain.tesser", "--input", tmp_path / "batch.safetensors", "-o", output)
    assert run.code == 0, run.errors
    model = classifier_step(dropout=0.0).model.eval()
    results = load_file(output)
    assert results.keys() == {"loss", "logits", "accuracy"}
    torch.testing.assert_close(results["logits"], model(images), rtol=1e-5, atol=1e-6)
    refused = run_tesser("run", programs / "plain.tesser", "--input", data / "check", "-o", output)
    assert refused.code == 2 and "the input has 17 samples" in refused.errors and "takes exactly 8" in refused.errors


def test_a_tied_model_trains_generates_and_goes_back_to_pytorch(programs: Path, text: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    program = programs / "language.tesser"
    run = train(program, text, "--epochs", 10, "--checkpoint", tmp_path / "run")
    assert run.code == 0, run.errors
    assert run.losses[-1] < 0.7 * run.losses[0]

    weights = tmp_path / "weights.safetensors"
    assert run_tesser("export", tmp_path / "run", "-o", weights).code == 0
    model = language_step().model
    model.load_state_dict(load_file(weights), strict=True)

    words = (
        "generate",
        program,
        "--weights",
        tmp_path / "run",
        "--vocabulary",
        text,
        "--prompt",
        "abc",
        "--threads",
        1,
    )
    likeliest = run_tesser(*words, "--length", 30, "--temperature", 0)
    assert likeliest.code == 0, likeliest.errors
    characters = "\n abcdeé"
    tokens = [characters.index(character) for character in "abc"]
    for _ in range(30):
        with torch.no_grad():
            tokens.append(model(torch.tensor([tokens[-12:]]))[0, -1].argmax().item())
    assert likeliest.output == "".join(characters[token] for token in tokens) + "\n"

    drawn = [run_tesser(*words, "--length", 60, "--seed", seed).output for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 3 + 60 + 1
    refused = run_tesser(*words[:6], "--prompt", "xyz")
    assert refused.code == 2 and 'the character "x" is not in the vocabulary' in refused.errors
