"""A real Slurm cluster of two nodes on this machine (tests/clusters/slurm-cluster.sh), and a job on it for tests that
kill what takes part in it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.python.commands import ROOT
from tests.python.platform.served_job import ServedJob, newest_learner

SECONDS = 60
SCRIPT = ROOT / "tests" / "clusters" / "slurm-cluster.sh"


class SlurmCluster:
    def __init__(self, directory: Path, cpus: int = 1) -> None:
        """With a processor each, two learners of one are always on both nodes."""
        self.directory = directory
        self._broken: set[int] = set()  # nodes that are lost or without their daemon
        self._is_controller_away = False
        self.times_killed = 0  # the controller
        self._look_again = 0.0
        up = self._script("up", "--cpus", cpus, "--owner", os.getpid())
        if up.returncode == 3:
            pytest.skip(up.stderr.strip())
        assert up.returncode == 0, up.stderr

    def _script(self, verb: str, *words: object) -> subprocess.CompletedProcess[str]:
        command = [str(word) for word in (SCRIPT, verb, self.directory, *words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)

    def do(self, verb: str, *words: object) -> None:
        done = self._script(verb, *words)
        assert done.returncode == 0, done.stderr

    def slurm(self, *words: str) -> str:
        """The output of one of Slurm's commands."""
        variables = os.environ | {"SLURM_CONF": str(self.configuration)}
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, env=variables)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    @property
    def configuration(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def options(self) -> tuple[str, ...]:
        """Of a server that has this cluster."""
        return ("--engine", "slurm", "--slurm-conf", str(self.configuration))

    def live_jobs(self, job: str = "") -> str:
        """What Slurm has of a job of the platform, or of all, that can still run something."""
        name = (f"--name=tesser-{job}",) if job else ()
        return self.slurm("squeue", "--noheader", "--states=PENDING,CONFIGURING,RUNNING,COMPLETING,SUSPENDED", *name)

    def lose_node(self, number: int) -> None:
        """As if its power went; Slurm is told, as a health check would. By itself it sees it half a minute later."""
        self.start_controller()
        self.do("kill-node", number)
        self._broken.add(number)
        self.slurm("scontrol", "update", f"NodeName=node{number}", "State=DOWN", "Reason=lost its power")

    def kill_slurmd(self, number: int) -> None:
        if number not in self._broken:
            self.do("kill-slurmd", number)
            self._broken.add(number)

    def start_nodes(self) -> None:
        while self._broken:
            self.do("start-node", self._broken.pop())

    def take_controller(self, how: str) -> None:
        """kill or stop: killed, it forgets what it was told within its last seconds."""
        if not self._is_controller_away:
            self.do(f"{how}-controller")
            self._is_controller_away = True
            self.times_killed += how == "kill"

    def start_controller(self) -> None:
        if self._is_controller_away:
            self.do("start-controller")
            self._is_controller_away = False
            self._wait_until(lambda: self._asks("scontrol", "ping"), "slurmctld answers")

    def resume_drained(self) -> None:
        """As an administrator does: slurmctld that was killed may give a number of a job again, and drains the nodes
        that say so ("Duplicate jobid").
        """
        if self._is_controller_away or time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + 1
        for number in {1, 2} - self._broken:
            if "drain" in self.slurm("sinfo", "-h", "-N", "-p", "main", "-n", f"node{number}", "-o", "%T"):
                self._asks("scontrol", "update", f"NodeName=node{number}", "State=RESUME")

    def mend(self) -> None:
        """Whole again, for the next job."""
        self.start_controller()
        self.start_nodes()

        def is_idle() -> bool:
            self.resume_drained()
            return self.slurm("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split() == ["idle", "idle"]

        self._wait_until(is_idle, "idle nodes")

    def _asks(self, *words: str) -> bool:
        variables = os.environ | {"SLURM_CONF": str(self.configuration)}
        return subprocess.run(words, capture_output=True, timeout=SECONDS, env=variables).returncode == 0

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < until, f"no {what} within {SECONDS} s"
            time.sleep(0.05)

    def close(self) -> None:
        self.do("down")


@contextlib.contextmanager
def slurm_cluster(cpus: int = 1) -> Iterator[SlurmCluster]:
    # Not below pytest's own directories: munge refuses sockets whose path is long or open to others.
    with tempfile.TemporaryDirectory(prefix="tesser-slurm-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)  # who has a job there is another user, perhaps
        cluster = SlurmCluster(Path(directory), cpus)
        try:
            yield cluster
        finally:
            cluster.close()


class SlurmJob(ServedJob):
    """One job of a server whose learners are Slurm's, each on a node of its own."""

    def __init__(self, directory: Path, cluster: SlurmCluster, command: list[str], **changes: object) -> None:
        self.cluster = cluster
        self.killed_before = cluster.times_killed
        super().__init__(directory, command, ["node1", "node2"], cpus=1, **changes)

    def engine_options(self) -> tuple[str, ...]:
        return self.cluster.options

    def learner(self, rank: int) -> int | None:
        return newest_learner(self.volume, rank)

    def supervise(self) -> None:
        self.cluster.resume_drained()

    @property
    def srun(self) -> int | None:
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                words = os.fsdecode(process.joinpath("cmdline").read_bytes()).split("\0")
                if words[0].endswith("srun") and any(str(self.volume) in word for word in words):
                    return int(process.name)
        return None

    def check_nothing_is_left(self) -> None:
        if self.cluster.times_killed > self.killed_before:
            # It takes what has ended within its last seconds for alive until nodes say that nothing of it is there.
            self.wait_until(lambda: self.cluster.live_jobs(self.name) == "", "end of what was forgotten to have ended")
        assert self.cluster.live_jobs(self.name) == ""

    def close(self) -> None:
        super().close()
        self.cluster.start_controller()
        self.cluster.slurm("scancel", "--quiet", f"--name=tesser-{self.name}")


@contextlib.contextmanager
def slurm_job(directory: Path, cluster: SlurmCluster, command: list[str], **changes: object) -> Iterator[SlurmJob]:
    job = SlurmJob(directory, cluster, command, **changes)
    try:
        yield job
    finally:
        job.close()
