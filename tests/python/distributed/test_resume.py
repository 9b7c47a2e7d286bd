"""Checkpoints do not depend on the number of workers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.python.commands import finish, start, tesser_output, train
from tests.python.distributed.runs import children, run_directories, wait_until, weights
from tests.python.models.equality import TOLERANCES, Run, differences

TOLERANCE = TOLERANCES[torch.float32]
STEPS = 23


def words_for(steps: int, checkpoint: Path, workers: int) -> list[object]:
    return [
        "--steps", steps, "--checkpoint", checkpoint, "--every", 4, "--keep", 9, "--workers", workers, "--seed", 3,
        "--preset", "tofu",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One worker's, shuffled and with dropout."""
    directory = tmp_path_factory.mktemp("undisturbed")
    run = train(samples / "classifier.tesser", samples / "train", *words_for(STEPS, directory / "run", 1))
    assert run.code == 0, run.errors
    return Run(run.losses, weights(directory / "run"))


def test_a_run_goes_on_with_any_number_of_workers(samples: Path, tmp_path: Path, undisturbed: Run) -> None:
    losses: list[float] = []
    for until, workers in [(6, 2), (11, 3), (15, 1), (STEPS, 2)]:
        before = len(losses)
        run = train(
            samples / "classifier.tesser", samples / "train", *words_for(until, tmp_path / "run", workers), "--resume"
        )
        assert run.code == 0, run.errors
        assert run.of("start")[0]["step"] == before
        assert [event["step"] for event in run.of("step")] == list(range(before + 1, until + 1))
        losses += run.losses
    assert differences(Run(losses, weights(tmp_path / "run")), undisturbed, TOLERANCE) == []
    names = sorted(path.name for path in (tmp_path / "run").glob("step-*"))
    assert names == [f"step-{step:08}" for step in (4, 6, 8, 11, 12, 15, 16, 20, 23)]


def test_all_commands_read_a_checkpoint_in_parts(samples: Path, tmp_path: Path) -> None:
    program, text = samples / "language.tesser", samples / "text"
    checkpoints = {}
    for workers in (1, 2):
        checkpoint = tmp_path / f"run{workers}"
        run = train(program, text, "--steps", 8, "--checkpoint", checkpoint, "--workers", workers, "--preset", "tofu")
        assert run.code == 0, run.errors
        checkpoints[workers] = checkpoint
    manifest = json.loads((checkpoints[2] / "step-00000008" / "manifest.json").read_text())
    assert manifest["version"] == 3
    assert any("parts" in value for value in manifest["values"])
    sizes = {
        workers: sum(
            shard["bytes"] for shard in json.loads((path / "step-00000008/manifest.json").read_text())["shards"]
        )
        for workers, path in checkpoints.items()
    }
    assert sizes[2] < 1.2 * sizes[1] + 4096, "values that both workers have are written once"
    assert differences(Run([], weights(checkpoints[2])), Run([], weights(checkpoints[1])), TOLERANCE) == []

    generated = [
        tesser_output("generate", program, "--weights", path, "--vocabulary", text, "--prompt", "abc", "--length", 20,
                      "--temperature", 0)
        for path in checkpoints.values()
    ]  # fmt: skip
    assert generated[0] == generated[1]

    results = []
    for workers in (1, 2):
        checkpoint = tmp_path / f"classifier{workers}"
        run = train(
            samples / "classifier.tesser", samples / "train", "--steps", 8, "--checkpoint", checkpoint,
            "--workers", workers, "--preset", "tofu",
        )  # fmt: skip
        assert run.code == 0, run.errors
        words = ["--weights", checkpoint, "--data", samples / "check", "--json"]
        results.append(json.loads(tesser_output("evaluate", samples / "classifier.tesser", *words))["results"])
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], rel=1e-5)


def test_evaluation_sees_the_state_of_all_workers(samples: Path, tmp_path: Path) -> None:
    results = {}
    for workers in (1, 2):
        run = train(
            samples / "classifier.tesser", samples / "train", "--steps", 12, "--seed", 3, "--workers", workers,
            "--preset", "tofu", "--evaluate", samples / "check",
        )  # fmt: skip
        assert run.code == 0, run.errors
        order = [(event["event"], event["step"]) for event in run.events if event["event"] in ("step", "evaluation")]
        assert [place for place in order if place[0] == "evaluation"] == [
            ("evaluation", 5), ("evaluation", 10), ("evaluation", 12),
        ]  # fmt: skip
        assert order.index(("evaluation", 5)) == order.index(("step", 5)) + 1
        results[workers] = [list(event["results"].values()) for event in run.of("evaluation")]
    np.testing.assert_allclose(results[2], results[1], rtol=1e-4)


