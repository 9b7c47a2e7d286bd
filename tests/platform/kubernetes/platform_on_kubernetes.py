"""tesser server with the engine `kubernetes`, for tests of whole jobs on the cluster of ./x test --kubernetes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.python.commands import ROOT, binary

CLUSTER = os.environ.get("TESSER_KUBERNETES_CLUSTER", "")
IMAGE = os.environ.get("TESSER_KUBERNETES_IMAGE", "")
ADDRESS = "10.88.0.1"  # this machine, as pods see it
SECONDS = 240  # a pod's start and PyTorch's import, on a machine that does other things too


def cluster_script(*words: str) -> None:
    script = ROOT / "tests" / "clusters" / "kubernetes-cluster.sh"
    subprocess.run(["bash", script, words[0], CLUSTER, *words[1:]], check=True)


def kubectl(*words: str) -> dict:
    command = ["kubectl", "--kubeconfig", f"{CLUSTER}/kubeconfig", *words, "-o", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def engine_options() -> tuple[str, ...]:
    """Of a server that has this cluster."""
    # What pods see of the nodes: programs and libraries, Python's environment, tesser and its Python package.
    seen = {Path("/usr"), Path(sys.prefix), Path(sys.base_prefix), binary().parent, ROOT / "python"}
    directories = [word for path in sorted(seen) for word in ("--host-directory", str(path))]
    way = ("--engine", "kubernetes", "--kubeconfig", f"{CLUSTER}/kubeconfig", "--image", IMAGE, "--patience", "15")
    return (*way, *directories)


@dataclass
class Platform:
    """A server and its data; people's commands against it."""

    directory: Path
    port: int
    options: tuple[str, ...] = ("--learner-users", "same")
    server: subprocess.Popen | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.directory / "server.log"

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}"

    def start(self) -> None:
        command = [binary(), "server", "--data", self.directory / "data", "--listen", f"{ADDRESS}:{self.port}"]
        command += [*self.options, *engine_options()]
        with self.log.open("ab") as log:
            self.server = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        self.wait_until(self.answers, "the server's answer")

    def answers(self) -> bool:
        assert self.server is not None
        assert self.server.poll() is None, self.log.read_text(errors="replace")
        return self.command("list", "--json", check=False).returncode == 0

    def kill(self) -> None:
        assert self.server is not None
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()

    @property
    def token(self) -> str:
        file = self.directory / "data" / "admin.token"
        return file.read_text().strip() if file.exists() else ""

    def history(self, identifier: str) -> list[dict]:
        request = urllib.request.Request(
            f"{self.url}/v1/jobs/{identifier}/history", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)["changes"]

    def command(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess:
        environment = os.environ | {"TESSER_SERVER": self.url, "TESSER_TOKEN": self.token}
        result = subprocess.run(
            [str(word) for word in (binary(), *words)], env=environment, capture_output=True, text=True, timeout=SECONDS
        )
        assert not check or result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
        return result

    def json(self, *words: str | Path) -> dict:
        return json.loads(self.command(*words, "--json").stdout)

    def submit(self, manifest: dict, code: Path) -> str:
        path = self.directory / "manifest.yaml"
        path.write_text(json.dumps(manifest))
        return self.json("submit", path, code)["id"]

    def job(self, identifier: str) -> dict:
        return self.json("status", identifier)

    def wait_for(self, identifier: str, *states: str) -> dict:
        job: dict = {}

        def there() -> bool:
            nonlocal job
            job = self.job(identifier)
            assert job["state"] in states or job["state"] != "FAILED", f"{job}\n{self.log.read_text(errors='replace')}"
            return job["state"] in states

        self.wait_until(there, f"{states}", lambda: f"{job}\n{self.guardian_log(identifier)}")
        return job

    def volume(self, identifier: str) -> Path:
        return self.directory / "data" / "jobs" / identifier

    def guardian_log(self, identifier: str) -> str:
        path = self.volume(identifier) / "guardian" / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    @staticmethod
    def wait_until(holds: Callable[[], bool], what: str, more: Callable[[], str] = str) -> None:
        until = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < until, f"no {what} after {SECONDS} s: {more()}"
            time.sleep(0.5)


@contextmanager
def platform(*options: str) -> Iterator[Platform]:
    with socket.socket() as listener:
        listener.bind((ADDRESS, 0))
        port = listener.getsockname()[1]
    directory = Path(tempfile.mkdtemp(prefix="tesser-platform-"))
    made = Platform(directory, port, options or Platform.options)
    if options:
        directory.chmod(0o755)  # other users than root pass through it
    try:
        made.start()
        yield made
    finally:
        if made.server is not None:
            made.kill()
        # Of a test that failed, whose jobs would go on and hold their nodes.
        for kind in ("jobs", "pods"):
            words = ("delete", kind, "-A", "--selector", "app=tesser", "--wait=false", "--grace-period=0", "--force")
            command = ("kubectl", "--kubeconfig", f"{CLUSTER}/kubeconfig", *words)
            subprocess.run(command, check=False, capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)


def more_than_half_a_node() -> str:
    """Processors of a learner of which no two fit on one node."""
    nodes = kubectl("get", "nodes")["items"]
    return f"{int(nodes[0]['status']['allocatable']['cpu']) * 600}m"
