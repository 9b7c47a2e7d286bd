"""What people read when they ask for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.python.commands import finish, start, tesser_output, train


@pytest.fixture(scope="module")
def plan(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "classifier.plan"
    tesser_output("plan", samples / "classifier.tesser", "--workers", 2, "-o", path)
    return path


def test_a_plan_says_how_many_workers(samples: Path, plan: Path) -> None:
    run = finish(
        start("train", samples / "classifier.tesser", "--data", samples / "train", "--steps", 3, "--plan", plan)
    )
    assert run.code == 0, run.errors
    wrong = train(samples / "classifier.tesser", samples / "train", "--plan", plan, "--workers", 3)
    assert wrong.code == 2
    assert "is a plan for 2 workers, not 3; make one with tesser plan" in wrong.errors


def test_the_table_at_the_end(samples: Path) -> None:
    lines = tesser_output(
        "train", samples / "classifier.tesser", "--data", samples / "train", "--steps", 3, "--workers", 2
    ).splitlines()
    assert "2 workers, over shared memory (same machine)" in lines
    heading = next(i for i, line in enumerate(lines) if line.split()[:3] == ["worker", "computing", "waiting"])
    assert [line.split()[0] for line in lines[heading + 1 : heading + 3]] == ["0", "1"]


def test_a_trace_shows_what_each_worker_did(samples: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        file = tmp_path / f"{workers}.json"
        run = train(
            samples / "classifier.tesser", samples / "train", "--steps", 12, "--workers", workers, "--preset", "tofu",
            "--trace", file,
        )  # fmt: skip
        assert run.code == 0, run.errors
        events = json.loads(file.read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        assert {span["pid"] for span in spans} == set(range(workers))
        assert {span["args"]["step"] for span in spans} == set(range(3, 13))
        steps = {(span["pid"], span["name"]): span for span in spans if span["cat"] == "step"}
        for span in spans:
            step = steps[span["pid"], f"step {span['args']['step']}"]
            assert step["ts"] - 0.01 <= span["ts"]
            assert span["ts"] + span["dur"] <= step["ts"] + step["dur"] + 0.01
        categories = {span["cat"] for span in spans}
        assert ("waiting" in categories) == (workers > 1)
        # All workers' step is at about one time, since each needs the others.
        if workers > 1:
            first, second = steps[0, "step 12"], steps[1, "step 12"]
            assert first["ts"] < second["ts"] + second["dur"] and second["ts"] < first["ts"] + first["dur"]


def test_a_plan_of_another_program(samples: Path, plan: Path) -> None:
    run = train(samples / "language.tesser", samples / "text", "--plan", plan)
    assert run.code == 2
    assert str(plan) in run.errors


def test_a_plan_and_how_to_find_one(samples: Path, plan: Path) -> None:
    run = train(samples / "classifier.tesser", samples / "train", "--plan", plan, "--memory", "1GiB")
    assert run.code == 2
    assert "--plan excludes --memory" in run.errors


def test_a_worker_needs_its_token_and_its_coordinator(tmp_path: Path) -> None:
    without = finish(start("worker", "--coordinator", "http://127.0.0.1:9", "--worker", 0))
    assert without.code == 2
    assert "TESSER_RUN_TOKEN is not in the environment" in without.errors
    malformed = finish(
        start("worker", "--coordinator", "127.0.0.1", "--worker", 0, variables={"TESSER_RUN_TOKEN": "x"})
    )
    assert malformed.code == 2
    assert "expected the coordinator's address, http://HOST:PORT" in malformed.errors


def test_workers_that_others_start(samples: Path, tmp_path: Path) -> None:
    process = start(
        "train", samples / "classifier.tesser", "--data", samples / "train", "--steps", 4, "--workers", 2, "--json",
        "--external", "--run-directory", tmp_path / "run", variables={"TESSER_RUN_TOKEN": "secret"},
    )  # fmt: skip
    note = process.stdout.readline()
    url = next(word for word in note.split() if word.startswith("http://127"))

    stranger = finish(start("worker", "--coordinator", url, "--worker", 0, variables={"TESSER_RUN_TOKEN": "wrong"}))
    assert stranger.code == 2
    assert "does not carry the token that the coordinator expects" in stranger.errors
    third = finish(start("worker", "--coordinator", url, "--worker", 2, variables={"TESSER_RUN_TOKEN": "secret"}))
    assert third.code == 2
    assert "this run has workers 0 to 1, not 2" in third.errors

    workers = [
        start("worker", "--coordinator", url, "--worker", worker, variables={"TESSER_RUN_TOKEN": "secret"})
        for worker in range(2)
    ]
    run = finish(process)
    assert run.code == 0, run.errors
    assert len(run.losses) == 4
    assert [worker.wait(timeout=10) for worker in workers] == [0, 0]
    for worker in workers:
        worker.communicate()
    assert not (tmp_path / "run").exists()


def test_a_run_directory_that_holds_something(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    run = train(
        samples / "classifier.tesser", samples / "train", "--workers", 2, "--external", "--run-directory", tmp_path
    )
    assert run.code == 2
    assert "is not empty" in run.errors
    assert (tmp_path / "mine").exists()


def test_help_names_the_options() -> None:
    text = tesser_output("worker", "--help")
    assert "--coordinator" in text and "TESSER_RUN_TOKEN" in text
