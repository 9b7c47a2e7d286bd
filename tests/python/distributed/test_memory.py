"""A step that does not fit into one worker's memory: refused ahead there, trained by two."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import models
import tesser
from tests.python.commands import command, finish, run_environment, start, train
from tests.python.models.equality import write_data

STEPS = 3


@pytest.fixture
def limited() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a command whose memory is limited, each in a control group of its own."""
    groups: list[Path] = []

    def run(limit: int, *words: object, **variables: str) -> subprocess.Popen:
        first = Path("/sys/fs/cgroup/memory")  # version 1; else the one hierarchy of version 2
        group = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"tesser-{os.getpid()}-{len(groups)}"
        try:
            group.mkdir()
            groups.append(group)
            (group / ("memory.limit_in_bytes" if first.is_dir() else "memory.max")).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"no control groups for memory can be made here: {error}")
        return subprocess.Popen(
            ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command(*words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=run_environment(**variables),
        )  # fmt: skip

    yield run
    for group in groups:
        group.rmdir()


def test_two_workers_train_what_one_cannot(limited: Callable[..., subprocess.Popen], tmp_path: Path) -> None:
    program, data = tmp_path / "gpt.tesser", tmp_path / "data"
    tesser.capture(models.load("gpt", "bench"), program)
    write_data(data, models.data("gpt", "bench", samples=8 * STEPS, seed=1))
    free = train(program, data, "--steps", STEPS)
    assert free.code == 0, free.errors
    limit = free.of("start")[0]["predicted_peak_bytes"] - (2 << 20)

    alone = finish(limited(limit, "train", program, "--data", data, "--steps", STEPS, "--threads", 1))
    assert alone.code == 1
    assert "of memory for its tensors, as foreseen, and this process has" in alone.errors
    assert "train it on more workers (--workers)" in alone.errors

    process = start(
        "train", program, "--data", data, "--json", "--steps", STEPS, "--threads", 1, "--workers", 2, "--external",
        "--preset", "tofu", "--run-directory", tmp_path / "run", variables={"TESSER_RUN_TOKEN": "secret"},
    )  # fmt: skip
    note = process.stdout.readline()
    url = next(word for word in note.split() if word.startswith("http://127"))
    workers = [
        limited(limit, "worker", "--coordinator", url, "--worker", worker, TESSER_RUN_TOKEN="secret")
        for worker in range(2)
    ]
    run = finish(process)
    endings = [worker.communicate(timeout=20) for worker in workers]
    assert run.code == 0, (run.errors, endings)
    assert run.losses == pytest.approx(free.losses, rel=1e-5)
    for worker in run.of("end")[0]["workers"]:
        assert worker["peak_bytes"] < limit
        assert worker["peak_bytes"] <= 1.1 * free.of("end")[0]["peak_bytes"] / 2
