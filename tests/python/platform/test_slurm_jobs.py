"""Whole jobs over `tesser server --engine slurm`, on a real cluster of two nodes: to their ends, whatever is killed."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.python.platform.server_process import Server, manifest, zip_of
from tests.python.platform.slurm_cluster import SlurmCluster, SlurmJob, slurm_cluster, slurm_job
from tests.python.platform.test_faults import TRAIN, check_log

SECONDS = 60
# Waits in its third step until the test lets it go on.
TRAIN_AND_WAIT = TRAIN.replace("sleep 0.04", "until [ $step -lt 3 -o -e $JOB_STATE_DIR/go ]; do sleep 0.02; done")
STAGES = ["QUEUED", "PENDING", "DEPLOYING", "DOWNLOADING", "PROCESSING", "STORING", "COMPLETED"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as made:
        yield made


@pytest.fixture(scope="module")
def server(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("slurm") / "data", *cluster.options).start()
    yield made
    made.close()
    assert cluster.live_jobs() == ""


def nodes_of(server: Server, job: str) -> list[str]:
    """Where its first attempt was deployed, by rank."""
    return json.loads((server.data / "jobs" / job / "attempts" / "1" / "deployment.json").read_text())["nodes"]


def archive_of(server: Server, job: str, what: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(server.ask("GET", f"/v1/jobs/{job}/{what}").body)) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}


def test_two_learners_on_two_nodes(server: Server) -> None:
    # A node of the cluster is a process namespace.
    command = "echo $1 $LEARNER_ID of $NUM_LEARNERS in $(readlink /proc/self/ns/pid); echo $1 > $RESULT_DIR/$LEARNER_ID"
    # Half a processor is a whole one for Slurm, and nodes have one each.
    job = server.accepted(manifest(command="sh run.sh hello", learners=2, cpus=0.5), zip_of({"run.sh": command}))
    done = server.wait_for(job, "COMPLETED", seconds=SECONDS)
    assert server.states(job) == STAGES
    assert done["attempt"] == 1 and nodes_of(server, job) == ["node1", "node2"]
    lines = sorted(server.log(job))
    assert [line.split(" in ")[0] for line in lines] == ["hello 0 of 2", "hello 1 of 2"]
    assert len({line.split(" in ")[1] for line in lines}) == 2
    assert archive_of(server, job, "results") == {"0": b"hello\n", "1": b"hello\n"}


def test_halt_and_resume_with_another_number_of_learners(server: Server, cluster: SlurmCluster) -> None:
    job = server.accepted(
        manifest(command="echo $LEARNER_ID of $NUM_LEARNERS; test $NUM_LEARNERS = 1 || sleep 60", learners=2, grace=1)
    )
    server.wait_for(job, "PROCESSING", seconds=SECONDS)
    assert server.ask("PATCH", f"/v1/jobs/{job}", {"wanted": "halt"}).status == 200
    server.wait_for(job, "HALTED")
    assert cluster.live_jobs(job) == ""
    assert server.ask("PATCH", f"/v1/jobs/{job}", {"wanted": "run", "learners": 1}).json["learners_wanted"] == 1
    until = time.monotonic() + SECONDS
    while server.get(f"/v1/jobs/{job}")["state"] != "COMPLETED" and time.monotonic() < until:
        time.sleep(0.02)
    states = server.states(job)
    assert states[states.index("HALTED") :] == ["HALTED", "RESUMED", *STAGES[1:]]
    assert server.log(job)[-1] == "0 of 1"


def kill_guardian(job: SlurmJob) -> None:
    job.guardian.kill()


def kill_server(job: SlurmJob) -> None:
    job.server.kill()
    job.server.wait()
    time.sleep(0.3)
    job.start_server()


def kill_learner(job: SlurmJob) -> None:
    os.kill(job.learner(1), signal.SIGKILL)


def kill_controller(job: SlurmJob) -> None:
    job.cluster.take_controller("kill")
    time.sleep(0.3)
    job.cluster.start_controller()


def lose_node(job: SlurmJob) -> None:
    job.cluster.lose_node(2)
    job.cluster.start_nodes()


@pytest.mark.parametrize("kill", [kill_guardian, kill_server, kill_learner, kill_controller, lose_node])
def test_a_job_comes_to_its_end(tmp_path: Path, cluster: SlurmCluster, kill: Callable[[SlurmJob], None]) -> None:
    with slurm_job(tmp_path, cluster, ["sh", "-c", TRAIN_AND_WAIT], grace=1) as job:
        job.wait_until(lambda: any(line.startswith("step 3 ") for line in job.log(1)), "third step of learner 1")
        kill(job)
        (job.volume / "state" / "go").touch()
        job.wait_for("COMPLETED", "FAILED")
        assert job.state == "COMPLETED", job.record
        job.guardian.wait(10)
        job.check_end()
        for rank in range(2):
            check_log(job, rank)
        begins = [line for line in job.log(1) if line.startswith("begin")]
        if kill in (kill_guardian, kill_server):
            assert begins == ["begin 0"] and job.last["attempt"] == 1  # the command noticed nothing
        elif kill in (kill_learner, lose_node):
            assert begins == ["begin 0", "begin 3"]
    cluster.mend()
