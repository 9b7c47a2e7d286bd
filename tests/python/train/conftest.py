"""Captured programs and their data."""

from __future__ import annotations

from pathlib import Path

import pytest

import tesser
from tests.python.commands import write_classifier_data, write_text
from tests.python.train.train_steps import BATCH, classifier_step, language_step


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
    directory = tmp_path_factory.mktemp("text") / "text"
    write_text(directory)
    return directory
