"""What the scheduler promises, kept by a running server: borrowed places are taken back without a loss, gangs run one
after the other, drained nodes empty, large jobs are not delayed by small ones, whoever dies meanwhile.

On the engine `local`; TESSER_ALL_ENGINES: on every engine that is there, as `./x test --kubernetes` runs them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.python.platform.engine_servers import ENGINES, EngineServer, engine_server
from tests.python.platform.server_process import Server, zip_of

# A computation of which each step depends on all before: whatever is lost, or done twice, is another end.
TRAIN = """
import hashlib, os, sys, time
from pathlib import Path
steps, pause = int(sys.argv[1]), float(sys.argv[2])
saved = Path(os.environ["CHECKPOINT_DIR"], os.environ["LEARNER_ID"])
first, weights = saved.read_text().split() if saved.exists() else ("0", os.environ["LEARNER_ID"])
print("begin", first, flush=True)
for step in range(int(first), steps):
    weights = hashlib.sha256(f"{weights} {step}".encode()).hexdigest()
    saved.with_suffix(".new").write_text(f"{step + 1} {weights}")
    saved.with_suffix(".new").rename(saved)
    print("step", step + 1, flush=True)
    time.sleep(pause)
Path(os.environ["RESULT_DIR"], os.environ["LEARNER_ID"]).write_text(weights)
"""
STEPS = 25
# Ends only a while after it was told to.
SLOW_TO_END = f"trap 'sleep 2; exit 1' TERM; $TESSER_PYTHON train.py {STEPS} 0.1 & wait $!"
WAIT = "until [ -e $JOB_STATE_DIR/go ]; do sleep 0.05; done"
LENT = "team owners needs the places that it had lent"


def weights(rank: int, steps: int) -> bytes:
    """As of a run that nothing disturbs."""
    value = str(rank)
    for step in range(steps):
        value = hashlib.sha256(f"{value} {step}".encode()).hexdigest()
    return value.encode()


@dataclass
class Cluster:
    """Two nodes that take one learner each, and what its jobs belong to."""

    running: EngineServer
    jobs: list[str] = field(default_factory=list)

    @property
    def server(self) -> Server:
        return self.running.server

    def submit(self, name: str, command: str, team: str = "owners", learners: int = 1, **more: object) -> str:
        cpus = self.running.cpus
        text = {"name": name, "team": team, "command": command, "learners": learners}
        text["cpus"] = cpus if cpus.endswith("m") else float(cpus)
        text |= {"restarts": 0, "environment": self.running.environment()} | more
        self.jobs.append(self.server.accepted(json.dumps(text), zip_of({"train.py": TRAIN})))
        return self.jobs[-1]

    def train(self, name: str, steps: int, pause: float, **more: object) -> str:
        return self.submit(name, f"exec $TESSER_PYTHON train.py {steps} {pause}", **more)

    def job(self, job: str) -> dict:
        return self.server.get(f"/v1/jobs/{job}")

    def history(self, job: str) -> list[dict]:
        return self.server.get(f"/v1/jobs/{job}/history")["changes"]

    def time_of(self, job: str, state: str) -> str:
        return next(change["time"] for change in self.history(job) if change["state"] == state)

    def until(self, holds: Callable[[], object], what: str) -> None:
        end = time.monotonic() + self.running.seconds
        while not holds():
            assert time.monotonic() < end, f"no {what}: {self.server.get('/v1/jobs')}"
            time.sleep(0.03)

    def wait_for(self, job: str, state: str) -> dict:
        return self.server.wait_for(job, state, seconds=self.running.seconds)

    def wait_for_step(self, job: str, step: int) -> None:
        """Of each learner; the checkpoint of the step is there then."""
        learners = self.job(job)["learners_wanted"]
        self.until(lambda: self.server.log(job).count(f"step {step}") >= learners, f"step {step}")

    def is_queued_because(self, job: str, reason: str) -> bool:
        now = self.job(job)
        return now["state"] == "QUEUED" and reason in now["reason"]

    def let_go(self, job: str) -> None:
        state = self.server.data / "jobs" / job / "state"
        self.until(state.is_dir, "state of the command")  # its learner makes it
        (state / "go").touch()

    def results(self, job: str) -> dict[str, bytes]:
        with tarfile.open(fileobj=io.BytesIO(self.server.ask("GET", f"/v1/jobs/{job}/results").body)) as archive:
            return {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}

    def begins(self, job: str) -> list[str]:
        return [line for line in self.server.log(job) if line.startswith("begin")]

    def set_quota(self, team: str, **quota: object) -> None:
        answer = self.server.ask("PUT", f"/v1/teams/{team}/quota", quota)
        assert answer.status == 200, answer.body

    def drain(self, node: str, drains: bool = True) -> None:
        answer = self.server.ask("PATCH", f"/v1/nodes/{node}", {"drain": drains})
        assert answer.status == 200, answer.body

    def check_preempted_once(self, job: str, reason: str) -> None:
        changes = [change for change in self.history(job) if change["state"] == "QUEUED"][1:]
        assert [(change["code"], change["reason"]) for change in changes] == [("S_PREEMPTED", reason)]
        assert "FAILED" not in self.server.states(job) and self.job(job)["restarts"] == 0


@pytest.fixture(scope="module", params=ENGINES if "TESSER_ALL_ENGINES" in os.environ else ("local",))
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    with engine_server(request.param, tmp_path_factory.mktemp(request.param)) as made:
        for team in ("owners", "guests"):
            assert made.server.ask("POST", "/v1/teams", {"name": team}).status == 201
        yield made


@pytest.fixture()
def cluster(running: EngineServer) -> Iterator[Cluster]:
    made = Cluster(running)
    yield made
    for job in made.jobs:
        running.server.ask("DELETE", f"/v1/jobs/{job}")
    for team in ("owners", "guests"):
        running.server.ask("DELETE", f"/v1/teams/{team}/quota")
    for node in ("node1", "node2"):
        made.drain(node, False)
    made.until(lambda: not running.server.get("/v1/jobs")["jobs"], "end of the test's jobs")


def test_borrowed_places_are_taken_back_and_the_job_ends_as_if_not(cluster: Cluster) -> None:
    cluster.set_quota("owners", millicpus=10**6)
    guest = cluster.train("guest", STEPS, 0.1, team="guests", learners=2)
    cluster.wait_for_step(guest, 5)
    assert cluster.job(guest)["is_borrowed"]
    (team,) = (each for each in cluster.server.get("/v1/quota")["teams"] if each["team"] == "guests")
    assert team["held"]["millicpus"] == team["borrowed"]["millicpus"] > 0 and team["quota"] is None

    owner = cluster.submit("owner", WAIT)
    assert not cluster.wait_for(owner, "PROCESSING")["is_borrowed"]
    # It may have the other node, but needs both.
    cluster.until(lambda: cluster.is_queued_because(guest, "needs 2 learners"), "reason to wait")
    assert cluster.job(guest)["place_in_queue"] == 1 and not cluster.job(guest)["is_borrowed"]
    cluster.let_go(owner)
    cluster.wait_for(owner, "COMPLETED")
    done = cluster.wait_for(guest, "COMPLETED")
    cluster.check_preempted_once(guest, LENT)
    assert done["attempt"] == 2
    assert cluster.results(guest) == {str(rank): weights(rank, STEPS) for rank in range(2)}
    begins = [int(line.split()[1]) for line in cluster.begins(guest)]
    assert len(begins) == 4 and sorted(begins)[:2] == [0, 0] and sorted(begins)[2] >= 5  # from its checkpoint


def test_two_gangs_that_exceed_the_cluster_run_one_after_the_other(cluster: Cluster) -> None:
    first = cluster.submit("first", WAIT, learners=2)
    cluster.wait_for(first, "PROCESSING")
    second = cluster.train("second", 2, 0, learners=2)
    cluster.until(lambda: cluster.is_queued_because(second, "needs 2 learners"), "reason to wait")
    assert cluster.job(second)["place_in_queue"] == 1
    cluster.let_go(first)
    cluster.wait_for(first, "COMPLETED")
    cluster.wait_for(second, "COMPLETED")
    assert cluster.time_of(second, "PENDING") >= cluster.time_of(first, "COMPLETED")
    assert cluster.server.states(second).count("PENDING") == 1


def test_a_drained_node_empties_and_its_jobs_go_on_elsewhere(cluster: Cluster) -> None:
    job = cluster.train("moves", STEPS, 0.1)
    cluster.wait_for_step(job, 5)
    (learner,) = cluster.job(job)["learners"]
    node = learner["node"]
    cluster.drain(node)
    cluster.wait_for(job, "COMPLETED")
    cluster.check_preempted_once(job, f"{node} is being emptied")
    assert cluster.results(job) == {"0": weights(0, STEPS)}
    assert int(cluster.begins(job)[-1].split()[1]) >= 5
    second = json.loads((cluster.server.data / "jobs" / job / "attempts" / "2" / "deployment.json").read_text())
    assert second["nodes"] == [{"node1": "node2", "node2": "node1"}[node]]
    (drained,) = (each for each in cluster.server.get("/v1/nodes")["nodes"] if each["name"] == node)
    assert drained["is_draining"] and drained["jobs"] == [] and drained["held"]["millicpus"] == 0
    # Nothing comes to it until it is opened again.
    gang = cluster.train("gang", 1, 0, learners=2)
    cluster.until(lambda: cluster.is_queued_because(gang, "could not hold it"), "reason to wait")
    cluster.drain(node, False)
    cluster.wait_for(gang, "COMPLETED")


def test_a_large_job_at_the_head_is_not_delayed_by_small_ones(cluster: Cluster) -> None:
    runs = cluster.submit("runs", WAIT, time_limit="5m")
    cluster.wait_for(runs, "PROCESSING")
    head = cluster.train("head", 2, 0, learners=2, time_limit="1h")
    cluster.until(lambda: cluster.job(head)["place_in_queue"] == 1, "place in the queue")
    endless = cluster.train("endless", 2, 0)
    short = cluster.train("short", 2, 0, time_limit="1m")
    cluster.wait_for(short, "COMPLETED")  # on the free node, since it is over before both are free
    cluster.until(lambda: cluster.is_queued_because(endless, f"would keep {head} waiting"), "reason to wait")
    assert cluster.job(head)["state"] == "QUEUED" and cluster.job(endless)["place_in_queue"] == 2
    assert cluster.time_of(runs, "PENDING") < cluster.job(head)["starts_by"]
    cluster.let_go(runs)
    for job in (head, endless):
        cluster.wait_for(job, "COMPLETED")
    assert cluster.time_of(endless, "PENDING") >= cluster.time_of(head, "PENDING")


def preempt(cluster: Cluster) -> tuple[str, str]:
    """A guest that is on its way out, and the owner for whom it is."""
    cluster.set_quota("owners", millicpus=10**6)
    guest = cluster.submit("guest", SLOW_TO_END, team="guests", learners=2, grace="20s")
    cluster.wait_for_step(guest, 5)
    owner = cluster.submit("owner", WAIT, learners=2)
    cluster.until(lambda: cluster.job(guest)["reason"] == LENT, "preemption")
    assert cluster.job(guest)["state"] == "PROCESSING" and cluster.job(owner)["state"] == "QUEUED"
    return guest, owner


def test_a_server_that_dies_in_the_middle_of_a_preemption(cluster: Cluster) -> None:
    guest, owner = preempt(cluster)
    cluster.server.restart(signal.SIGKILL)
    assert cluster.job(guest)["state"] in ("PROCESSING", "QUEUED")
    cluster.wait_for(owner, "PROCESSING")
    cluster.until(lambda: cluster.is_queued_because(guest, "needs 2 learners"), "reason to wait")
    cluster.let_go(owner)
    cluster.wait_for(owner, "COMPLETED")
    cluster.wait_for(guest, "COMPLETED")
    cluster.check_preempted_once(guest, LENT)
    assert cluster.results(guest) == {str(rank): weights(rank, STEPS) for rank in range(2)}


def test_what_the_owner_of_a_preempted_job_wants_comes_first(cluster: Cluster) -> None:
    guest, owner = preempt(cluster)
    assert cluster.server.ask("PATCH", f"/v1/jobs/{guest}", {"wanted": "halt"}).status == 200
    cluster.until(lambda: cluster.job(guest)["state"] == "HALTED", "HALTED")
    cluster.wait_for(owner, "PROCESSING")
    cluster.let_go(owner)
    cluster.wait_for(owner, "COMPLETED")
    time.sleep(0.3)
    assert cluster.job(guest)["state"] == "HALTED"  # and nobody starts it again
    assert cluster.server.ask("PATCH", f"/v1/jobs/{guest}", {"wanted": "run"}).json["state"] == "RESUMED"
    cluster.until(lambda: cluster.job(guest)["state"] == "COMPLETED", "COMPLETED")
    assert cluster.results(guest) == {str(rank): weights(rank, STEPS) for rank in range(2)}
