"""Random faults at random moments of a job's life on Kubernetes, as tests/python/platform/test_faults.py has them on
the other engines: server, guardian, learners, collectors, their pods, kubelets, nodes and the API server.

TESSER_FAULT_SEEDS: how many schedules (`./x test --kubernetes --faults` runs twenty); TESSER_FAULT_FIRST_SEED.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.platform.kubernetes.job_on_kubernetes import NODES, Cluster, KubernetesJob, kubernetes_job
from tests.platform.kubernetes.platform_on_kubernetes import CLUSTER
from tests.python.platform.test_faults import FIRST_SEED, TRAIN, Faults, run_to_its_end, want_what_was_halted

pytestmark = pytest.mark.skipif(not CLUSTER, reason="needs the cluster that ./x test --kubernetes starts")

SEEDS = int(os.environ.get("TESSER_FAULT_SEEDS", "2"))
SECONDS = 300
# Pods take seconds to start; so do the steps, together, for faults to meet them.
SLOWER = TRAIN.replace("sleep 0.04", "sleep 0.25")
assert SLOWER != TRAIN


@dataclass
class KubernetesFaults(Faults):
    job: KubernetesJob
    span: float = 12.0

    def do_kill_api(self, since: float) -> None:
        self.job.cluster.take_api()
        self.later(since, self.random.uniform(0, 6.0), "later_start_api")

    def later_start_api(self, since: float) -> None:
        self.job.cluster.start_api()

    def do_kill_kubelet(self, since: float) -> None:
        self.take_node("kill-kubelet", since)

    def do_lose_node(self, since: float) -> None:
        self.take_node("kill-node", since)

    def take_node(self, how: str, since: float) -> None:
        """Long enough for the cluster to see it, or not: it takes its nodes for lost after 8 s."""
        self.job.cluster.take_node(how, self.random.choice(NODES))
        self.later(since, self.random.uniform(0, 15.0), "later_mend_nodes")

    def later_mend_nodes(self, since: float) -> None:
        self.job.cluster.start_nodes()

    def do_delete_guardian(self, since: float) -> None:
        self.job.cluster.delete_pod(self.job.pods("guardian"))

    def do_delete_learner(self, since: float) -> None:
        self.job.cluster.delete_pod(f"{self.job.pods('learner')},tesser/rank={self.random.randrange(2)}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.mend()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_job_on_kubernetes_comes_to_its_end(tmp_path: Path, cluster: Cluster, seed: int) -> None:
    with kubernetes_job(tmp_path, cluster, ["sh", "-c", SLOWER], restarts=50, grace=1) as job:
        run_to_its_end(job, seed, lambda: want_what_was_halted(job), KubernetesFaults, SECONDS)
