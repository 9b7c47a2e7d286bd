"""One job on the engine `local`, with its guardian, for tests that kill and stop what takes part in it.

The guardian is the real one, started again whenever it ends before its time, as a server does; so are learners.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.python.commands import binary
from tests.python.platform.pretend_server import GUARDED

SECONDS = 60
TOKEN = "0123456789abcdef"
SERVER = Path(__file__).with_name("pretend_server.py")


def manifest(command: list[str], **changes: object) -> dict:
    """job.json, as the server writes it."""
    return {
        "name": "test",
        "description": "",
        "team": "testers",
        "command": command,
        "program": None,
        "learners": 1,
        "each": {"millicpus": 500, "memory_bytes": 128 << 20, "accelerators": {}},
        "priority": 50,
        "environment": {},
        "data_stores": [],
        "results": "",
        "restarts": 3,
        "time_limit_seconds": 0,
        "start_limit_seconds": 60,
        "grace_seconds": 2,
        "keep_checkpoints": 3,
        "checkpoint_every": 0,
        "log_bytes": 1 << 24,
        "metrics": [],
    } | changes


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def tagged(job: str) -> dict[int, str]:
    """Every living process whose environment says that it is of this job, with its tag JOB/ATTEMPT/RANK."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if process.joinpath("stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                continue
            for entry in process.joinpath("environ").read_bytes().split(b"\0"):
                if entry.startswith(b"TESSER_LEARNER=" + job.encode() + b"/"):
                    found[int(process.name)] = entry.partition(b"=")[2].decode()
    return found


@dataclass
class GuardedJob:
    directory: Path
    command: list[str]
    nodes: list[str] = field(default_factory=lambda: ["node1"])
    changes: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = self.directory.name.replace("_", "-")[-30:]
        self.volume = self.directory / "jobs" / self.name
        self.volume.mkdir(parents=True)
        (self.volume / "code").mkdir()
        self.state_directory = self.directory / "engine"
        job = manifest(self.command, learners=len(self.nodes), **self.changes)
        (self.volume / "job.json").write_text(json.dumps(job))
        (self.volume / "secrets.json").write_text("{}")
        (self.volume / "token").write_text(TOKEN)
        capacity = {"millicpus": 8000, "memory_bytes": 4 << 30, "accelerators": {}}
        settings = {
            "kind": "local",
            "patience_milliseconds": 5000,
            "nodes": [{"name": f"node{i}", "capacity": capacity} for i in (1, 2, 3)],
            "state_directory": str(self.state_directory),
            "slurm_configuration": "",
            "partition": "",
            "system_places": False,
            "volumes": "",
            "kubeconfig": "",
            "image": "",
            "namespace_prefix": "tesser-",
            "host_directories": [],
        }
        (self.directory / "engine.json").write_text(json.dumps(settings))
        record = {
            "job": self.name,
            "token": TOKEN,
            "epoch": 0,
            "sequence": 0,
            "holder": "",
            "wanted": "run",
            "placement": self.nodes,
            "history": [{"state": "QUEUED"}, {"state": "PENDING"}],
        }
        (self.directory / "server.json").write_text(json.dumps(record))
        self.port = free_port()
        self.guardian: subprocess.Popen | None = None
        self.server: subprocess.Popen | None = None
        self.guardians = 0

    # What takes part.

    def start_server(self) -> None:
        self.server = subprocess.Popen([sys.executable, str(SERVER), str(self.directory), str(self.port)])

    def start_guardian(self) -> None:
        self.guardians += 1
        words = [str(binary()), "guardian", "--volume", str(self.volume), "--server", f"http://127.0.0.1:{self.port}"]
        self.guardian = subprocess.Popen(
            [*words, "--engine-settings", str(self.directory / "engine.json")], start_new_session=True
        )

    def supervise(self) -> None:
        """What a server does when it looks: a guardian that ended too early is started again."""
        if self.guardian is not None and self.guardian.poll() is not None and self.state in GUARDED:
            self.start_guardian()

    def learner(self, rank: int) -> int | None:
        """The process of a learner of the newest attempt, if it lives."""
        notes = sorted(
            self.state_directory.glob(f"jobs/{self.name}/[0-9]*/learner-{rank}.json"), key=lambda p: int(p.parent.name)
        )
        with contextlib.suppress(OSError, ValueError, IndexError):
            process = json.loads(notes[-1].read_text())["process"]
            os.kill(process, 0)
            return process
        return None

    def kill_node(self, node: str) -> None:
        (self.state_directory / "nodes").mkdir(parents=True, exist_ok=True)
        (self.state_directory / "nodes" / node).write_text("lost its power\n")

    # What its owner and the scheduler say.

    def tell(self, **message: object) -> dict:
        until = time.monotonic() + SECONDS
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request(
                    "POST", "/v1/guardian/job/tell", json.dumps(message), {"Authorization": f"Bearer {TOKEN}"}
                )
                return json.loads(connection.getresponse().read())
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    # What there is to see.

    @property
    def record(self) -> dict:
        return json.loads((self.directory / "server.json").read_text())

    @property
    def state(self) -> str:
        return self.record["history"][-1]["state"]

    @property
    def states(self) -> list[str]:
        return [change["state"] for change in self.record["history"]]

    @property
    def reason(self) -> str:
        return self.record["history"][-1].get("reason", "")

    def wait_for(self, *states: str, seconds: float = SECONDS) -> None:
        self.wait_until(lambda: self.state in states, " or ".join(states), seconds)

    def wait_until(self, holds, what: str, seconds: float = SECONDS) -> None:
        until = time.monotonic() + seconds
        while not holds():
            self.supervise()
            if time.monotonic() > until:
                log = self.volume / "guardian" / "log"
                raise AssertionError(
                    f"no {what} within {seconds} s: {self.record['history']}\n{log.read_text() if log.exists() else ''}"
                )
            time.sleep(0.005)

    def log(self, rank: int = 0) -> list[str]:
        """The lines of the command in a learner's log (docs/formats/logs.md), in order; their numbers have no gap."""
        records = [
            line.split("\t", 5)
            for segment in sorted((self.volume / "logs" / str(rank)).glob("lines-*"))
            for line in segment.read_text().splitlines()
        ]
        assert [int(record[0]) for record in records] == list(range(1, len(records) + 1))
        return [record[5] for record in records if "n" not in record[4]]

    def check_end(self) -> None:
        """What holds whenever a job has no guardian: nothing is left, and nothing was against the rules."""
        violations = self.directory / "violations"
        assert not violations.exists(), violations.read_text()
        assert tagged(self.name) == {}
        for number, change in enumerate(self.record["history"][1:]):
            before = self.record["history"][number]["state"]
            assert change["state"] != before, self.states
        self.check_nothing_is_left()

    def check_nothing_is_left(self) -> None:
        """In the engine."""
        assert not list(self.state_directory.glob("jobs/*"))

    def close(self) -> None:
        for process in (self.guardian, self.server):
            if process is not None:
                process.kill()
                process.wait()
        for process in tagged(self.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def guarded_job(
    directory: Path, command: list[str], nodes: list[str] | None = None, **changes: object
) -> Iterator[GuardedJob]:
    job = GuardedJob(directory, command, nodes or ["node1"], changes)
    try:
        job.start_server()
        job.start_guardian()
        yield job
    finally:
        job.close()
