"""Runs of several workers, and what a test needs to know of them."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

import tesser
from tests.python.commands import tesser_output, train, write_classifier_data, write_text
from tests.python.models.equality import Run
from tests.python.train.train_steps import BATCH, classifier_step, language_step

# What the design allows for a run to end after a worker or the coordinator has died or stopped.
END_SECONDS = 5.0


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


def make_samples(directory: Path) -> None:
    """A classifier and a language model with their data; five batches and three samples left out."""
    classifier = classifier_step()
    # Not Adam: the gradient of a bias before a batch normalisation is zero but for rounding, of which Adam makes steps.
    classifier.optimizer = torch.optim.SGD(classifier.model.parameters(), lr=0.05, momentum=0.9)
    tesser.capture(classifier, directory / "classifier.tesser")
    tesser.capture(language_step(), directory / "language.tesser")
    write_classifier_data(directory / "train", 5 * BATCH + 3, 0)
    write_classifier_data(directory / "check", 2 * BATCH + 1, 1)
    write_text(directory / "text")
