"""Learners as users of their teams on Kubernetes: what they may, and what they may not reach."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platform.kubernetes.platform_on_kubernetes import (
    CLUSTER,
    Platform,
    kubectl,
    more_than_half_a_node,
    platform,
)
from tests.python.platform.guarded_job import tagged
from tests.python.platform.served_job import newest_learner
from tests.python.platform.test_isolation import PROBE

pytestmark = pytest.mark.skipif(not CLUSTER, reason="needs the cluster that ./x test --kubernetes starts")

FIRST_USER, LAST_USER = 1_900_700_000, 1_900_700_099
# Each step depends on all before; the state of each rank is a checkpoint.
TRAIN = """\
import hashlib, os, sys, time
from pathlib import Path
rank, steps, pause = os.environ["LEARNER_ID"], int(sys.argv[1]), float(sys.argv[2])
saved = Path(os.environ["CHECKPOINT_DIR"], f"rank-{rank}")
first, weights = saved.read_text().split() if saved.exists() else ("0", rank)
print("begin", first, flush=True)
for step in range(int(first), steps):
    weights = hashlib.sha256(f"{weights} {step}".encode()).hexdigest()
    saved.with_suffix(".new").write_text(f"{step + 1} {weights}")
    saved.with_suffix(".new").rename(saved)
    print("step", step + 1, flush=True)
    time.sleep(pause)
Path(os.environ["RESULT_DIR"], f"rank-{rank}").write_text(weights)
"""
STEPS = 40
NOT_THERE = ("PermissionError", "FileNotFoundError", "NotADirectoryError")


def weights(rank: int) -> str:
    value = str(rank)
    for step in range(STEPS):
        value = hashlib.sha256(f"{value} {step}".encode()).hexdigest()
    return value


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pods see of the nodes beside what they need."""
    directory = tmp_path_factory.mktemp("shared")
    directory.chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def running(shared: Path) -> Iterator[Platform]:
    users = ("--learner-users", f"{FIRST_USER}-{LAST_USER}", "--host-directory", str(shared))
    with platform(*users) as made:
        yield made


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("code")
    (directory / "train.py").write_text(TRAIN)
    (directory / "probe.py").write_text(PROBE)
    return directory


def manifest(name: str, team: str, command: list[str], **more: object) -> dict:
    size = {"cpus": more_than_half_a_node(), "memory": "256MiB", "grace": "5s"}
    return {"name": name, "team": team, "command": command} | size | more


def user_of(running: Platform, team: str) -> int:
    teams = running.json("team", "list")["teams"]
    return next(each["learner_user"] for each in teams if each["name"] == team)


def learner_pods(job: str, team: str) -> list[dict]:
    words = ("-n", f"tesser-{team}", "-l", f"tesser/job={job},tesser/role=learner")
    return kubectl("get", "pods", *words)["items"]


def lines(running: Platform, job: str, rank: int = 0) -> list[str]:
    text = running.command("logs", job, "--learner", str(rank), "--json").stdout
    return [line["text"] for line in map(json.loads, text.splitlines()) if not line["note"]]


def test_a_learner_is_its_teams_user_and_reaches_nothing_of_others(running: Platform, code: Path) -> None:
    sleeper = running.submit(manifest("sleeper", "red", ["sleep", "600"]), code)
    running.wait_for(sleeper, "PROCESSING")
    data, others = running.directory / "data", running.volume(sleeper)
    words = [sys.executable, "probe.py", "$JOB_STATE_DIR/..", str(data), str(others)]
    probe = running.submit(manifest("probe", "blue", ["sh", "-c", " ".join(words)]), code)
    running.wait_for(probe, "COMPLETED")
    (pod,) = learner_pods(sleeper, "red")
    running.command("delete", sleeper)
    found = json.loads(lines(running, probe)[0])
    red, blue = user_of(running, "red"), user_of(running, "blue")
    assert red != blue and FIRST_USER <= min(red, blue) <= max(red, blue) <= LAST_USER
    assert found["ids"] == [blue] * 6 and found["umask"] == 0o027
    assert set(found["groups"]) <= {blue}  # containerd names the group of the user among the others, or not
    assert found["privileges"] == ["1", "0" * 16, "0" * 16] and found["root"] == "PermissionError"
    # Directories of its own file system: the image's, and the way to its own volume.
    for own in ("/root", str(data / "jobs")):
        found["reads"].pop(own)
    reached = {path: how for path, how in (found["reads"] | found["writes"]).items() if how not in NOT_THERE}
    assert reached == {}, found
    assert found["reads"][str(running.volume(probe) / "state" / ".." / "token")] == "PermissionError"
    assert found["processes"] == {}  # nor does it see its guardian
    environment = found["environment"]
    assert not [name for name in environment if name.startswith("TESSER_TOKEN") or name == "TESSER_POD"]
    assert not Path(environment["HOME"]).is_relative_to("/root")

    security = pod["spec"]["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"]) == (red, red) and "fsGroup" not in security
    of_container = pod["spec"]["containers"][0]["securityContext"]
    assert of_container["allowPrivilegeEscalation"] is False and of_container["capabilities"] == {"drop": ["ALL"]}
    assert not pod["spec"].get("automountServiceAccountToken", True)


