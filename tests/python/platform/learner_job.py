"""A job's volume with learners on this machine and without a server: what `tesser learner` needs and leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.python.commands import command

SECONDS = 60


@dataclass
class Line:
    sequence: int
    attempt: int
    flags: str
    text: str


class LearnerJob:
    def __init__(self, root: Path, words: list[str], *, learners: int = 1, **members: object):
        self.root = root
        self.learners = learners
        self.attempt = 1
        self.processes: list[subprocess.Popen] = []
        (root / "code").mkdir(parents=True)
        manifest = {
            "name": "job", "description": "", "team": "", "command": words, "program": None, "learners": learners,
            "each": {"millicpus": 1000, "memory_bytes": 0, "accelerators": {}}, "priority": 50, "environment": {},
            "data_stores": [], "results": "", "restarts": 3, "time_limit_seconds": 0, "start_limit_seconds": 600,
            "grace_seconds": 1, "keep_checkpoints": 3, "checkpoint_every": 0, "log_bytes": 1 << 30, "metrics": [],
        }  # fmt: skip
        (root / "job.json").write_text(json.dumps(manifest | members))

    def directory(self) -> Path:
        return self.root / "attempts" / str(self.attempt)

    def start(self, rank: int = 0, **variables: str) -> subprocess.Popen:
        self.directory().mkdir(parents=True, exist_ok=True)
        words = command("learner", "--volume", self.root, "--attempt", self.attempt)
        environment = os.environ | {"TESSER_RANK": str(rank), "TESSER_PYTHON": sys.executable} | variables
        # No pipes: whoever outlives its parent would hold them open.
        with (self.root / f"learner-{rank}.log").open("ab") as log:
            process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def said(self, rank: int = 0) -> str:
        return (self.root / f"learner-{rank}.log").read_text()

    def up(self, rank: int = 0) -> dict:
        path = self.directory() / f"learner-{rank}.json"
        wait_for(path.exists, f"learner {rank} is not up: {self.said(rank)}")
        return json.loads(path.read_text())

    def go(self) -> None:
        ups = [self.up(rank) for rank in range(self.learners)]
        go = {"learners": self.learners, "master_address": "127.0.0.1", "master_port": ups[0]["port"]}
        partial = self.directory() / "go.partial"
        partial.write_text(json.dumps(go))
        partial.rename(self.directory() / "go.json")

    def stop(self, text: str = "") -> None:
        (self.directory() / "stop.new").write_text(text)
        (self.directory() / "stop.new").rename(self.directory() / "stop")

    def ended(self, rank: int = 0) -> dict:
        path = self.directory() / f"exit-{rank}.json"
        wait_for(path.exists, f"learner {rank} does not end: {self.said(rank)}")
        return json.loads(path.read_text())

    def run(self) -> dict:
        """One attempt to its end; how rank 0 ended."""
        for rank in range(self.learners):
            self.start(rank)
        self.go()
        ends = [self.ended(rank) for rank in range(self.learners)]
        return ends[0]

    def lines(self, rank: int = 0) -> list[Line]:
        lines = []
        for segment in sorted((self.root / "logs" / str(rank)).glob("lines-*")):
            for record in segment.read_bytes().decode().split("\n")[:-1]:
                sequence, _, attempt, _, flags, text = record.split("\t", 5)
                lines.append(Line(int(sequence), int(attempt), flags, text))
        return lines

    def texts(self, rank: int = 0) -> list[str]:
        return [line.text for line in self.lines(rank)]

    def tagged(self) -> set[int]:
        """Processes of the job's commands that live; the learner's own are not among them."""
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                tagged = f"TESSER_LEARNER={self.root.name}/".encode() in (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if tagged and state not in ("Z", "X"):
                found.add(int(entry.name))
        return found

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        wait_for(lambda: not self.tagged(), "processes of the job are left")


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


def collector(pid: int) -> int | None:
    """The collector among a learner process's children: it runs the same program."""
    for child in children(pid):
        try:
            if b"learner\0--volume" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        except OSError:
            continue
    return None


def wait_for(condition, message: str, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)
