"""Random faults at random moments of a job's life on the engines `local` and `slurm`: whatever dies, the job comes to
its end with the weights of an undisturbed run, its log has every line, and nothing is left behind.

TESSER_FAULT_SEEDS: how many schedules (`./x test --faults` runs many more than the usual run); a tenth as many more on
Slurm.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.python.platform.guarded_job import GuardedJob, guarded_job
from tests.python.platform.served_job import ServedJob, served_job
from tests.python.platform.slurm_cluster import SlurmCluster, SlurmJob, slurm_cluster, slurm_job

SEEDS = int(os.environ.get("TESSER_FAULT_SEEDS", "6"))
FIRST_SEED = int(os.environ.get("TESSER_FAULT_FIRST_SEED", "1"))
STEPS = 20
SECONDS = 90
GUARDIAN_SECONDS = 10  # after the end of its job
SLURM_SEEDS = max(1, SEEDS // 10)

# A training run that takes about a second and can be checked: its weights depend on every step, its checkpoint is
# written after the line of its step.
TRAIN = f"""
file=$CHECKPOINT_DIR/$LEARNER_ID; step=0; weight=1
if [ -e $file ]; then read step weight < $file; fi
echo "begin $step"
while [ $step -lt {STEPS} ]; do
  step=$((step + 1)); weight=$(((weight * 31 + step) % 1000003))
  echo "step $step $weight"
  echo "$step $weight" > $file.new.$$; mv $file.new.$$ $file
  sleep 0.04
done
echo $weight > $RESULT_DIR/weights-$LEARNER_ID
"""


def expected_weights() -> list[int]:
    weights, weight = [], 1
    for step in range(1, STEPS + 1):
        weight = (weight * 31 + step) % 1000003
        weights.append(weight)
    return weights


def children_of(process: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []


@dataclass
class Faults:
    """What may happen, each at its time; what follows from it later is put into the schedule."""

    job: GuardedJob
    random: random.Random
    span: float = 2.0  # seconds of a job's life
    due: list[tuple[float, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    paused: list[int] = field(default_factory=list)

    def plan(self) -> None:
        kinds = [name.removeprefix("do_") for name in dir(self) if name.startswith("do_")]
        for _ in range(self.random.randint(1, 4)):
            self.due.append((self.random.uniform(0, self.span), self.random.choice(kinds)))
        self.due.sort()

    def happen(self, since: float) -> None:
        while self.due and self.due[0][0] <= since:
            at, kind = self.due.pop(0)
            self.said.append(f"{at:.3f} {kind}")
            getattr(self, kind if kind.startswith("later_") else "do_" + kind)(since)

    def later(self, since: float, seconds: float, kind: str) -> None:
        self.due.append((since + seconds, kind))
        self.due.sort()

    def kill(self, process: int | None, number: int = signal.SIGKILL) -> bool:
        if process is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
            return True
        return False

    def do_kill_guardian(self, since: float) -> None:
        if self.job.guardian.pid:
            self.job.guardian.kill()

    def do_pause_guardian(self, since: float) -> None:
        self.pause(self.job.guardian.pid, since)

    def do_kill_learner(self, since: float) -> None:
        self.kill(self.job.learner(self.random.randrange(2)))

    def do_pause_learner(self, since: float) -> None:
        self.pause(self.job.learner(self.random.randrange(2)), since)

    def do_kill_child_of_learner(self, since: float) -> None:
        """Its collector or its command, whichever it hits."""
        process = self.job.learner(self.random.randrange(2))
        children = children_of(process) if process else []
        if children:
            self.kill(self.random.choice(children))

    def do_kill_server(self, since: float) -> None:
        self.job.server.kill()
        self.job.server.wait()
        self.later(since, self.random.uniform(0, 1.0), "later_start_server")

    def later_start_server(self, since: float) -> None:
        if self.job.server.poll() is not None:
            self.job.start_server()

    def do_kill_server_and_guardian(self, since: float) -> None:
        self.do_kill_guardian(since)
        self.do_kill_server(since)

    def do_lose_node(self, since: float) -> None:
        self.job.kill_node(self.random.choice(self.job.nodes))
        self.later(since, self.random.uniform(0.1, 1.0), "later_mend_nodes")

    def later_mend_nodes(self, since: float) -> None:
        for node in (self.job.state_directory / "nodes").iterdir():
            node.unlink()

    def do_halt(self, since: float) -> None:
        self.later(since, 0, "later_want_halt")

    def later_want_halt(self, since: float) -> None:
        if self.job.server.poll() is None:
            self.job.tell(wanted="halt")
            self.later(since, self.random.uniform(0, 0.5), "later_want_run")
        else:
            self.later(since, 0.05, "later_want_halt")

    def later_want_run(self, since: float) -> None:
        if self.job.server.poll() is None:
            self.job.tell(wanted="run")
        else:
            self.later(since, 0.05, "later_want_run")

    def pause(self, process: int | None, since: float) -> None:
        if self.kill(process, signal.SIGSTOP):
            self.paused.append(process)
            self.later(since, self.random.uniform(0.05, 0.5), "later_continue")

    def later_continue(self, since: float) -> None:
        self.kill(self.paused.pop(0), signal.SIGCONT)


@dataclass
class SlurmFaults(Faults):
    job: SlurmJob
    span: float = 4.0

    def do_kill_controller(self, since: float) -> None:
        self.job.cluster.take_controller("kill")
        self.later(since, self.random.uniform(0, 2.0), "later_start_controller")

    def do_stop_controller(self, since: float) -> None:
        self.job.cluster.take_controller("stop")
        self.later(since, self.random.uniform(0, 2.0), "later_start_controller")

    def later_start_controller(self, since: float) -> None:
        self.job.cluster.start_controller()

    def do_kill_slurmd(self, since: float) -> None:
        self.job.cluster.kill_slurmd(self.random.randint(1, 2))
        self.later(since, self.random.uniform(0, 1.0), "later_mend_nodes")

    def do_kill_srun(self, since: float) -> None:
        self.kill(self.job.srun)

    def do_lose_node(self, since: float) -> None:
        self.job.cluster.lose_node(self.random.randint(1, 2))
        self.later(since, self.random.uniform(0.1, 1.0), "later_mend_nodes")

    def later_mend_nodes(self, since: float) -> None:
        self.job.cluster.start_nodes()


def schedule_places(job: GuardedJob) -> None:
    """What the server's scheduler does: a job that waits gets places, and a guardian."""
    record = job.record
    state = record["history"][-1]["state"]
    if job.guardian.poll() is None or job.server.poll() is not None or record["wanted"] != "run":
        return
    down = {path.name for path in (job.state_directory / "nodes").glob("*")}
    free = [node for node in ("node1", "node2", "node3") if node not in down]
    if state in ("QUEUED", "HALTED") and free:
        states = ["PENDING"] if state == "QUEUED" else ["RESUMED", "PENDING"]
        job.tell(states=states, placement=[free[0], free[-1]])


