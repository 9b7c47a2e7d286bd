"""Workers in two network namespaces exchange tensors over TCP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import models
import tesser
from tests.python.commands import command, finish, run_environment, tesser_output
from tests.python.distributed.runs import trained, weights
from tests.python.models.cases import PAIRS
from tests.python.models.equality import SEED, Run, differences, write_data
from tests.python.namespaces import two_namespaces

STEPS = 5


@pytest.fixture(scope="module")
def namespaces() -> Iterator[list[str]]:
    with two_namespaces("d") as names:
        yield names


def sent_bytes(name: str) -> int:
    text = subprocess.run(["ip", "-n", name, "-s", "-j", "link"], capture_output=True, text=True, check=True).stdout
    return sum(link["stats64"]["tx"]["bytes"] for link in json.loads(text) if link["ifname"] != "lo")


def inside(namespace: str, *arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, *command(*arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=run_environment(TESSER_RUN_TOKEN="secret"),
    )  # fmt: skip


def test_the_bytes_of_the_plan_are_those_on_the_interface(namespaces: list[str], tmp_path: Path) -> None:
    program, data, plan = tmp_path / "step.tesser", tmp_path / "data", tmp_path / "step.plan"
    tesser.capture(models.load("mlp", "bench"), program)
    write_data(data, models.data("mlp", "bench", samples=64, seed=1))
    tesser_output("plan", program, "--workers", 2, "--preset", "tofu", "-o", plan)
    predicted = json.loads(plan.read_text())["predicted"]["bytes_per_step"]
    assert predicted > 100_000

    def counted(steps: int) -> tuple[int, int]:
        """Bytes that both interfaces sent in a run, and what the workers say of their tensors."""
        before = sum(sent_bytes(name) for name in namespaces)
        coordinator = inside(
            namespaces[0], "train", program, "--data", data, "--json", "--steps", steps, "--threads", 1, "--workers", 2,
            "--plan", plan, "--network", "--external", "--listen", "10.98.0.1:7412", "--run-directory",
            tmp_path / f"run-{steps}",
        )  # fmt: skip
        workers = [
            inside(namespaces[index], "worker", "--coordinator", "http://10.98.0.1:7412", "--worker", index)
            for index in (0, 1)
        ]
        run = finish(coordinator)
        endings = [worker.communicate(timeout=20) for worker in workers]
        assert run.code == 0, (run.errors, endings)
        told = sum(worker["sent_bytes"] for worker in run.of("end")[0]["workers"])
        return sum(sent_bytes(name) for name in namespaces) - before, told

    # What is sent once, and not every step, falls out of the difference of two runs. Of this model tensors are large;
    # where they are of a few hundred bytes, headers are more than a twentieth.
    few, told_few = counted(2)
    many, told_many = counted(7)
    assert told_few == 2 * predicted
    assert told_many == 7 * predicted
    assert predicted <= (many - few) / 5 <= 1.05 * predicted


@pytest.mark.parametrize("name", ["mlp-adam", "gpt-adamw"])
def test_over_tcp(name: str, namespaces: list[str], tmp_path: Path) -> None:
    case = PAIRS[name]
    program, data = tmp_path / "step.tesser", tmp_path / "data"
    tesser.capture(case.step(), program)
    write_data(data, case.samples(STEPS))
    words = ["--steps", STEPS, "--no-shuffle", "--seed", SEED]
    one = trained(program, data, tmp_path / "one", *words)
    before = sum(sent_bytes(name) for name in namespaces)
    coordinator = inside(
        namespaces[0], "train", program, "--data", data, "--json", *words, "--threads", 1, "--workers", 2, "--preset",
        "tofu", "--network", "--external", "--listen", "10.98.0.1:7411", "--run-directory", tmp_path / "run",
        "--checkpoint", tmp_path / "many",
    )  # fmt: skip
    workers = [
        inside(namespaces[index], "worker", "--coordinator", "http://10.98.0.1:7411", "--worker", index)
        for index in (0, 1)
    ]
    run = finish(coordinator)
    endings = [worker.communicate(timeout=20) for worker in workers]
    assert run.code == 0, (run.errors, endings)
    assert run.of("start")[0]["paths"][0].startswith("TCP")
    told = sum(worker["sent_bytes"] for worker in run.of("end")[0]["workers"])
    counted = sum(sent_bytes(name) for name in namespaces) - before
    assert counted > told > 0
    assert differences(Run(run.losses, weights(tmp_path / "many")), one, case.tolerance) == []
    assert all(worker.returncode == 0 for worker in workers), endings
    assert torch.isfinite(torch.tensor(run.losses)).all()