def test_a_teams_job_is_killed_halted_and_resumed_and_what_it_made_is_downloaded(
    running: Platform, code: Path, tmp_path: Path
) -> None:
    job = running.submit(manifest("train", "red", [sys.executable, "train.py", str(STEPS), "0.2"], learners=2), code)

    def stepped(step: int) -> None:
        running.wait_until(lambda: f"step {step}" in lines(running, job), f"step {step}")

    stepped(3)
    red = user_of(running, "red")
    learner = newest_learner(running.volume(job), 0)
    assert learner is not None
    assert {os.stat(f"/proc/{pid}").st_uid for pid in (learner, *tagged(job))} == {red}
    os.kill(learner, signal.SIGKILL)
    running.wait_until(lambda: running.job(job)["attempt"] == 2, "second attempt")
    stepped(10)
    running.command("halt", job)
    running.wait_for(job, "HALTED")
    assert learner_pods(job, "red") == []
    archive = tmp_path / "checkpoint.tar"
    running.command("download", job, "--checkpoint", "-o", archive)
    with tarfile.open(archive) as checkpoint:
        files = [each for each in checkpoint if each.isfile()]
        saved = {Path(each.name).name: checkpoint.extractfile(each).read().decode() for each in files}
    assert int(saved["rank-0"].split()[0]) >= 10 and "rank-1" in saved

    running.command("resume", job)
    running.wait_for(job, "COMPLETED")
    archive = tmp_path / "results.tar"
    running.command("download", job, "-o", archive)
    with tarfile.open(archive) as results:
        made = {each.name: results.extractfile(each).read().decode() for each in results if each.isfile()}
    assert made == {f"rank-{rank}": weights(rank) for rank in (0, 1)}
    for rank in (0, 1):
        steps = [line for line in lines(running, job, rank) if line.startswith("step")]
        assert set(steps) == {f"step {step}" for step in range(1, STEPS + 1)}
        begins = [int(line.split()[1]) for line in lines(running, job, rank) if line.startswith("begin")]
        assert len(begins) == 3 and begins[0] == 0 < begins[1] < begins[2]

    volume = running.volume(job)
    for part in ("results", "checkpoints", "state", "attempts", "logs", "metrics"):
        for path in (volume / part, *(volume / part).rglob("*")):
            status = path.lstat()
            assert status.st_uid == red, path
            assert not stat.S_IMODE(status.st_mode) & 0o007 or path.is_symlink() or part == "attempts", path
    for name in ("guardian", "token"):
        status = (volume / name).stat()
        assert status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077, name


def test_a_data_store_is_what_its_teams_user_may_read(running: Platform, code: Path, shared: Path) -> None:
    def outcome(team: str, directory: Path) -> dict:
        store = {"id": "s", "type": "host", "path": str(directory)}
        job = running.submit(
            manifest("stores", team, ["sh", "-c", "cat $DATA_DIR/s/number"], data_stores=[store]), code
        )
        ended = running.wait_for(job, "COMPLETED", "FAILED")
        return ended | {"lines": lines(running, job)}

    running.wait_for(running.submit(manifest("first", "red", ["true"]), code), "COMPLETED")  # its team has a user now
    directory = shared / "of-red"
    directory.mkdir(mode=0o700)
    (directory / "number").write_text("42\n")
    for path in (directory, directory / "number"):
        os.chown(path, user_of(running, "red"), user_of(running, "red"))
    ours = outcome("red", directory)
    assert (ours["state"], ours["lines"]) == ("COMPLETED", ["42"]), ours
    others = outcome("blue", directory)
    assert others["state"] == "FAILED" and "Permission denied" in others["lines"][0], others
    assert "42" not in others["lines"]


def test_too_much_memory_is_said_to_be_that(running: Platform, code: Path) -> None:
    grow = "data = []\nwhile True: data.append(bytearray(16 << 20))"
    job = running.submit(manifest("grows", "red", [sys.executable, "-c", grow], restarts=1), code)
    begin = time.monotonic()
    ended = running.wait_for(job, "FAILED")
    assert "memory" in ended["reason"] and ended["code"].startswith("U_"), ended
    assert time.monotonic() - begin < 120
