"""A run that is broken off, however that happens, goes on with exactly the numbers of one that was not."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.python.commands import SECONDS, command, contents, finish, run_environment, start_training, train

STEPS = 4000
EVERY = 50


@pytest.fixture(scope="module")
def unbroken(
    classifier: Path, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[float], dict[str, bytes]]:
    directory = tmp_path_factory.mktemp("unbroken")
    run = train(classifier, data / "train", "--steps", STEPS, "--checkpoint", directory, "--every", EVERY)
    assert run.code == 0, run.errors
    return run.losses, contents(directory / f"step-{STEPS:08}")


def test_killed_at_random_moments(classifier: Path, data: Path, tmp_path: Path, unbroken) -> None:
    losses, final = unbroken
    chance = random.Random(7)
    kills = 0
    for _ in range(40):
        words = ["--steps", STEPS, "--checkpoint", tmp_path, "--every", EVERY, "--resume"]
        process = start_training(classifier, data / "train", *words)
        # Some runs are killed while they start, others among their steps and checkpoints.
        if kills < 12:
            if kills % 4:
                process.stdout.readline()
            time.sleep(chance.uniform(0, 0.15))
            process.kill()
        run = finish(process)
        for event in run.of("step"):
            assert event["loss"] == losses[event["step"] - 1], event
        if run.code == -signal.SIGKILL:
            kills += 1
        else:
            assert run.code == 0, run.errors
            if run.of("end"):
                break
    assert kills >= 6
    assert contents(tmp_path / f"step-{STEPS:08}") == final


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_by_a_signal(classifier: Path, data: Path, tmp_path: Path, unbroken, which: signal.Signals) -> None:
    losses, final = unbroken
    words = ["--steps", STEPS, "--checkpoint", tmp_path, "--every", STEPS]
    process = start_training(classifier, data / "train", *words)
    for _ in range(30):
        process.stdout.readline()
    process.send_signal(which)
    if which == signal.SIGHUP:  # the end of a session is told several times
        process.send_signal(which)
    run = finish(process)
    assert run.code == 1
    assert run.errors.count("stopping after this step") == 1
    step = run.of("end")[0]["step"]
    assert 25 <= step < STEPS
    assert run.of("end")[0]["interrupted"]
    assert f"stopped after step {step}" in run.errors and "--resume goes on from it" in run.errors
    assert run.of("checkpoint")[-1]["step"] == step
    rest = train(classifier, data / "train", *words, "--resume")
    assert rest.code == 0, rest.errors
    assert rest.of("start")[0]["step"] == step
    assert rest.losses == losses[step:]
    assert contents(tmp_path / f"step-{STEPS:08}") == final


def test_a_second_signal_ends_at_once(classifier: Path, data: Path, tmp_path: Path) -> None:
    # A named pipe nobody reads holds the run between its steps, so that only the second signal can end it.
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        command("train", classifier, "--data", data / "train", "--threads", 1, "--json", "--steps", 10**9),
        stdout=write_end,
        stderr=subprocess.PIPE,
        env=run_environment(),
    )
    os.close(write_end)
    os.read(read_end, 1)
    time.sleep(0.5)  # the pipe is full by now
    process.send_signal(signal.SIGINT)
    assert b"stopping after this step" in process.stderr.readline() + process.stderr.readline()
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=SECONDS) == -signal.SIGINT
    os.close(read_end)


def test_nohup_is_respected(classifier: Path, data: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["nohup", *command("train", classifier, "--data", data / "train", "--steps", STEPS, "--json", "--threads", 1)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=run_environment(),
    )  # fmt: skip
    for _ in range(3):
        process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    run = finish(process)
    assert run.code == 0, run.errors
    assert "stopping" not in run.errors


def test_stopped_without_a_checkpoint_directory(classifier: Path, data: Path) -> None:
    process = start_training(classifier, data / "train", "--steps", 10**9)
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    run = finish(process)
    assert run.code == 1
    assert "Nothing was kept; with --checkpoint DIR" in run.errors


def test_resuming_a_finished_run_does_nothing(classifier: Path, data: Path, tmp_path: Path) -> None:
    words = ["--steps", 3, "--checkpoint", tmp_path, "--seed", 5]
    assert train(classifier, data / "train", *words).code == 0
    before = contents(tmp_path / "step-00000003")
    again = train(classifier, data / "train", *words, "--resume")
    assert again.code == 0, again.errors
    assert not again.of("step") and again.of("end")[0]["steps"] == 0
    assert contents(tmp_path / "step-00000003") == before
    longer = train(classifier, data / "train", "--steps", 6, "--checkpoint", tmp_path, "--resume")
    assert longer.losses == train(classifier, data / "train", "--steps", 6, "--seed", 5).losses[3:]


def test_damaged_and_unfinished_checkpoints_are_passed_over(classifier: Path, data: Path, tmp_path: Path) -> None:
    words = ["--checkpoint", tmp_path, "--every", 4]
    full = train(classifier, data / "train", "--steps", 8, *words)
    assert full.code == 0, full.errors
    shard = tmp_path / "step-00000008" / "state-00000-of-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4] + b"\xff\xff\xff\x7f")
    (tmp_path / "step-00000009.writing").mkdir()
    rest = train(classifier, data / "train", "--steps", 8, *words, "--resume")
    assert rest.code == 0, rest.errors
    notes = " ".join(event["message"] for event in rest.of("note"))
    assert "step-00000008 is damaged and not used" in notes and "checksum" in notes
    assert "removed" in notes and "step-00000009.writing" in notes
    assert rest.losses == full.losses[4:]
    assert (tmp_path / "step-00000008.damaged").is_dir()


@pytest.mark.parametrize("words", [[], ["--workers", 2, "--preset", "tofu"], ["--replicas", 2]])
def test_a_run_does_not_begin_anew_where_every_checkpoint_is_damaged(
    classifier: Path, data: Path, tmp_path: Path, words: list[object]
) -> None:
    words = [*words, "--checkpoint", tmp_path, "--every", 2, "--resume"]
    assert train(classifier, data / "train", "--steps", 4, *words).code == 0
    for step in (2, 4):
        manifest = tmp_path / f"step-{step:08}" / "manifest.json"
        text = manifest.read_text()
        manifest.write_text(text.replace('"seed":0', '"seed":1'))
    for _ in range(2):
        refused = train(classifier, data / "train", "--steps", 6, *words)
        assert refused.code == 2 and not refused.of("step")
        message = refused.of("error")[0]["message"]
        assert "every checkpoint is damaged: step-00000004" in message and "step-00000002" in message
        assert "remove them or give another directory" in message
    for step in (2, 4):
        shutil.rmtree(tmp_path / f"step-{step:08}.damaged")
    assert len(train(classifier, data / "train", "--steps", 6, *words).losses) == 6


def test_a_checkpoint_is_not_the_directory_of_checkpoints(classifier: Path, data: Path, tmp_path: Path) -> None:
    assert train(classifier, data / "train", "--steps", 2, "--checkpoint", tmp_path).code == 0
    one = tmp_path / "step-00000002"
    refused = train(classifier, data / "train", "--steps", 4, "--checkpoint", one, "--resume")
    assert refused.code == 2
    assert f"{one}: is a checkpoint itself; give the directory that it is in, {tmp_path}" in refused.errors
    assert sorted(contents(one)) == ["manifest.json", "state-00000-of-00001.safetensors"]


def test_resume_without_a_checkpoint_begins(classifier: Path, data: Path, tmp_path: Path) -> None:
    run = train(classifier, data / "train", "--steps", 2, "--checkpoint", tmp_path, "--resume")
    assert run.code == 0, run.errors
    assert "holds no complete checkpoint" in run.of("note")[0]["message"]
    assert len(run.losses) == 2
