"""The real command on several workers, and what a test needs to know of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import tesser
from tests.python.models.equality import Run, binary
from tests.python.train.train_steps import BATCH, classifier_step, language_step

SECONDS = 180
# What the design allows for a run to end after a worker or the coordinator has died or stopped.
END_SECONDS = 5.0


@dataclass
class Outcome:
    """How a command ended; `events` are those of --json."""

    code: int
    errors: str
    events: list[dict] = field(default_factory=list)

    def of(self, kind: str) -> list[dict]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def losses(self) -> list[float]:
        return [event["loss"] for event in self.of("step")]


def command(*words: object) -> list[str]:
    return [str(binary()), *(str(word) for word in words)]


def run_environment(**more: str) -> dict[str, str]:
    return os.environ | {"TESSER_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"} | more


def start(*words: object, **more: str) -> subprocess.Popen:
    return subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=run_environment(**more)
    )


def finish(process: subprocess.Popen) -> Outcome:
    """Reads to the end; what is left of a line that a killed process was writing is dropped."""
    watchdog = threading.Timer(SECONDS, process.kill)
    watchdog.start()
    with ThreadPoolExecutor(1) as other:
        reading = other.submit(process.stderr.read)
        output = process.stdout.read()
        errors = reading.result()
    process.wait()
    watchdog.cancel()
    lines = [line for line in output.splitlines(keepends=True) if line.endswith("\n")]
    return Outcome(process.returncode, errors, [json.loads(line) for line in lines if line.startswith("{")])


def train(program: Path, data: Path, *words: object, **more: str) -> Outcome:
    return finish(start("train", program, "--data", data, "--threads", 1, "--json", *words, **more))


def tesser_output(*words: object) -> str:
    done = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=SECONDS, env=run_environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained(program: Path, data: Path, checkpoint: Path, *words: object) -> Run:
    """Losses and, exported from the checkpoint at the end, the weights of a run."""
    outcome = train(program, data, "--checkpoint", checkpoint, "--every", 10**6, *words)
    assert outcome.code == 0, outcome.errors
    return Run(outcome.losses, weights(checkpoint))


def weights(checkpoint: Path) -> dict:
    file = checkpoint.parent / f"{checkpoint.name}.safetensors"
    tesser_output("export", checkpoint, "-o", file)
    return load_file(file)


def children(process: subprocess.Popen) -> dict[int, int]:
    """The worker processes that a coordinator has started: process ids by worker."""
    workers = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except (OSError, ValueError):
            continue
        if parent == process.pid and "worker" in words and "--worker" in words:
            workers[int(words[words.index("--worker") + 1])] = int(entry.name)
    return workers


def is_running(pid: int) -> bool:
    """Whether there is such a process, zombies left out."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_until(condition, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def run_directories() -> set[Path]:
    return set(Path(os.environ.get("TMPDIR", "/tmp")).glob("tesser-run-*"))


def write_data(directory: Path, samples: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    images = random.standard_normal((samples, 6)).astype(np.float32)
    directory.mkdir(parents=True)
    np.save(directory / "images.npy", images)
    np.save(directory / "labels.npy", images[:, :3].argmax(axis=1).astype(np.int64))


def write_text(directory: Path) -> None:
    characters = "\n abcdeé"
    directory.mkdir(parents=True)
    tokens = np.array([characters.index(character) for character in "abcdeé cab\n" * 60], dtype=np.uint16)
    tokens.tofile(directory / "tokens.bin")
    (directory / "tokens.json").write_text('{"dtype": "uint16", "stride": 3}')
    (directory / "vocabulary.json").write_text(json.dumps({"characters": characters}), encoding="utf-8")


def make_samples(directory: Path) -> None:
    """A classifier and a language model with their data; five batches and three samples left out."""
    classifier = classifier_step()
    # Not Adam: the gradient of a bias before a batch normalisation is zero but for rounding, of which Adam makes steps.
    classifier.optimizer = torch.optim.SGD(classifier.model.parameters(), lr=0.05, momentum=0.9)
    tesser.capture(classifier, directory / "classifier.tesser")
    tesser.capture(language_step(), directory / "language.tesser")
    write_data(directory / "train", 5 * BATCH + 3, 0)
    write_data(directory / "check", 2 * BATCH + 1, 1)
    write_text(directory / "text")
