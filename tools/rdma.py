"""./x test --rdma: the transport's suites, replicas at a hub, and a training of two workers over real verbs, inside a
guest whose kernel has a software RDMA adapter.

tests/clusters/rxe-vm.sh boots the guest in an emulated processor, so all of it is slow; the tests choose small sizes
there (TESSER_SMALL_TESTS).
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import build, environment, totals
from tools.console import ROOT, Failure, environment_with, heading, succeeds
from tools.totals import Totals

PACKAGES = ROOT / "tools" / "debian-packages-rdma.txt"
GUEST = ROOT / "tests" / "clusters" / "rxe-vm.sh"
SUITE_SECONDS = 900
TRAINING_SECONDS = 600  # most of which goes to loading PyTorch's libraries
GUEST_SECONDS = 3 * SUITE_SECONDS + TRAINING_SECONDS + 120
TRAINING = "training over verbs"


@dataclass(frozen=True)
class Suite:
    """A test program, and what of it runs in the guest."""

    title: str
    program: str
    pattern: str
    variables: str = ""


SUITES = {
    # Names of the transport's test cases end in their back end.
    "rc": Suite("transport over rc", "transport_test", "*/Rc:RegistrationFaults.*"),
    "ud": Suite("transport over ud", "transport_test", "*/Ud"),
    "hub": Suite(
        "hub over rc", "hub_test", "HubTest.*Network*:HubTest.SeveralHubsEach*", "UCX_TLS=rc TESSER_HUB_TEST_PATH=UCX"
    ),
}
# What the guest or rxe-vm.sh ends with when the suites did not even start.
NO_START = {
    97: "the guest's kernel makes no software adapter",
    98: "the guest's adapter gets no address",
    124: f"the guest was not up after {GUEST_SECONDS} s",
    125: "the guest did not start, or crashed",
}


def rdma_tests() -> Totals:
    """Skips its suites by name where the guest cannot start; a suite that began and did not end is a failure."""
    try:
        environment.install_listed(PACKAGES)
    except Failure as failure:
        return skipped(str(failure))
    if not shutil.which("qemu-system-x86_64"):
        return skipped("qemu-system-x86_64 is not installed")
    build.build("release", ["transport_test", "hub_test", "tesser"])
    work = ROOT / "build" / "rdma"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    outside("prepare", work)
    script = work / "suites.sh"
    script.write_text(guest_script(work))
    heading("booting a guest with a software RDMA adapter, in an emulated processor: this takes minutes")
    sys.stdout.flush()
    # The guest sees all of build/: the test program lies there, and the reports are left there.
    command = ["bash", str(GUEST), str(ROOT / "build"), str(script)]
    status = subprocess.run(command, cwd=ROOT, env=environment_with({"RXE_TIMEOUT": str(GUEST_SECONDS)})).returncode
    if not (work / "begun").is_file():
        return skipped(NO_START.get(status, f"{GUEST.relative_to(ROOT)} ended with {status}"))
    result = Totals("rdma")
    for name, suite in SUITES.items():
        ended = work / f"{name}.status"
        exit_code = int(ended.read_text()) if ended.is_file() else None
        result.add(totals.of_google_test(suite.title, work / f"{name}.json", exit_code))
    ended = work / "training.status"
    trained = ended.is_file() and int(ended.read_text()) == 0
    result.count(TRAINING, trained and outside("compare", work))
    return result


def outside(what: str, work: Path) -> bool:
    """The part of the training that needs no guest (tests/python/distributed/verbs.py)."""
    variables = {"TESSER_BINARY": str(build.tesser()), "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}
    return succeeds([environment.PYTHON, "-m", "tests.python.distributed.verbs", what, work], variables)


def guest_script(work: Path) -> str:
    lines = [f"cd {shlex.quote(str(work))} && touch begun", "export TESSER_SMALL_TESTS=1 GTEST_BRIEF=1"]
    for name, suite in SUITES.items():
        program = shlex.quote(str(build.directory("release") / "bin" / suite.program))
        variables = f"{suite.variables} GTEST_OUTPUT=json:{name}.json"
        lines += [
            f"echo '==> {suite.title}'",
            f"env {variables} timeout {SUITE_SECONDS} {program} --gtest_filter='{suite.pattern}'",
            f"echo $? > {name}.status",
        ]
    lines += [
        f"echo '==> {TRAINING}'",
        f"timeout {TRAINING_SECONDS} sh training.sh",
        "echo $? > training.status",
    ]
    return "\n".join([*lines, "exit 0", ""])


def skipped(reason: str) -> Totals:
    result = Totals("rdma")
    for suite in SUITES.values():
        print(f"skipped: {suite.title}: {reason}")
        result.skipped += 1
    print(f"skipped: {TRAINING}: {reason}")
    result.skipped += 1
    return result
