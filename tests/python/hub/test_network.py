"""A hub and replicas in two network namespaces, over TCP, against the same on one machine through shared memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from tests.python.commands import command, run_environment
from tests.python.namespaces import two_namespaces

SECONDS = 60


def weights_of(hub: list[str], url: str, places: list[list[str]], folder: Path) -> list[dict]:
    """What each replica ends with. `hub`, `places`: what the commands of the hub and of each replica begin with."""
    folder.mkdir()
    host, port = url.removeprefix("http://").split(":")
    server = subprocess.Popen(
        [*hub, *command("hub", "serve", "--listen", f"{host}:{port}", "--no-pin")], stdout=subprocess.PIPE, text=True
    )
    try:
        found = server.stdout.readline().split()[-1]  # "hub at http://..."
        replicas = [
            subprocess.Popen(
                [*place, sys.executable, "-m", "tests.python.hub.remote", found, str(rank), str(folder / f"{rank}.pt")],
                stderr=subprocess.PIPE, text=True, env=run_environment(),
            )
            for rank, place in enumerate(places)
        ]  # fmt: skip
        for replica in replicas:
            errors = replica.communicate(timeout=SECONDS)[1]
            assert replica.returncode == 0, errors
    finally:
        server.terminate()
        server.wait(timeout=SECONDS)
    return [torch.load(folder / f"{rank}.pt") for rank in range(len(places))]


def test_the_numbers_are_those_of_shared_memory_to_the_bit(tmp_path: Path) -> None:
    here = weights_of([], "http://127.0.0.1:0", [[], []], tmp_path / "here")
    with two_namespaces("r") as names:
        inside = [["ip", "netns", "exec", name] for name in names]
        apart = weights_of(inside[0], "http://10.98.0.1:7700", inside, tmp_path / "apart")
    for weights in (here[1], *apart):
        assert weights.keys() == here[0].keys()
        for name, value in weights.items():
            assert torch.equal(value, here[0][name]), name
