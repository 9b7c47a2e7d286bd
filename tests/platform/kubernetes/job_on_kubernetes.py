"""One job of a real `tesser server` on the cluster of ./x test --kubernetes, for tests that kill what takes part."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.platform.kubernetes.platform_on_kubernetes import (
    ADDRESS,
    CLUSTER,
    cluster_script,
    engine_options,
    kubectl,
    more_than_half_a_node,
)
from tests.python.platform.guarded_job import tagged
from tests.python.platform.served_job import ServedJob, newest_learner

NODES = (1, 2)
SECONDS = 120  # a kubelet that was away finds its API server again within half a minute


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < until, f"no {what} within {SECONDS} s"
        time.sleep(0.2)


class Cluster:
    """What was taken from it is given back by mend()."""

    def __init__(self) -> None:
        self._broken: set[int] = set()  # nodes without their kubelet
        self._is_api_away = False

    def take_api(self) -> None:
        if not self._is_api_away:
            cluster_script("kill-api")
            self._is_api_away = True

    def start_api(self) -> None:
        if self._is_api_away:
            cluster_script("start-api")
            self._is_api_away = False

    def take_node(self, how: str, number: int) -> None:
        """kill-kubelet: what runs there goes on; kill-node: it does not."""
        if number not in self._broken:
            cluster_script(how, str(number))
            self._broken.add(number)

    def start_nodes(self) -> None:
        while self._broken:
            cluster_script("start-node", str(self._broken.pop()))

    def delete_pod(self, selector: str) -> None:
        """As whoever has the right to may do; not while the API server is away."""
        words = ("delete", "pods", "-A", "--selector", selector, "--wait=false", "--grace-period=0", "--force")
        command = ["kubectl", "--kubeconfig", f"{CLUSTER}/kubeconfig", "--request-timeout=2s", *words]
        subprocess.run(command, check=False, capture_output=True)

    def mend(self) -> None:
        """Whole again."""
        self.start_api()
        self.start_nodes()
        wait_until(lambda: are_ready(kubectl("get", "nodes")["items"]), "nodes that are ready")


def are_ready(nodes: list[dict]) -> bool:
    conditions = [each for node in nodes for each in node["status"]["conditions"] if each["type"] == "Ready"]
    return len(conditions) == len(NODES) and all(each["status"] == "True" for each in conditions)


class KubernetesJob(ServedJob):
    """Of two learners, each of which takes more than half a node."""

    address = ADDRESS

    def __init__(self, directory: Path, cluster: Cluster, command: list[str], **changes: object) -> None:
        self.cluster = cluster
        size = {"cpus": more_than_half_a_node(), "memory": "64MiB", "team": "faults"}
        super().__init__(directory, command, ["node1", "node2"], **size, **changes)

    def engine_options(self) -> tuple[str, ...]:
        return engine_options()

    def learner(self, rank: int) -> int | None:
        return newest_learner(self.volume, rank)

    def pods(self, role: str) -> str:
        """Selects the job's."""
        return f"tesser/job={self.name},tesser/role={role}"

    def check_nothing_is_left(self) -> None:
        assert kubectl("get", "pods", "-A", "--selector", self.pods("learner"))["items"] == []

    def check_end(self) -> None:
        """A node that was cut off ends what it still runs of a job when it is back."""
        self.cluster.mend()
        wait_until(lambda: tagged(self.name) == {}, "end of the job's processes")
        super().check_end()

    def close(self) -> None:
        self.cluster.mend()
        super().close()
        self.cluster.delete_pod(f"tesser/job={self.name}")


@contextlib.contextmanager
def kubernetes_job(directory: Path, cluster: Cluster, command: list[str], **changes: object) -> Iterator[KubernetesJob]:
    job = KubernetesJob(directory, cluster, command, **changes)
    try:
        yield job
    finally:
        job.close()
