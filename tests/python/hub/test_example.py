"""The example trains, by torchrun and by hand, and goes on from its checkpoint."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.python.commands import ROOT
from tests.python.hub.test_wrap import free_port

EXAMPLE = ROOT / "examples" / "hub" / "train.py"
SECONDS = 120


def variables(**more: object) -> dict[str, str]:
    paths = {"PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
    return os.environ | paths | {name: str(value) for name, value in more.items()}


def accuracies(output: str) -> list[tuple[int, float]]:
    return [(int(epoch), float(value)) for epoch, value in re.findall(r"epoch (\d+): accuracy ([\d.]+)", output)]


def test_the_example(hub: str, tmp_path: Path) -> None:
    checkpoint = ["--checkpoint", tmp_path / "digits.pt"]
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, EXAMPLE]
    done = subprocess.run(
        [str(word) for word in [*words, "--epochs", 1, *checkpoint]],
        env=variables(), capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ((epoch, first),) = accuracies(done.stdout)
    assert epoch == 1 and first > 0.9
    assert done.stdout.count("(same process)") == 1 and "shared memory" in done.stdout

    common = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    words = [sys.executable, EXAMPLE, "--hub", hub, "--epochs", 2, *checkpoint]
    processes = [
        subprocess.Popen(
            [str(word) for word in words], env=variables(RANK=rank, **common), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    ends = [process.communicate(timeout=SECONDS) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    ((epoch, second),) = accuracies(ends[0][0])
    assert epoch == 2 and second > first
