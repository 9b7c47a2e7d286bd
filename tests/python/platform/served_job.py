"""One job of a real `tesser server` on the engine `local`, for tests that kill what takes part in it.

As GuardedJob, but server, guardian and learners are all the real ones, and it is the server that starts guardians.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.python.commands import binary
from tests.python.platform.guarded_job import SECONDS, GuardedJob, free_port, tagged


class Guardian:
    """The guardian of a job, whichever process it is at the moment."""

    def __init__(self, volume: Path) -> None:
        self.volume = str(volume).encode()

    @property
    def pid(self) -> int | None:
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with contextlib.suppress(OSError):
                    words = process.joinpath("cmdline").read_bytes().split(b"\0")
                    if words[1:2] == [b"guardian"] and self.volume in words:
                        return int(process.name)
        return None

    def kill(self) -> None:
        if (process := self.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self.pid is not None:
            assert time.monotonic() < until, "the guardian lives on"
            time.sleep(0.005)


def is_child_of_learner(process: Path) -> bool:
    parent = process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
    return Path("/proc", parent, "cmdline").read_bytes().split(b"\0")[1:2] == [b"learner"]


def newest_learner(volume: Path, rank: int) -> int | None:
    """The learner process of a rank, of the newest attempt that has one, as this machine numbers it: it may live in a
    process namespace of its node.
    """
    newest: tuple[int, int] | None = None
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = os.fsdecode(process.joinpath("cmdline").read_bytes()).split("\0")
            # The collector is a child of the same name.
            if words[1:2] != ["learner"] or str(volume) not in words or is_child_of_learner(process):
                continue
            if f"TESSER_RANK={rank}".encode() in process.joinpath("environ").read_bytes().split(b"\0"):
                attempt = int(words[words.index("--attempt") + 1])
                newest = max(newest or (0, 0), (attempt, int(process.name)))
    return newest[1] if newest else None


class ServedJob(GuardedJob):
    address = "127.0.0.1"  # of the server

    def __init__(self, directory: Path, command: list[str], nodes: list[str], **changes: object) -> None:
        self.directory = directory
        self.command = command
        self.changes = changes
        self.data = directory / "data"
        self.nodes = nodes
        self.port = free_port()
        self.state_directory = self.data / "engine"
        self.server: subprocess.Popen | None = None
        self.start_server()
        job = {"name": "faults", "command": command, "learners": len(nodes), "cpus": 0.5} | changes
        self.name = self.submit(job)
        self.volume = self.data / "jobs" / self.name
        self.guardian = Guardian(self.volume)
        self.last = {"state": "QUEUED"}

    def engine_options(self) -> tuple[str, ...]:
        return tuple(word for node in ("node1", "node2", "node3") for word in ("--node", f"{node}=8,4GiB"))

    def start_server(self) -> None:
        words = [str(binary()), "server", "--data", str(self.data), "--listen", f"{self.address}:{self.port}"]
        words += ("--learner-users", "same") if os.geteuid() == 0 else ()  # in a directory that others may not enter
        words += self.engine_options()
        with open(self.directory / "server.log", "ab") as log:
            self.server = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> dict:
        """Asked again until the server answers: it may be away."""
        until = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                token = (self.data / "admin.token").read_text().strip()
                connection = http.client.HTTPConnection(self.address, self.port, timeout=5)
                connection.request(method, path, body, {"Authorization": f"Bearer {token}"} | headers)
                answer = connection.getresponse()
                text = answer.read()
                # 409: the job is not in a state for that any more. 503: the server is starting.
                assert answer.status < 300 or answer.status in (409, 503), (answer.status, text)
                if answer.status != 503:
                    return json.loads(text)
            assert time.monotonic() < until, f"the server does not answer {method} {path}"
            time.sleep(0.01)

    def submit(self, job: dict) -> str:
        boundary = uuid.uuid4().hex
        body = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="manifest"; filename="job.yaml"\r\n\r\n'
            f"{json.dumps(job)}\r\n--{boundary}--\r\n"
        )
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Idempotency-Key": boundary}
        return self.request("POST", "/v1/jobs", body.encode(), **kind)["id"]

    def want(self, wanted: str) -> None:
        body = json.dumps({"wanted": wanted}).encode()
        self.request("PATCH", f"/v1/jobs/{self.name}", body, **{"Content-Type": "application/json"})

    def tell(self, **message: object) -> dict:
        if "wanted" in message:
            self.want(str(message["wanted"]))
        return {}

    def supervise(self) -> None:
        pass

    @property
    def record(self) -> dict:
        return {"history": self.request("GET", f"/v1/jobs/{self.name}/history")["changes"]}

    @property
    def state(self) -> str:
        if self.server.poll() is None:
            self.last = self.request("GET", f"/v1/jobs/{self.name}")
        return self.last["state"]

    def close(self) -> None:
        self.server.kill()
        self.server.wait()
        self.guardian.kill()
        for process in tagged(self.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def served_job(directory: Path, command: list[str], nodes: list[str], **changes: object) -> Iterator[ServedJob]:
    job = ServedJob(directory, command, nodes, **changes)
    try:
        yield job
    finally:
        job.close()