@pytest.mark.parametrize(("workers", "preset"), [(2, "dp"), (3, "megatron"), (4, "tofu")])
def test_workers_evaluate_what_is_in_the_checkpoint(samples: Path, tmp_path: Path, workers: int, preset: str) -> None:
    run = train(
        samples / "classifier.tesser", samples / "train", "--steps", 7, "--workers", workers, "--preset", preset,
        "--evaluate", samples / "check", "--checkpoint", tmp_path / "run",
    )  # fmt: skip
    assert run.code == 0, run.errors
    words = ["--weights", tmp_path / "run", "--data", samples / "check", "--json"]
    alone = json.loads(tesser_output("evaluate", samples / "classifier.tesser", *words))["results"]
    assert run.of("evaluation")[-1]["step"] == 7
    for name, result in run.of("evaluation")[-1]["results"].items():
        assert result == pytest.approx(alone[name], rel=1e-6), name
    # A run that has nothing left to do evaluates all the same.
    again = train(
        samples / "classifier.tesser", samples / "train", "--steps", 7, "--workers", workers, "--preset", preset,
        "--evaluate", samples / "check", "--checkpoint", tmp_path / "run", "--resume",
    )  # fmt: skip
    assert again.code == 0, again.errors
    assert again.of("evaluation")[-1]["results"] == run.of("evaluation")[-1]["results"]


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
def test_workers_that_others_start_and_stop_end_after_the_same_step(
    samples: Path, tmp_path: Path, which: signal.Signals
) -> None:
    secret = {"TESSER_RUN_TOKEN": "secret"}
    process = start(
        "train", samples / "classifier.tesser", "--data", samples / "train", "--threads", 1, "--json", "--workers", 2,
        "--checkpoint", tmp_path / "run", "--every", 10**6, "--steps", 10**7, "--external", "--run-directory",
        tmp_path / "meeting", variables=secret,
    )  # fmt: skip
    url = next(word for word in process.stdout.readline().split() if word.startswith("http://127"))
    workers = [start("worker", "--coordinator", url, "--worker", number, variables=secret) for number in range(2)]
    for _ in range(8):
        process.stdout.readline()
    for each in (*workers, process):  # workers hear of it first
        each.send_signal(which)
    run = finish(process)
    assert run.code == 1 and run.of("end")[0]["interrupted"], run.errors
    assert run.of("checkpoint")[-1]["step"] == run.of("end")[0]["step"]
    for worker in workers:
        assert "this worker ends when its run does" in worker.communicate(timeout=10)[1]


def catches(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def test_a_worker_whose_coordinator_has_not_begun_ends_when_told() -> None:
    worker = start(
        "worker", "--coordinator", "http://127.0.0.1:1", "--worker", 0, variables={"TESSER_RUN_TOKEN": "secret"}
    )
    assert wait_until(lambda: catches(worker.pid, signal.SIGTERM), 20)
    worker.send_signal(signal.SIGTERM)
    errors = worker.communicate(timeout=10)[1]
    assert worker.returncode == 1
    assert "told to end before the coordinator at http://127.0.0.1:1 was found" in errors


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGHUP])
def test_stopped_by_a_signal_all_workers_end_after_the_same_step(
    samples: Path, tmp_path: Path, undisturbed: Run, which: signal.Signals
) -> None:
    before = run_directories()
    words = ["--workers", 2, "--preset", "tofu", "--seed", 3, "--checkpoint", tmp_path / "run", "--every", 10**6]
    process = start(
        "train", samples / "classifier.tesser", "--data", samples / "train", "--threads", 1, "--json", *words,
        "--steps", 10**7,
    )  # fmt: skip
    for _ in range(8):
        process.stdout.readline()
    workers = children(process)
    assert sorted(workers) == [0, 1]
    process.send_signal(which)
    for worker in workers.values():  # the end of a session, and Ctrl-C, are told to all processes of a group
        os.kill(worker, which)
    run = finish(process)
    assert run.code == 1
    assert "stopping after this step" in run.errors
    end = run.of("end")[0]
    assert end["interrupted"]
    assert run.of("checkpoint")[-1]["step"] == end["step"] == run.of("step")[-1]["step"]
    assert f"stopped after step {end['step']}" in run.errors
    assert wait_until(lambda: run_directories() <= before, 5), "the directory of the run is still there"
    rest = train(samples / "classifier.tesser", samples / "train", *words, "--steps", end["step"] + 3, "--resume")
    assert rest.code == 0, rest.errors
    assert len(rest.losses) == 3
