"""What can be wrong with a user's input or machine: one clear message, the documented exit code, nothing lost."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.python.commands import contents, run_tesser, start_training, train, write_classifier_data


def spoil(change: Callable[[Path], object]) -> Callable[[Path, Path], list]:
    """A case whose data directory is a good one, changed."""

    def prepare(data: Path, directory: Path) -> list:
        shutil.copytree(data / "train", directory / "data")
        change(directory / "data")
        return ["--data", directory / "data"]

    return prepare


def save(name: str, array: np.ndarray) -> Callable[[Path], object]:
    return lambda directory: np.save(directory / f"{name}.npy", array)


IMAGES = np.zeros((43, 6), dtype=np.float32)

BAD_INPUT = {
    "no data directory": (lambda data, directory: ["--data", directory / "none"], ["none: no such data directory"]),
    "no file": (
        spoil(lambda directory: (directory / "images.npy").unlink()),
        ["no data for batch value 'images': expected images.npy", "the directory holds labels.npy"],
    ),
    "wrong dtype": (
        spoil(save("images", IMAGES.astype(np.float64))),
        ["images.npy: batch value 'images' expects float32[N, 6], the file has float64[43, 6]"],
    ),
    "wrong shape": (
        spoil(save("images", IMAGES[:, :5])),
        ["images.npy: batch value 'images' expects float32[N, 6], the file has float32[43, 5]"],
    ),
    "Fortran order": (spoil(save("images", np.asfortranarray(IMAGES))), ["images.npy: the array is in Fortran order"]),
    "big endian": (spoil(save("images", IMAGES.astype(">f4"))), ["images.npy: numpy dtype '>f4' is not supported"]),
    "different sample counts": (
        spoil(save("images", IMAGES[:40])),
        ["labels.npy: has 43 samples of 'labels', but", "images.npy has 40 of 'images'"],
    ),
    "too few samples": (
        spoil(lambda directory: [np.save(path, np.load(path)[:7]) for path in directory.glob("*.npy")]),
        ["images.npy: has 7 samples, too few for one batch of 8"],
    ),
    "no array": (
        spoil(lambda directory: (directory / "images.npy").write_text("hello")),
        ["images.npy: not a .npy file"],
    ),
    "truncated array": (
        spoil(lambda directory: os.truncate(directory / "images.npy", 500)),
        ["images.npy: truncated .npy file: the header promises 1032 bytes"],
    ),
    "steps and epochs": (lambda data, directory: ["--data", data / "train", "--steps", 1, "--epochs", 1], ["--steps"]),
    "negative steps": (lambda data, directory: ["--data", data / "train", "--steps", -1], ["--steps"]),
    "resume from nowhere": (lambda data, directory: ["--data", data / "train", "--resume"], ["--checkpoint"]),
    "no data option": (lambda data, directory: [], ["--data is required"]),
    "unknown option": (lambda data, directory: ["--data", data / "train", "--stepps", 3], ["--stepps"]),
    "checkpoints into a file": (
        lambda data, directory: ["--data", data / "train", "--checkpoint", data / "train" / "images.npy"],
        ["images.npy: cannot make this checkpoint directory"],
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input(classifier: Path, data: Path, tmp_path: Path, case: str) -> None:
    prepare, messages = BAD_INPUT[case]
    run = run_tesser("train", classifier, *prepare(data, tmp_path), "--threads", 1)
    assert run.code == 2, run.errors
    for message in messages:
        assert message in run.errors
    assert run.errors.startswith("tesser train: ")
    assert "step 1" not in run.output


def test_bad_programs(classifier: Path, data: Path, tmp_path: Path) -> None:
    words = ("--data", data / "train")
    run = run_tesser("train", tmp_path / "none.tesser", *words)
    assert run.code == 2 and "none.tesser" in run.errors and "no such" in run.errors
    run = run_tesser("train", classifier / "program.json", *words)
    assert run.code == 2 and "is a file, expected a program directory" in run.errors
    copy = tmp_path / "copy.tesser"
    shutil.copytree(classifier, copy)
    (copy / "state.safetensors").unlink()
    run = run_tesser("train", copy, *words)
    assert run.code == 2 and "state.safetensors" in run.errors and "--no-state" in run.errors
    (copy / "forward.json").unlink()
    run = run_tesser("evaluate", copy, *words)
    assert run.code == 2 and "has no forward program" in run.errors
    (copy / "program.json").write_text("{")
    run = run_tesser("train", copy, *words)
    assert run.code == 2 and "program.json" in run.errors


def test_no_such_optimizer(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(
        "import torch\n"
        "from tesser import Step\n"
        "def step():\n"
        "    model = torch.nn.Linear(2, 2)\n"
        "    return Step(model, lambda model, batch: model(batch['x']).sum(), {'x': torch.zeros(3, 2)},\n"
        "                torch.optim.RMSprop(model.parameters()))\n"
    )
    run = run_tesser("capture", tmp_path / "step.py", "-o", tmp_path / "x.tesser")
    assert run.code == 2, run.errors
    assert "RMSprop" in run.errors and "AdamW" in run.errors
    assert not (tmp_path / "x.tesser").exists()


def nan_data(directory: Path) -> Path:
    """The thirteenth sample, in batch 2 of the unshuffled order, is not a number."""
    write_classifier_data(directory, 43, 0)
    images = np.load(directory / "images.npy")
    images[12] = np.nan
    np.save(directory / "images.npy", images)
    return directory


def test_nan_loss(classifier: Path, tmp_path: Path) -> None:
    data = nan_data(tmp_path / "data")
    words = ("--no-shuffle", "--checkpoint", tmp_path / "run", "--every", 1)
    run = train(classifier, data, *words)
    assert run.code == 1
    assert "step 2 (epoch 1): the loss is nan" in run.errors and "--check-nan" in run.errors
    assert "step-00000001 is complete: go on from it with --resume" in run.errors
    assert run.of("error") == [{"event": "error", "message": run.of("error")[0]["message"], "exit_code": 1}]
    assert run.losses[1] is None
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["lock", "step-00000001"]


@pytest.mark.parametrize("order", [["--no-shuffle"], ["--seed", 3]])
def test_check_nan_names_the_sample_that_is_not_a_number(classifier: Path, tmp_path: Path, order: list) -> None:
    run = train(classifier, nan_data(tmp_path / "data"), "--check-nan", "--epochs", 3, *order)
    assert run.code == 1
    assert "sample 12 (from 0) of batch value 'images' in" in run.errors and "holds NaN" in run.errors


def test_check_nan_names_the_first_operator(programs: Path, tmp_path: Path) -> None:
    # A learning rate that makes the weights overflow: the inputs are finite, some operator's result is not.
    program = tmp_path / "wild.tesser"
    shutil.copytree(programs / "plain.tesser", program)
    text = (program / "program.json").read_text()
    assert '"rate":0.01' in text
    edited = [line for line in text.replace('"rate":0.01', '"rate":1e+38').splitlines() if '"checksum"' not in line]
    (program / "program.json").write_text("\n".join(edited) + "\n")
    data = tmp_path / "data"
    write_classifier_data(data, 43, 0)
    run = train(program, data, "--check-nan", "--steps", 50)
    assert run.code == 1, run.errors
    assert "step " in run.errors and "(epoch 1)" in run.errors
    names = [node["name"] for node in json.loads(text)["nodes"]]
    assert any(f"'{name}'" in run.errors or f" {name}" in run.errors for name in names), run.errors


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))


def test_full_disk_while_a_checkpoint_is_written(classifier: Path, data: Path, tmp_path: Path) -> None:
    words = ("--checkpoint", tmp_path, "--every", 2)
    assert train(classifier, data / "train", "--steps", 4, *words).code == 0
    before = contents(tmp_path / "step-00000004")
    # A limit on the size of files fails the write in the middle, as a full disk does.
    run = train(classifier, data / "train", "--steps", 400, *words, "--resume", preexec_fn=limit_file_size)
    assert run.code == 1
    assert "the checkpoint could not be written" in run.errors and "File too large" in run.errors
    assert "step-00000004 is complete: go on from it with --resume" in run.errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "step-00000002", "step-00000004"]
    assert contents(tmp_path / "step-00000004") == before
    assert train(classifier, data / "train", "--steps", 8, *words, "--resume").code == 0


def test_full_disk_while_weights_are_exported(classifier: Path, data: Path, tmp_path: Path) -> None:
    assert train(classifier, data / "train", "--steps", 1, "--checkpoint", tmp_path / "run").code == 0
    small = run_tesser("export", tmp_path / "run", "-o", tmp_path / "weights.safetensors", preexec_fn=limit_export_size)
    assert small.code == 1 and "File too large" in small.errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def limit_export_size() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))


def test_two_runs_in_one_directory(classifier: Path, data: Path, tmp_path: Path) -> None:
    words = ("--steps", 10**9, "--checkpoint", tmp_path)
    first = start_training(classifier, data / "train", *words)
    try:
        first.stdout.readline()
        for resume in ([], ["--resume"]):
            second = train(classifier, data / "train", *words, *resume)
            assert second.code == 2
            assert f"process {first.pid} writes its checkpoints into this directory" in second.errors
    finally:
        first.kill()
        first.communicate()
    # The lock dies with its holder.
    assert train(classifier, data / "train", "--steps", 1, "--checkpoint", tmp_path).code == 0


def test_checkpoints_of_another_run(programs: Path, classifier: Path, data: Path, tmp_path: Path) -> None:
    words = ("--checkpoint", tmp_path / "run")
    assert train(classifier, data / "train", "--steps", 2, *words).code == 0
    before = contents(tmp_path / "run" / "step-00000002")

    def refused(program: Path, directory: Path, *more: object) -> str:
        run = train(program, directory, "--steps", 4, *words, *more)
        assert run.code == 2, run.errors
        assert not run.of("step")
        assert contents(tmp_path / "run" / "step-00000002") == before
        return run.errors

    assert "holds the checkpoints of an earlier run (step-00000002); add --resume" in refused(
        classifier, data / "train"
    )
    assert "was written by another program" in refused(programs / "plain.tesser", data / "train", "--resume")
    assert "was written with other data" in refused(classifier, data / "check", "--resume")
    assert "was written with seed 0, not 3" in refused(classifier, data / "train", "--resume", "--seed", 3)
    assert "leave --no-shuffle out" in refused(classifier, data / "train", "--resume", "--no-shuffle")


def test_bad_weights(programs: Path, classifier: Path, data: Path, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    words = ("evaluate", classifier, "--data", data / "check", "--weights")
    run = run_tesser(*words, tmp_path / "none")
    assert run.code == 2 and "none: no such file or directory" in run.errors
    run = run_tesser(*words, tmp_path)
    assert run.code == 2 and "holds no complete checkpoint" in run.errors
    save_file({"input.weight": np.zeros((16, 6), np.float32)}, tmp_path / "part.safetensors")
    run = run_tesser(*words, tmp_path / "part.safetensors")
    assert run.code == 2 and "part.safetensors: has no '" in run.errors
    save_file({"input.weight": np.zeros((16, 7), np.float32)}, tmp_path / "shape.safetensors")
    run = run_tesser(*words, tmp_path / "shape.safetensors")
    assert (
        run.code == 2 and "'input.weight' is float32[16, 7], program 'classifier' expects float32[16, 6]" in run.errors
    )
    (tmp_path / "noise.safetensors").write_bytes(b"\xff" * 100)
    run = run_tesser(*words, tmp_path / "noise.safetensors")
    assert run.code == 2 and "noise.safetensors" in run.errors
    run = run_tesser("generate", classifier, "--prompt", "a")
    assert run.code == 2 and "vocabulary.json: no such file" in run.errors


def test_labels_out_of_range_are_an_error_of_the_step(classifier: Path, tmp_path: Path) -> None:
    write_classifier_data(tmp_path / "data", 43, 0)
    labels = np.load(tmp_path / "data" / "labels.npy")
    labels[20] = 99
    np.save(tmp_path / "data" / "labels.npy", labels)
    run = train(classifier, tmp_path / "data", "--no-shuffle")
    assert run.code == 1
    assert "step 3 (epoch 1): " in run.errors and "99" in run.errors
