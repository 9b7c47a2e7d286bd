"""The tesser command as a user runs it, what it says of a run, and small data to train on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 180


@dataclass
class Outcome:
    """How a command ended; `events` are those of --json."""

    code: int
    output: str
    errors: str
    events: list[dict] = field(default_factory=list)

    def of(self, kind: str) -> list[dict]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def losses(self) -> list[float]:
        return [event["loss"] for event in self.of("step")]


def binary() -> Path:
    """The tesser command: TESSER_BINARY, or the release build's."""
    return Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))


def command(*words: object) -> list[str]:
    return [str(binary()), *(str(word) for word in words)]


def run_environment(**more: str) -> dict[str, str]:
    return os.environ | {"TESSER_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"} | more


def start(*words: object, variables: Mapping[str, str] | None = None, **options: object) -> subprocess.Popen:
    """Options are those of Popen."""
    return subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=run_environment(**(variables or {})), **options,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> Outcome:
    """Reads to the end; what is left of a line that a killed process was writing is no event."""
    # Not communicate(), which passes over what readline() has read ahead.
    watchdog = threading.Timer(SECONDS, process.kill)
    watchdog.start()
    with ThreadPoolExecutor(1) as other:
        reading = other.submit(process.stderr.read)
        output = process.stdout.read()
        errors = reading.result()
    process.wait()
    watchdog.cancel()
    lines = output.splitlines(keepends=True) if "--json" in process.args else []
    events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
    return Outcome(process.returncode, output, errors, events)


def run_tesser(*words: object, **options: object) -> Outcome:
    return finish(start(*words, **options))


def start_training(program: Path, data: Path, *words: object, **options: object) -> subprocess.Popen:
    return start("train", program, "--data", data, "--threads", 1, "--json", *words, **options)


def train(program: Path, data: Path, *words: object, **options: object) -> Outcome:
    return finish(start_training(program, data, *words, **options))


def tesser_output(*words: object) -> str:
    done = run_tesser(*words)
    assert done.code == 0, done.errors
    return done.output


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a checkpoint by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def write_classifier_data(directory: Path, samples: int, seed: int) -> None:
    """For classifier_step() of tests/python/train/train_steps.py."""
    random = np.random.default_rng(seed)
    images = random.standard_normal((samples, 6)).astype(np.float32)
    directory.mkdir(parents=True)
    np.save(directory / "images.npy", images)
    np.save(directory / "labels.npy", images[:, :3].argmax(axis=1).astype(np.int64))


def write_text(directory: Path) -> None:
    """Tokens of a text that repeats itself, with its vocabulary, for language_step()."""
    characters = "\n abcdeé"
    directory.mkdir(parents=True)
    tokens = np.array([characters.index(character) for character in "abcdeé cab\n" * 60], dtype=np.uint16)
    tokens.tofile(directory / "tokens.bin")
    (directory / "tokens.json").write_text('{"dtype": "uint16", "stride": 3}')
    (directory / "vocabulary.json").write_text(json.dumps({"characters": characters}), encoding="utf-8")
