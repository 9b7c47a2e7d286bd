"""Guardians: a job from its places to its end, on the engine `local`, with real learners."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.python.platform.guarded_job import GuardedJob, guarded_job, tagged

WAY = ["QUEUED", "PENDING", "DEPLOYING", "DOWNLOADING", "PROCESSING", "STORING", "COMPLETED"]


def shell(line: str) -> list[str]:
    return ["sh", "-c", line]


def wait_for_line(job: GuardedJob, line: str, rank: int = 0) -> None:
    def is_there() -> bool:
        raw = job.volume / "logs" / str(rank)
        return any(line in path.read_text(errors="replace") for path in raw.glob("raw-*")) or any(
            line in path.read_text(errors="replace") for path in raw.glob("lines-*")
        )

    job.wait_until(is_there, f"line '{line}'")


def test_a_job_takes_its_way(tmp_path: Path) -> None:
    with guarded_job(tmp_path, shell("echo I am $LEARNER_ID of $NUM_LEARNERS"), ["node1", "node2"]) as job:
        job.wait_for("COMPLETED", "FAILED")
        assert job.states == WAY
        assert job.log(0) == ["I am 0 of 2"]
        assert job.log(1) == ["I am 1 of 2"]
        assert job.guardian.wait(5) == 0
        job.check_end()


def test_a_failing_command_is_started_again_as_often_as_it_may(tmp_path: Path) -> None:
    line = 'echo attempt $TESSER_RESTART; echo "no such file: x" >&2; exit 3'
    with guarded_job(tmp_path, shell(line), ["node1", "node2"], restarts=2) as job:
        job.wait_for("COMPLETED", "FAILED")
        assert job.state == "FAILED"
        assert job.states.count("PROCESSING") == 3
        last = job.record["history"][-1]
        assert last["code"] == "U_COMMAND"
        for part in ("learner ", "on node", "code 3", "no such file: x", "after 2 restarts"):
            assert part in last["reason"], last
        job.check_end()


def test_a_learner_that_is_killed_begins_again(tmp_path: Path) -> None:
    line = (
        "if [ -e $CHECKPOINT_DIR/$LEARNER_ID ]; then echo resumed; exit 0; fi;"
        "touch $CHECKPOINT_DIR/$LEARNER_ID; echo begun; sleep 100"
    )
    with guarded_job(tmp_path, shell(line), ["node1", "node2"]) as job:
        wait_for_line(job, "begun", 0)
        wait_for_line(job, "begun", 1)
        job.wait_for("PROCESSING")
        os.kill(job.learner(1), signal.SIGKILL)
        job.wait_for("COMPLETED", "FAILED")
        assert job.state == "COMPLETED"
        assert "resumed" in job.log(0)
        assert any("restart 1 of 3" in change.get("reason", "") for change in job.record["history"])
        job.check_end()


def test_one_that_does_not_end_when_another_has_failed_is_killed_by_its_learner(tmp_path: Path) -> None:
    line = (
        "if [ -e $CHECKPOINT_DIR/$LEARNER_ID ]; then exit 0; fi; trap '' TERM;"
        "touch $CHECKPOINT_DIR/$LEARNER_ID; echo begun; while :; do sleep 0.05; done"
    )
    with guarded_job(tmp_path, shell(line), ["node1", "node2"], grace_seconds=60) as job:
        wait_for_line(job, "begun", 0)
        wait_for_line(job, "begun", 1)
        job.wait_for("PROCESSING")
        os.kill(job.learner(1), signal.SIGKILL)
        job.wait_for("COMPLETED", "FAILED")
        assert job.state == "COMPLETED"
        first = job.volume / "attempts" / "1"
        assert json.loads((first / "stop").read_text()) == {"grace_milliseconds": 300}
        ended = json.loads((first / "exit-0.json").read_text())
        assert ended["signal"] == signal.SIGKILL and ended["stopped"]
        job.check_end()


def test_halt_keeps_what_is_there_and_resume_goes_on_with_other_places(tmp_path: Path) -> None:
    line = (
        "trap 'echo told; exit 0' TERM; echo begun with $NUM_LEARNERS; touch $CHECKPOINT_DIR/$NUM_LEARNERS;"
        "if [ $NUM_LEARNERS = 1 ]; then exit 0; fi; while :; do sleep 0.05; done"
    )
    with guarded_job(tmp_path, shell(line), ["node1", "node2"]) as job:
        wait_for_line(job, "begun with 2", 1)
        job.wait_for("PROCESSING")
        job.tell(wanted="halt")
        job.wait_for("HALTED", "FAILED", "COMPLETED")
        assert job.state == "HALTED"
        assert job.reason == "halted by its owner"
        assert "told" in job.log(0)
        assert job.guardian.wait(5) == 0
        job.check_end()

        job.tell(wanted="run", states=["RESUMED", "PENDING"], placement=["node3"])
        job.wait_for("COMPLETED", "FAILED")
        assert job.states[-7:] == ["RESUMED", *WAY[1:]]
        assert (job.volume / "checkpoints" / "2").exists()
        assert job.log(0)[-1] == "begun with 1"
        job.check_end()


def test_a_job_whose_places_are_needed_waits_again_and_loses_no_restart(tmp_path: Path) -> None:
    line = (
        "trap 'echo told; touch $CHECKPOINT_DIR/kept; exit 0' TERM; echo begun;"
        "if [ -e $CHECKPOINT_DIR/kept ]; then exit 0; fi; while :; do sleep 0.05; done"
    )
    with guarded_job(tmp_path, shell(line), ["node1", "node2"], restarts=0) as job:
        wait_for_line(job, "begun", 1)
        job.wait_for("PROCESSING")
        job.tell(wanted="yield")
        job.wait_for("QUEUED", "FAILED", "COMPLETED")
        last = job.record["history"][-1]
        assert (last["state"], last["code"]) == ("QUEUED", "S_PREEMPTED")
        assert "told" in job.log(0)
        assert job.guardian.wait(5) == 0
        job.check_end()

        job.tell(wanted="run", states=["PENDING"], placement=["node3", "node3"])
        job.wait_for("COMPLETED", "FAILED")
        assert job.states == [*WAY[:5], *WAY]
        job.check_end()


def test_a_deleted_job_ends_at_once(tmp_path: Path) -> None:
    line = "trap '' TERM; echo begun; while :; do sleep 0.05; done"
    with guarded_job(tmp_path, shell(line), grace_seconds=60) as job:
        wait_for_line(job, "begun")
        job.wait_for("PROCESSING")
        begin = time.monotonic()
        job.tell(wanted="delete")
        job.wait_for("HALTED")
        assert time.monotonic() - begin < 5
        job.check_end()


def test_a_lost_node_gives_the_places_back(tmp_path: Path) -> None:
    with guarded_job(tmp_path, shell("echo begun; sleep 100"), ["node1", "node2"]) as job:
        job.wait_for("PROCESSING")
        job.kill_node("node2")
        job.wait_for("QUEUED", "FAILED", "COMPLETED")
        assert job.state == "QUEUED"
        assert "node2" in job.reason
        assert "lost its power" in job.reason
        job.check_end()

        # Elsewhere it goes on.
        job.guardian.wait(5)
        (job.state_directory / "nodes" / "node1").write_text("away as well")
        job.tell(states=["PENDING"], placement=["node1"])
        job.wait_until(lambda: job.states[-1] == "QUEUED" and job.states.count("QUEUED") == 3, "QUEUED again")
        assert "away as well" in job.reason


def test_a_time_limit_ends_it(tmp_path: Path) -> None:
    with guarded_job(
        tmp_path, shell("trap 'echo told; exit 0' TERM; while :; do sleep 0.05; done"), time_limit_seconds=1
    ) as job:
        job.wait_for("FAILED", "COMPLETED")
        last = job.record["history"][-1]
        assert (last["state"], last["code"]) == ("FAILED", "U_TIME_LIMIT")
        assert "1 s" in last["reason"]
        assert "told" in job.log(0)
        job.check_end()


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = {key: "" for key in ("endpoint", "region", "bucket", "prefix", "access_key", "secret_key")}
    store |= {"id": "pictures", "type": "host", "path": "/no/such/directory"}
    with guarded_job(tmp_path, shell("true"), data_stores=[store]) as job:
        job.wait_for("FAILED", "COMPLETED")
        last = job.record["history"][-1]
        assert (last["state"], last["code"]) == ("FAILED", "U_DATA")
        assert "pictures" in last["reason"]
        assert "/no/such/directory" in last["reason"]
        job.check_end()


def test_data_and_results_of_host_directories(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "words").write_text("hello")
    store = {key: "" for key in ("endpoint", "region", "bucket", "prefix", "access_key", "secret_key")}
    store |= {"id": "given", "type": "host", "path": str(tmp_path / "given")}
    line = "mkdir $RESULT_DIR/sub; tr a-z A-Z < $DATA_DIR/given/words > $RESULT_DIR/sub/words"
    with guarded_job(tmp_path, shell(line), data_stores=[store], results="given/made") as job:
        job.wait_for("FAILED", "COMPLETED")
        assert job.state == "COMPLETED", job.record
        assert (tmp_path / "given" / "made" / "sub" / "words").read_text() == "HELLO"
        job.check_end()


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_guardian_that_goes_leaves_learners_alone(tmp_path: Path, signal_number: int) -> None:
    line = "echo begun; sleep 1; echo done"
    with guarded_job(tmp_path, shell(line), ["node1", "node2"]) as job:
        wait_for_line(job, "begun", 1)
        job.wait_for("PROCESSING")
        learners = tagged(job.name)
        job.guardian.send_signal(signal_number)
        time.sleep(0.2)
        if signal_number == signal.SIGSTOP:
            job.guardian.kill()  # as a server does with one whose lease has run out
        job.guardian.wait(5)
        job.wait_until(lambda: job.guardians == 2, "guardian")
        assert learners.keys() & tagged(job.name).keys(), "its learners were started again"
        job.wait_for("COMPLETED", "FAILED")
        assert job.states == WAY
        assert job.log(0) == ["begun", "done"]
        job.check_end()


def test_a_guardian_goes_on_without_the_server(tmp_path: Path) -> None:
    line = "echo attempt $TESSER_RESTART; sleep 1; test $TESSER_RESTART = 2"
    with guarded_job(tmp_path, shell(line)) as job:
        job.wait_for("PROCESSING")
        job.server.kill()
        job.server.wait()
        # The first attempt fails meanwhile, and the second one runs.
        wait_for_line(job, "attempt 2")
        time.sleep(0.3)
        job.start_server()
        job.wait_for("COMPLETED", "FAILED")
        assert job.states == [*WAY[:5], *WAY[2:5], *WAY[5:]]
        assert job.log(0) == ["attempt 1", "attempt 2"]
        job.check_end()


def test_a_guardian_that_was_followed_touches_nothing(tmp_path: Path) -> None:
    line = "echo begun; sleep 1.2; echo done"
    with guarded_job(tmp_path, shell(line)) as job:
        wait_for_line(job, "begun")
        job.wait_for("PROCESSING")
        first = job.guardian
        job.start_guardian()  # which waits for the journal of the first
        time.sleep(0.3)
        assert first.poll() is None
        first.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        first.kill()
        first.wait(5)
        job.wait_for("COMPLETED", "FAILED")
        assert job.states == WAY
        assert job.log(0) == ["begun", "done"]
        job.check_end()
