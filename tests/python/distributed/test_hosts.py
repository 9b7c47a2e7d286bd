"""Workers that the coordinator starts on other machines: network namespaces stand for those, entered by
`ip netns exec`; where there is a server for ssh, this machine is one too."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.python.commands import command, finish, run_environment, train
from tests.python.distributed.runs import END_SECONDS, is_running, wait_until
from tests.python.namespaces import two_namespaces

SLACK = 1.0


@pytest.fixture(scope="module")
def machines() -> Iterator[list[str]]:
    with two_namespaces("h") as names:
        yield names


def lead(machines: list[str], samples: Path, *words: object, launcher: object = "ip netns exec") -> subprocess.Popen:
    """The coordinator, in the first namespace."""
    whole = command(
        "train", samples / "classifier.tesser", "--data", samples / "train", "--threads", 1, "--json", "--seed", 3,
        "--preset", "tofu", "--network", "--launcher", launcher, "--listen", "10.98.0.1:0", *words,
    )  # fmt: skip
    return subprocess.Popen(
        ["ip", "netns", "exec", machines[0], *whole], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=run_environment(),
    )  # fmt: skip


def workers_of(machine: str) -> list[int]:
    """Processes of `tesser worker` in a namespace."""
    pids = subprocess.run(["ip", "netns", "pids", machine], capture_output=True, text=True, check=True).stdout.split()
    found = []
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"worker" in words[1:2]:
            found.append(int(pid))
    return found


def test_workers_on_two_machines(machines: list[str], samples: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"# two machines\n{machines[0]}\n\n{machines[1]} 2  # the larger one\n")
    run = finish(lead(machines, samples, "--steps", 6, "--hosts", hosts, "--evaluate", samples / "check"))
    assert run.code == 0, run.errors
    one = train(samples / "classifier.tesser", samples / "train", "--seed", 3, "--steps", 6)
    assert run.losses == pytest.approx(one.losses, rel=1e-5)
    assert [worker["host"] for worker in run.of("end")[0]["workers"]] == [machines[0], machines[1], machines[1]]
    assert run.of("start")[0]["paths"][0].startswith("TCP")
    assert run.of("evaluation")[-1]["step"] == 6
    assert not any(workers_of(machine) for machine in machines)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_fails_is_named_with_its_host(machines: list[str], samples: Path, how: signal.Signals) -> None:
    process = lead(machines, samples, "--steps", 10**7, "--hosts", ",".join(machines))
    while '"event":"step"' not in process.stdout.readline():
        assert process.poll() is None, process.stderr.read()
    (victim,) = workers_of(machines[1])
    (other,) = workers_of(machines[0])
    began = time.monotonic()
    os.kill(victim, how)
    run = finish(process)
    assert time.monotonic() - began < END_SECONDS + SLACK
    assert run.code == 1
    line = next(line for line in run.errors.splitlines() if "error:" in line)
    assert f"error: worker 1 (process {victim} on {machines[1]})" in line, run.errors
    assert ("was killed by signal 9" if how == signal.SIGKILL else "has not been heard of for") in line
    assert wait_until(lambda: not is_running(victim) and not is_running(other), END_SECONDS)


def test_workers_end_with_their_coordinator(machines: list[str], samples: Path) -> None:
    process = lead(machines, samples, "--steps", 10**7, "--hosts", ",".join(machines))
    while '"event":"step"' not in process.stdout.readline():
        assert process.poll() is None, process.stderr.read()
    workers = [pid for machine in machines for pid in workers_of(machine)]
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGSTOP)  # even one that could not end by itself
    process.kill()
    finish(process)
    assert wait_until(lambda: not any(is_running(pid) for pid in workers), END_SECONDS + SLACK)


def test_copies_that_differ_are_refused(machines: list[str], samples: Path, tmp_path: Path) -> None:
    """The second machine sees another file system where the first has its data and its checkpoints."""
    launcher = tmp_path / "launch"
    hidden = tmp_path / "other"
    shutil.copytree(samples / "check", hidden)
    for place, message in (
        (samples / "train", f"failed: {samples / 'train'}: is another one on"),
        (tmp_path / "checkpoints", f"failed: {tmp_path / 'checkpoints'}: "),
        (tmp_path / "run", "writes its part of the trace where the coordinator does not see it"),
    ):
        place.mkdir(exist_ok=True)
        launcher.write_text(
            f'#!/bin/sh\nhost=$1\nshift\n[ "$host" = {machines[0]} ] && exec ip netns exec "$host" "$@"\n'
            f'exec ip netns exec "$host" unshare -m sh -c "mount --bind {hidden} {place} && exec sh"\n'
        )
        launcher.chmod(0o755)
        run = finish(
            lead(machines, samples, "--steps", 4, "--hosts", ",".join(machines), "--checkpoint",
                 tmp_path / "checkpoints", "--trace", tmp_path / "trace", "--run-directory", tmp_path / "run",
                 launcher=launcher)
        )  # fmt: skip
        assert run.code == 2, run.errors
        assert f"on {machines[1]}) {message}" in run.errors
        assert list((tmp_path / "checkpoints").glob(".*")) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hosts", "no.such.host.invalid"], "host no.such.host.invalid: this machine does not find it by that name"),
        (["--hosts", "localhost", "--workers", "3"], "is cut for 3 workers, and --hosts has places for 1"),
        (["--hosts", "localhost,,localhost"], "'' is no name of a host"),
        (["--hosts", "-oProxyCommand=x"], "is no name of a host"),
        (
            ["--hosts", "localhost,localhost", "--launcher", "no-such-launcher"],
            "no-such-launcher is not on this machine",
        ),
        (["--hosts", "localhost", "--launcher", "env -u x", "--remote-tesser", "/none/tesser"], "127"),
        (["--hosts", "localhost", "--external"], "excludes"),
    ],
)
def test_what_cannot_be_started(samples: Path, words: list[str], message: str) -> None:
    run = train(samples / "classifier.tesser", samples / "train", "--steps", 2, *words)
    assert run.code in (1, 2)
    assert message in run.errors


def test_a_file_of_hosts_is_read_with_its_lines(samples: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    for text, message in (("a\nb two\n", "hosts:2: expected 'HOST [PLACES]'"), ("# none\n", "names no host")):
        hosts.write_text(text)
        run = train(samples / "classifier.tesser", samples / "train", "--hosts", hosts)
        assert run.code == 2
        assert message in run.errors


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[str]:
    """A launcher that reaches this machine by a server of its own."""
    server = os.environ.get("TESSER_SSHD") or shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not server or not shutil.which("ssh"):
        pytest.skip("sshd or ssh is not installed")
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True)
    shutil.copy(tmp_path / "user.pub", tmp_path / "authorized")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = tmp_path / "sshd_config"
    configuration.write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {tmp_path / 'host'}\nPidFile none\n"
        f"AuthorizedKeysFile {tmp_path / 'authorized'}\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([server, "-D", "-e", "-f", configuration], stderr=subprocess.PIPE, text=True)
    try:
        reached = wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 10)
        assert reached and process.poll() is None, process.stderr.read()
        yield (
            f"ssh -p {port} -i {tmp_path / 'user'} -o BatchMode=yes -o StrictHostKeyChecking=no "
            f"-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -l {getpass.getuser()}"
        )
    finally:
        process.terminate()
        process.communicate()


def test_over_ssh(ssh: str, samples: Path) -> None:
    words = ["--seed", 3, "--steps", 5, "--hosts", "localhost,localhost", "--preset", "tofu"]
    run = train(samples / "classifier.tesser", samples / "train", *words, "--launcher", ssh)
    assert run.code == 0, run.errors
    one = train(samples / "classifier.tesser", samples / "train", "--seed", 3, "--steps", 5)
    assert run.losses == pytest.approx(one.losses, rel=1e-5)
    refused = train(
        samples / "classifier.tesser", samples / "train", *words, "--launcher", ssh.replace("ssh -p ", "ssh -p 1 -p ")
    )
    assert refused.code == 1
    assert "(on localhost) ended with exit code 255" in refused.errors
    assert "Connection refused" in refused.errors
