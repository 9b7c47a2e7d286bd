"""Whole jobs on Kubernetes, from `tesser submit` to COMPLETED: the guardian a Job, the learners pods on both nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platform.kubernetes.platform_on_kubernetes import (
    CLUSTER,
    Platform,
    cluster_script,
    kubectl,
    more_than_half_a_node,
    platform,
)

pytestmark = pytest.mark.skipif(not CLUSTER, reason="needs the cluster that ./x test --kubernetes starts")

DDP = """\
import json, os, socket, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(rank))
wanted = inputs.sum(1, keepdim=True)
saved = Path(os.environ["CHECKPOINT_DIR"]) / "state.pt"
first = 0
if saved.exists():
    first, state = torch.load(saved)
    model.module.load_state_dict(state)
for step in range(first, int(sys.argv[1])):
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        torch.save((step + 1, model.module.state_dict()), saved.with_suffix(".new"))
        saved.with_suffix(".new").rename(saved)
    print(json.dumps({"step": step + 1, "loss": loss.item(), "host": socket.gethostname()}), flush=True)
    time.sleep(float(sys.argv[2]))
if rank == 0:
    weights = {name: value.flatten().tolist() for name, value in model.module.state_dict().items()}
    (Path(os.environ["RESULT_DIR"]) / "weights.json").write_text(json.dumps(weights))
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Platform]:
    with platform() as made:
        yield made


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("code")
    (directory / "train.py").write_text(DDP)
    return directory


def ddp(name: str, steps: int, pause: float, team: str = "ddp") -> dict:
    return {
        "name": name,
        "team": team,
        "command": [sys.executable, "train.py", str(steps), str(pause)],
        "learners": 2,
        "cpus": more_than_half_a_node(),
        "memory": "2GiB",
        "environment": {"OMP_NUM_THREADS": "1"},
        "metrics": [{"type": "json"}],
    }


def lines(platform: Platform, job: str) -> list[dict]:
    found = []
    for rank in (0, 1):
        for line in platform.command("logs", job, "--learner", str(rank)).stdout.splitlines():
            if "{" in line:
                found.append(json.loads(line[line.index("{") :]) | {"rank": rank})
    return found


def weights(platform: Platform, job: str) -> dict:
    return json.loads((platform.volume(job) / "results" / "weights.json").read_text())


def check_nothing_left(platform: Platform, job: str) -> None:
    def none_left() -> bool:
        pods = kubectl("get", "pods", "-A", "-l", f"tesser/job={job}")["items"]
        return all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods)

    platform.wait_until(none_left, "end of the job's pods")
    learners = kubectl("get", "pods", "-A", "-l", f"tesser/job={job},tesser/role=learner")["items"]
    assert learners == []


def test_a_distributed_script_runs_on_both_nodes(running: Platform, code: Path) -> None:
    job = running.submit(ddp("plain", 5, 0.1), code)
    running.wait_for(job, "PROCESSING", "STORING", "COMPLETED")
    pods = kubectl("get", "pods", "-n", "tesser-ddp", "-l", f"tesser/job={job}")["items"]
    assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods} == {"Job"}
    nodes = {learner["node"] for learner in running.job(job)["learners"]}
    assert nodes == {"node1", "node2"}
    running.wait_for(job, "COMPLETED")
    seen = lines(running, job)
    assert sorted((line["rank"], line["step"]) for line in seen) == [(r, s) for r in (0, 1) for s in range(1, 6)]
    assert len({line["host"] for line in seen}) == 2
    assert set(weights(running, job)) == {"weight", "bias"}
    check_nothing_left(running, job)


def test_server_guardian_kubelet_and_api_server_die_and_the_job_ends_as_if_not(running: Platform, code: Path) -> None:
    undisturbed = running.submit(ddp("calm", 60, 0.0), code)
    disturbed = running.submit(ddp("rough", 60, 0.5), code)
    running.wait_for(undisturbed, "COMPLETED")
    running.wait_for(disturbed, "PROCESSING")

    def stepped(steps: int) -> None:
        running.wait_until(lambda: any(line["step"] >= steps for line in lines(running, disturbed)), f"step {steps}")

    stepped(3)
    running.kill()
    running.start()
    stepped(6)
    pod = kubectl("get", "pods", "-n", "tesser-ddp", "-l", f"tesser/job={disturbed},tesser/role=guardian")["items"][0]
    cluster_script("kill-api")
    cluster_script("start-api")
    stepped(10)
    node = pod["spec"]["nodeName"].removeprefix("node")
    cluster_script("kill-node", node)  # with the guardian and a learner on it
    cluster_script("start-node", node)
    running.wait_for(disturbed, "COMPLETED")
    states = [change["state"] for change in running.history(disturbed)]
    assert states[-1] == "COMPLETED"
    assert states.count("COMPLETED") == 1
    assert states.count("PROCESSING") > 1  # the node took a learner with it
    assert weights(running, disturbed) == weights(running, undisturbed)
    check_nothing_left(running, disturbed)
