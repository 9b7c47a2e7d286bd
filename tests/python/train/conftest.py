"""A captured program, its data, and the real command to train it with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT / "python")]

from train_steps import BATCH, classifier_step, language_step  # noqa: E402

import tesser  # noqa: E402

BINARY = Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))
SECONDS = 120


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


def command(*words: object) -> list[str]:
    return [str(BINARY), *(str(word) for word in words)]


def tesser_environment() -> dict[str, str]:
    return os.environ | {"TESSER_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}


def run_tesser(*words: object, **options: object) -> Outcome:
    done = subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=tesser_environment(),
        check=False,
        **options,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()] if "--json" in words else []
    return Outcome(done.returncode, done.stdout, done.stderr, events)


def train(program: Path, data: Path, *words: object, **options: object) -> Outcome:
    return run_tesser("train", program, "--data", data, "--threads", 1, "--json", *words, **options)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a checkpoint by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def write_classifier_data(directory: Path, samples: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    images = random.standard_normal((samples, 6)).astype(np.float32)
    directory.mkdir(parents=True)
    np.save(directory / "images.npy", images)
    np.save(directory / "labels.npy", images[:, :3].argmax(axis=1).astype(np.int64))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("programs")
    tesser.capture(classifier_step(), directory / "classifier.tesser")
    tesser.capture(classifier_step(dropout=0.0), directory / "plain.tesser")
    tesser.capture(language_step(), directory / "language.tesser")
    return directory


@pytest.fixture(scope="session")
def classifier(programs: Path) -> Path:
    return programs / "classifier.tesser"


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """43 samples: five batches and three samples left out."""
    directory = tmp_path_factory.mktemp("data")
    write_classifier_data(directory / "train", 5 * BATCH + 3, 0)
    write_classifier_data(directory / "check", 2 * BATCH + 1, 1)
    return directory


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of a text that repeats itself, with its vocabulary."""
    directory = tmp_path_factory.mktemp("text")
    characters = "\n abcdeé"
    tokens = np.array([characters.index(character) for character in "abcdeé cab\n" * 60], dtype=np.uint16)
    tokens.tofile(directory / "tokens.bin")
    (directory / "tokens.json").write_text('{"dtype": "uint16", "stride": 3}')
    (directory / "vocabulary.json").write_text(json.dumps({"characters": characters}), encoding="utf-8")
    return directory
