"""Slurm where each team's learners have a user of their own, as a server has it that root runs: such a job comes to its
end as any other, and its user reaches nothing of others on the nodes or through Slurm's own commands.
"""

from __future__ import annotations

import contextlib
import grp
import io
import json
import os
import pwd
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.python.platform.served_job import newest_learner
from tests.python.platform.server_process import Server, manifest, zip_of
from tests.python.platform.slurm_cluster import SlurmCluster, slurm_cluster
from tests.python.platform.tenants import FIRST_USER, IS_ROOT, SECRET, TenantServer
from tests.python.platform.test_faults import TRAIN, expected_weights
from tests.python.platform.test_isolation import PROBE

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root submits to Slurm as other users")

SECONDS = 60
TRAIN_AND_WAIT = TRAIN.replace("sleep 0.04", "until [ $step -lt 3 -o -e $JOB_STATE_DIR/go ]; do sleep 0.02; done")


def first_of_known_users() -> int:
    """Slurm takes jobs only of users that the system knows: two in a row of those that systems have for services, which
    do not run here.
    """
    busy = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            busy.add(process.stat().st_uid)
    groups = {group.gr_gid for group in grp.getgrall()}
    users = {user.pw_uid for user in pwd.getpwall() if 0 < user.pw_uid < 1000 and user.pw_uid in groups - busy}
    for first in sorted(users, reverse=True):
        if first + 1 in users:
            return first
    pytest.skip("this machine has no two users with numbers in a row that have no processes")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster(cpus=4) as made:
        yield made


@pytest.fixture(scope="module")
def server(cluster: SlurmCluster) -> Iterator[TenantServer]:
    made = TenantServer(engine=cluster.options, first_user=first_of_known_users()).start().add_tenants()
    yield made
    made.close()
    assert cluster.live_jobs() == ""


def user_of(server: TenantServer, team: str) -> int:
    return next(each["learner_user"] for each in server.get("/v1/teams")["teams"] if each["name"] == team)


def until(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.02)


def archive_of(server: TenantServer, job: str, what: str) -> dict[str, bytes]:
    answer = server.as_user("ann", "GET", f"/v1/jobs/{job}/{what}")
    assert answer.status == 200, answer.error
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}


