"""./x test --kubernetes: the engine `kubernetes` and whole jobs on a real cluster of two nodes on this machine, and
whole trainings and the scheduler's promises under every engine. ./x test --kubernetes --faults: random faults of jobs
on that cluster.

tests/clusters/kubernetes-cluster.sh builds Kubernetes once under build/kubernetes, which takes 5 to 15 minutes, and
starts it; everything it started ends with this process, whatever that dies of.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools import build, testing
from tools.console import ROOT, Failure, heading, run, succeeds
from tools.totals import Totals

CLUSTER = ROOT / "tests" / "clusters" / "kubernetes-cluster.sh"
DIRECTORY = ROOT / "build" / "kubernetes"
JOBS = ROOT / "tests" / "platform" / "kubernetes"
IMAGE = "docker.io/local/tesser:1"
CONFORMANCE_SECONDS = 1200
JOBS_SECONDS = 1800
FAULT_SECONDS = 7200
FAULT_SEEDS = 20
WHAT_TO_DO = f"read the message above; logs are in {DIRECTORY.relative_to(ROOT)}/log"


def kubernetes_tests() -> Totals:
    build_programs(["kubernetes_conformance"])
    result = Totals("kubernetes")
    with cluster() as variables:
        reports = build.directory("release") / "reports"
        reports.mkdir(exist_ok=True)
        program = {"name": "kubernetes", "command": [build.directory("release") / "bin" / "kubernetes_conformance"]}
        result.add(testing.run_google_test(program, reports, "*", "release", variables, CONFORMANCE_SECONDS))
        result.add(testing.run_pytest("kubernetes-jobs", [JOBS], variables, JOBS_SECONDS))
        trainings = ROOT / "tests" / "python" / "platform" / "test_training.py"
        scheduling = ROOT / "tests" / "python" / "platform" / "test_scheduling.py"
        variables |= {"TESSER_ALL_ENGINES": "1"}
        result.add(testing.run_pytest("kubernetes-scheduling", [scheduling], variables, JOBS_SECONDS))
        result.add(testing.run_pytest("kubernetes-trainings", [trainings], variables, JOBS_SECONDS))
    return result


def kubernetes_faults() -> Totals:
    build_programs([])
    with cluster() as variables:
        variables |= {"TESSER_FAULT_SEEDS": str(FAULT_SEEDS)}
        tests = [JOBS / "test_faults.py", *testing.EACH_SEED]
        return testing.run_pytest("kubernetes-faults", tests, variables, FAULT_SECONDS)


def build_programs(more: list[str]) -> None:
    testing.install_slurm()  # for the trainings
    build.build("release", ["tesser", "tesser-runtime", *more])


@contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """A running cluster, as variables that tests find it by."""
    if os.geteuid() != 0:
        raise Failure(
            "a cluster needs root.\nWhat to do: run ./x test --kubernetes as root, on a machine that may be changed"
        )
    heading(f"building Kubernetes in {DIRECTORY.relative_to(ROOT)}, which takes minutes once")
    sys.stdout.flush()
    run(["bash", CLUSTER, "build", DIRECTORY], WHAT_TO_DO)
    succeeds(["bash", CLUSTER, "down", DIRECTORY])  # of a run that was interrupted
    run(["bash", CLUSTER, "up", DIRECTORY, "--owner", str(os.getpid())], WHAT_TO_DO)
    try:
        run(["bash", CLUSTER, "image", DIRECTORY, IMAGE, image_root(DIRECTORY / "image")], WHAT_TO_DO)
        yield {"TESSER_KUBERNETES_CLUSTER": str(DIRECTORY), "TESSER_KUBERNETES_IMAGE": IMAGE}
    finally:
        succeeds(["bash", CLUSTER, "down", DIRECTORY])


def image_root(root: Path) -> Path:
    """A root directory with nothing in it but places where the node's own directories are mounted: its programs and
    libraries are /usr, so that an image need not repeat what is on every node.
    """
    shutil.rmtree(root, ignore_errors=True)
    for name in ("usr", "etc", "tmp", "proc", "sys", "dev", "opt", "root", "var/run"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    return root