def want_what_was_halted(job: ServedJob) -> None:
    """The owner wants a job to run on that was halted before it heard otherwise."""
    if job.server.poll() is None and job.last["state"] == "HALTED" and job.last["wanted"] == "run":
        job.want("run")


def check_log(job: GuardedJob, rank: int) -> None:
    weights = expected_weights()
    seen: set[int] = set()
    expected = None
    for line in job.log(rank):
        words = line.split()
        if words[0] == "begin":
            expected = int(words[1])
            # What a checkpoint has was said before it was written.
            assert all(step in seen for step in range(1, expected + 1)), f"lines are missing before '{line}'"
        elif words[0] == "step":
            expected += 1
            assert words[1:] == [str(expected), str(weights[expected - 1])], line
            seen.add(expected)
    assert seen == set(range(1, STEPS + 1))
    assert (job.volume / "results" / f"weights-{rank}").read_text().strip() == str(weights[-1])


def run_to_its_end(job: GuardedJob, seed: int, between, kind: type[Faults] = Faults, seconds: float = SECONDS) -> None:
    """Whatever happens by this seed; `between` is done all the time."""
    faults = kind(job, random.Random(seed))
    faults.plan()
    begin = time.monotonic()
    try:
        while job.state not in ("COMPLETED", "FAILED") or faults.due:
            since = time.monotonic() - begin
            assert since < seconds, f"not at its end after {seconds} s"
            faults.happen(since)
            between()
            time.sleep(0.005)
        assert job.state == "COMPLETED"
        job.guardian.wait(GUARDIAN_SECONDS)
        job.check_end()
        for rank in range(2):
            check_log(job, rank)
    except (AssertionError, OSError) as error:
        log = job.volume / "guardian" / "log"
        raise AssertionError(
            f"seed {seed}, faults {faults.said}: {error}\n{job.record['history']}\n"
            f"{log.read_text() if log.exists() else ''}"
        ) from error


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS // 2))
def test_a_guardian_brings_its_job_to_its_end(tmp_path: Path, seed: int) -> None:
    """Under a server that only this test's scheduler drives."""
    with guarded_job(tmp_path, ["sh", "-c", TRAIN], ["node1", "node2"], restarts=50, grace_seconds=1) as job:

        def between() -> None:
            schedule_places(job)
            job.supervise()

        run_to_its_end(job, seed, between)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS - SEEDS // 2))
def test_a_job_that_is_accepted_comes_to_its_end(tmp_path: Path, seed: int) -> None:
    """Under the real server, which finds places and starts guardians by itself."""
    with served_job(tmp_path, ["sh", "-c", TRAIN], ["node1", "node2"], restarts=50, grace=1) as job:
        run_to_its_end(job, seed, lambda: want_what_was_halted(job))


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as made:
        yield made


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SLURM_SEEDS))
def test_a_job_on_slurm_comes_to_its_end(tmp_path: Path, cluster: SlurmCluster, seed: int) -> None:
    try:
        with slurm_job(tmp_path, cluster, ["sh", "-c", TRAIN], restarts=50, grace=1) as job:

            def between() -> None:
                want_what_was_halted(job)
                job.supervise()

            run_to_its_end(job, seed, between, SlurmFaults)
    finally:
        cluster.mend()
