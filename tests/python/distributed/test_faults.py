"""Whoever dies or stops, the run ends within five seconds with the worker's name, and goes on from its last checkpoint
with another number of workers.

TESSER_FAULT_SEEDS is how many random schedules are run (`./x test --faults` runs fifty).
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.python.commands import Outcome, finish, start, train
from tests.python.distributed.runs import (
    END_SECONDS,
    children,
    is_running,
    run_directories,
    wait_until,
    weights,
)
from tests.python.models.equality import TOLERANCES, Run, differences

STEPS = 60
EVERY = 4
SEEDS = int(os.environ.get("TESSER_FAULT_SEEDS", "4"))
TOLERANCE = TOLERANCES[torch.float32]
# On top of the five seconds, for reading the end on a machine that does other things.
SLACK = 1.0


def words_for(samples: Path, checkpoint: Path, workers: int, steps: int) -> list[object]:
    return [
        "train", samples / "classifier.tesser", "--data", samples / "train", "--threads", 1, "--json", "--seed", 3,
        "--steps", steps, "--checkpoint", checkpoint, "--every", EVERY, "--keep", 3, "--workers", workers,
        "--preset", "tofu",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("undisturbed")
    run = finish(start(*words_for(samples, directory / "run", 2, STEPS)))
    assert run.code == 0, run.errors
    return Run(run.losses, weights(directory / "run"))


def unfinished(checkpoint: Path) -> list[str]:
    return [path.name for path in checkpoint.glob("step-*.writing")]


def disturb(samples: Path, checkpoint: Path, seed: int, chance: random.Random) -> tuple[Outcome, str]:
    """Starts a run that would never end, and kills or stops somebody at a random moment. The first four seeds are one
    of each kind."""
    workers = chance.choice([2, 3])
    process = start(*words_for(samples, checkpoint, workers, 10**7), "--resume")
    whom = chance.choice(["coordinator", *range(workers)])
    how = chance.choice([signal.SIGKILL, signal.SIGSTOP])
    if seed < 4:
        whom = "coordinator" if seed >= 2 else chance.randrange(workers)
        how = (signal.SIGKILL, signal.SIGSTOP)[seed % 2]
    if chance.random() < 0.7:  # else at some moment of the beginning
        while '"event":"step"' not in process.stdout.readline():
            assert process.poll() is None, process.stderr.read()
    else:
        assert wait_until(lambda: len(children(process)) == workers, 60)
    time.sleep(chance.uniform(0, 0.6))
    pids = children(process)
    assert sorted(pids) == list(range(workers))
    began = time.monotonic()
    os.kill(process.pid if whom == "coordinator" else pids[whom], how)
    case = f"{how.name} of {whom} among {workers} workers"
    if whom == "coordinator":
        gone = wait_until(lambda: not any(is_running(pid) for pid in pids.values()), END_SECONDS + SLACK)
        assert gone, f"{case}: workers are still there"
        process.kill()
        return finish(process), case
    outcome = finish(process)
    seconds = time.monotonic() - began
    assert seconds < END_SECONDS + SLACK, f"{case}: took {seconds:.1f} s"
    assert outcome.code == 1, f"{case}: {outcome.errors}"
    ends = ["was killed by signal 9"] if how == signal.SIGKILL else ["has not been heard of for", "has been stopped"]
    line = next((line for line in outcome.errors.splitlines() if "error:" in line), outcome.errors)
    assert f"error: worker {whom} (process {pids[whom]}" in line, f"{case}: {outcome.errors}"
    assert any(end in line for end in ends), f"{case}: {outcome.errors}"
    assert unfinished(checkpoint) == [], case
    assert not any(is_running(pid) for pid in pids.values()), f"{case}: workers are still there"
    return outcome, case


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_faults(samples: Path, tmp_path: Path, undisturbed: Run, seed: int) -> None:
    chance = random.Random(seed)
    checkpoint = tmp_path / "run"
    before = run_directories()
    outcome, case = disturb(samples, checkpoint, seed, chance)
    print(case)
    complete = sorted(path for path in checkpoint.glob("step-*") if "." not in path.name)
    done = int(complete[-1].name.removeprefix("step-")) if complete else 0
    if complete and outcome.errors and "coordinator" not in case:
        assert f"{complete[-1]} is complete: go on from it with --resume" in outcome.errors
    for event in outcome.of("step"):
        if event["step"] <= STEPS:
            expected = undisturbed.losses[event["step"] - 1]
            assert event["loss"] == pytest.approx(expected, rel=1e-4), event
    # On with another number of workers, to where the undisturbed run stood; or beyond, where it was there already.
    until = max(STEPS, done + 3)
    rest = finish(start(*words_for(samples, checkpoint, chance.choice([1, 2, 3]), until), "--resume"))
    assert rest.code == 0, rest.errors
    assert rest.of("start")[0]["step"] == done
    assert unfinished(checkpoint) == []
    if until == STEPS:
        assert differences(Run([], weights(checkpoint)), Run([], undisturbed.state), TOLERANCE) == []
    for left in run_directories() - before:
        assert "coordinator" in case, left
        shutil.rmtree(left)  # nobody was left to remove it


def test_a_failing_worker_is_named_with_its_words(samples: Path, tmp_path: Path) -> None:
    """A limit on the size of its files stands for a disk that is full for one worker."""
    process = start(*words_for(samples, tmp_path / "run", 2, 10**7))
    while '"event":"checkpoint"' not in process.stdout.readline():
        assert process.poll() is None, process.stderr.read()
    pids = children(process)
    resource.prlimit(pids[1], resource.RLIMIT_FSIZE, (512, 512))
    began = time.monotonic()
    run = finish(process)
    assert time.monotonic() - began < END_SECONDS + SLACK
    assert run.code == 1
    assert f"worker 1 (process {pids[1]} on" in run.errors
    assert "failed: the checkpoint could not be written:" in run.errors and "File too large" in run.errors
    assert "is complete: go on from it with --resume" in run.errors
    assert unfinished(tmp_path / "run") == []
    assert not any(is_running(pid) for pid in pids.values())


def test_a_loss_that_is_not_finite_ends_the_run(samples: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    images = np.zeros((24, 6), dtype=np.float32)
    images[17] = np.nan
    np.save(data / "images.npy", images)
    np.save(data / "labels.npy", np.zeros(24, dtype=np.int64))
    began = time.monotonic()
    run = train(
        samples / "classifier.tesser", data, "--no-shuffle", "--steps", 40, "--every", 1, "--workers", 2,
        "--checkpoint", tmp_path / "run",
    )  # fmt: skip
    assert run.code == 1
    assert "step 3 (epoch 1): the loss is nan; the run stops here" in run.errors
    assert "step-00000002 is complete" in run.errors
    assert run.of("step")[-1]["step"] == 3
    assert unfinished(tmp_path / "run") == []
    assert time.monotonic() - began < 60

    checked = train(
        samples / "classifier.tesser", data, "--no-shuffle", "--steps", 40, "--workers", 2, "--preset", "tofu",
        "--check-nan",
    )  # fmt: skip
    assert checked.code == 1
    assert f"step 3 (epoch 1): sample 17 (from 0) of batch value 'images' in {data} holds NaN" in checked.errors