def test_users_that_slurm_does_not_know_are_refused_at_the_start(tmp_path: Path) -> None:
    first = first_of_known_users()
    for users, unknown in ((f"{FIRST_USER}-{FIRST_USER + 9}", FIRST_USER), (f"{first}-{FIRST_USER}", FIRST_USER)):
        server = Server(tmp_path / "data", "--engine", "slurm", "--learner-users", users)
        done = subprocess.run(server.words(), capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 2 and f"knows no user {unknown}" in done.stderr, done.stderr


def slurm_jobs(cluster: SlurmCluster, job: str) -> list[list[str]]:
    """Number, user and state of what Slurm has under the job's name, whoever has named it so."""
    text = cluster.slurm("squeue", "--noheader", "--states=all", f"--name=tesser-{job}", "--format=%i %U %T")
    return [line.split() for line in text.splitlines()]


def step_of(volume: Path, rank: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        return (volume / "checkpoints" / rank).read_text().partition(" ")[0]
    return ""


def test_a_job_is_halted_resumed_and_ends_while_the_controller_is_away(
    server: TenantServer, cluster: SlurmCluster
) -> None:
    job = server.accepted_as("ann", manifest("red", f"id -u\n{TRAIN_AND_WAIT}", learners=2, grace=1))
    volume = server.data / "jobs" / job
    until(lambda: all(step_of(volume, rank) == "3" for rank in "01"), "checkpoints of the step that waits")
    user = str(user_of(server, "red"))
    assert user != "0" and {each[1] for each in slurm_jobs(cluster, job)} == {user}
    assert server.as_user("ann", "PATCH", f"/v1/jobs/{job}", {"wanted": "halt"}).status == 200
    server.wait_for(job, "HALTED", seconds=SECONDS)
    assert cluster.live_jobs(job) == ""
    assert set(archive_of(server, job, "checkpoints")) == {"0", "1"}

    answer = server.as_user("ann", "PATCH", f"/v1/jobs/{job}", {"wanted": "run", "learners": 1})
    assert answer.json["learners_wanted"] == 1
    until(lambda: server.log(job).count(user) == 3, "learner that goes on")
    cluster.take_controller("stop")
    (volume / "state" / "go").touch()
    until((volume / "results" / "weights-0").exists, "end of the command")
    cluster.start_controller()
    until(lambda: server.get(f"/v1/jobs/{job}")["state"] == "COMPLETED", "end")
    done = server.get(f"/v1/jobs/{job}")
    assert (done["attempt"], done["restarts"]) == (2, 0)
    assert archive_of(server, job, "results") == {"weights-0": f"{expected_weights()[-1]}\n".encode()}
    begins = [line for line in server.log(job) if line.startswith("begin")]
    assert sorted(begins) == ["begin 0", "begin 0", begins[-1]] and begins[-1] != "begin 0"
    written = [*volume.glob("results/*"), *volume.glob("checkpoints/*"), *volume.glob("logs/*/lines-*")]
    assert {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in written} == {(int(user), 0o640)}


# What blue's learner does to a job of red's through Slurm. Its own jobs are named after red's, with the words that
# Slurm shows everybody.
ATTACK = """
import json, os, subprocess, sys
from pathlib import Path
name, volume = sys.argv[1], sys.argv[2]
def slurm(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    return [done.returncode, done.stdout + done.stderr]
(line,) = slurm("squeue", "--noheader", f"--name={name}", "--format=%i|%k")[1].splitlines()
number, comment = line.split("|")
said = {" ".join(words[:3]): slurm(*words) for words in (
    ("scancel", number), ("scancel", "--signal=KILL", f"{number}.0"), ("scancel", "--batch", "--signal=KILL", number),
    ("scontrol", "update", f"JobId={number}", "TimeLimit=1"), ("scontrol", "hold", number),
    ("scontrol", "requeue", number), ("scontrol", "suspend", number),
    ("scontrol", "write", "batch_script", number, "-"), ("srun", f"--jobid={number}", "--overlap", "true"),
    ("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=mine"), ("scontrol", "shutdown"),
    ("sbatch", "--uid=root", "--wrap=true"),
)}
mine = Path(os.environ["JOB_STATE_DIR"]).parent
forged = f"x\\n{number}0|RUNNING|None|0|{comment}|1|node1|{volume}\\ny"
imitators = []
for words, directory in ((comment, volume), (comment, mine), (forged, volume), (forged, mine)):
    number = slurm("sbatch", "--parsable", f"--job-name={name}", f"--comment={words}", f"--chdir={directory}",
                   "--output=/dev/null", "--mem=10", "--wrap=sleep 600")
    imitators.append(number[1].strip())
# The ticket that lies in blue's own volume is red's, too.
ticket = comment.rpartition("=")[2]
(mine / "attempts/1/slurm/ticket").write_text(ticket + "\\n")
print(json.dumps({"said": said, "imitators": imitators}))
"""


def test_nothing_of_others_is_reached_from_a_node_or_through_slurm(server: TenantServer, cluster: SlurmCluster) -> None:
    red = server.accepted_as("ann", manifest("red", "touch $JOB_STATE_DIR/$LEARNER_ID; sleep 600", learners=2, grace=1))
    server.wait_for(red, "PROCESSING", seconds=SECONDS)
    before = slurm_jobs(cluster, red)
    volume, blue_environment = server.data / "jobs" / red, {"SLURM_CONF": str(cluster.configuration)}
    command = (
        f"/usr/bin/python3 probe.py $JOB_STATE_DIR/.. {server.data} {volume} && "
        f"/usr/bin/python3 attack.py tesser-{red} {volume}"
    )
    code = zip_of({"probe.py": PROBE, "attack.py": ATTACK})
    blue = server.accepted_as("bob", manifest("blue", command, environment=blue_environment), code, secrets={})
    server.wait_for(blue, "COMPLETED", seconds=SECONDS)
    probed, attacked = (json.loads(line) for line in server.log(blue))

    user = user_of(server, "blue")
    assert user not in (0, user_of(server, "red"))
    assert probed["ids"] == [user] * 6 and probed["groups"] in ([], [user]) and probed["umask"] == 0o027
    assert probed["privileges"] == ["1", "0" * 16, "0" * 16] and probed["root"] == "PermissionError"
    assert set(probed["reads"].values()) == set(probed["writes"].values()) == {"PermissionError"}, probed
    assert probed["processes"] == {}  # those of the server's machine, which is another
    environment = probed["environment"]
    assert SECRET not in environment.values() and "TESSER_TOKEN" not in environment
    assert not [name for name, value in environment.items() if value.startswith("/root") and name != "PATH"]
    assert not [name for name in environment if name.startswith("SLURM") and name != "SLURM_CONF"]

    # Some of Slurm's commands end with 0 all the same.
    refused = {
        what: code != 0 or "error" in text or "failed" in text for what, (code, text) in attacked["said"].items()
    }
    assert all(refused.values()), attacked["said"]
    imitators = attacked["imitators"]
    assert len(imitators) == 4 and all(each.isdigit() for each in imitators), attacked

    def states() -> dict[str, str]:
        return {number: state for number, _, state in slurm_jobs(cluster, red)}

    now = server.get(f"/v1/jobs/{red}")
    assert (now["state"], now["attempt"], now["restarts"]) == ("PROCESSING", 1, 0)
    assert [learner["state"] for learner in now["learners"]] == ["running", "running"]
    os.kill(newest_learner(volume, 1), signal.SIGKILL)
    until(lambda: server.get(f"/v1/jobs/{red}")["attempt"] == 2, "second attempt")
    server.wait_for(red, "PROCESSING", seconds=SECONDS)
    # What ends the job ends its own in Slurm, and nothing else.
    server.ask("DELETE", f"/v1/jobs/{red}")
    server.wait_until_gone(red)
    left = states()
    assert all(left[each] in ("PENDING", "RUNNING") for each in imitators), left
    assert all(left[number] != "RUNNING" for number, *_ in before), left
    cluster.slurm("scancel", *imitators)
