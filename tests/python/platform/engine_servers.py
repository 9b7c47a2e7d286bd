"""A server with each engine, on two nodes that take one learner of `cpus` each, for tests that hold on all of them.

The cluster of Slurm is started on the spot; that of Kubernetes is there in `./x test --kubernetes` only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.python.commands import ROOT
from tests.python.platform.server_process import Server
from tests.python.platform.slurm_cluster import slurm_cluster

HAS_KUBERNETES = "TESSER_KUBERNETES_CLUSTER" in os.environ
ENGINES = ("local", "slurm", "kubernetes") if HAS_KUBERNETES else ("local", "slurm")


@dataclass
class EngineServer:
    """`seconds`: how long a job of these tests may take, on a machine that does other things too."""

    engine: str
    server: Server
    cpus: str = "1"
    seconds: float = 180

    def environment(self) -> dict[str, str]:
        """What a job of tesser's needs where nothing is installed."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"TESSER_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "python"), "PATH": path}

    def manifest(self, text: str, **more: object) -> str:
        """A manifest of the examples, of a size that this engine's nodes take one learner of."""
        sized = "".join(f"cpus: {self.cpus}\n" if line.startswith("cpus:") else line for line in text.splitlines(True))
        assert f"cpus: {self.cpus}\n" in sized
        more = {"environment": self.environment()} | more
        return sized + "".join(f"{key}: {json.dumps(value)}\n" for key, value in more.items())

    def nodes_of(self, job: str) -> list[str]:
        """Where its first attempt was deployed, by rank."""
        return json.loads((self.server.data / "jobs" / job / "attempts" / "1" / "deployment.json").read_text())["nodes"]


@contextmanager
def engine_server(engine: str, directory: Path) -> Iterator[EngineServer]:
    """`directory`: a new one, for the server's data."""
    data = directory / "data"
    match engine:
        case "local":
            server = Server(data, "--node", "node1=1,4GiB", "--node", "node2=1,4GiB").start()
            yield EngineServer(engine, server)
            server.close()
        case "slurm":
            with slurm_cluster() as cluster:
                server = Server(data, *cluster.options).start()
                yield EngineServer(engine, server)
                server.close()
                assert cluster.live_jobs() == ""
        case "kubernetes":
            from tests.platform.kubernetes import platform_on_kubernetes as kubernetes

            server = Server(data, *kubernetes.engine_options(), address=kubernetes.ADDRESS).start()
            yield EngineServer(engine, server, kubernetes.more_than_half_a_node(), 360)
            server.close()
