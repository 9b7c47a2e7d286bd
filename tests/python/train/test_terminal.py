"""What a person at a terminal sees: a progress bar that is drawn over and over, and whole lines between."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from tests.python.commands import SECONDS, command, run_environment


def on_a_terminal(*words: object) -> tuple[int, str]:
    """Runs the command on a terminal of its own; returns its exit code and everything it drew there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(*words), stdout=theirs, stderr=theirs, env=run_environment())
    os.close(theirs)
    drawn = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            break
        if not piece:
            break
        drawn += piece
    os.close(ours)
    return process.wait(timeout=SECONDS), drawn.decode()


def test_progress_bar(classifier: Path, data: Path, tmp_path: Path) -> None:
    words = ("train", classifier, "--data", data / "train", "--steps", 1500, "--checkpoint", tmp_path, "--threads", 1)
    code, drawn = on_a_terminal(*words, "--every", 700)
    assert code == 0, drawn
    # What stays on the screen of each line is what was drawn after the last return to its beginning.
    lines = [line.rsplit("\r", 1)[-1].replace("\x1b[K", "") for line in drawn.replace("\r\n", "\n").split("\n")]
    assert any(line.startswith("classifier: 43 samples, batch 8") for line in lines)
    assert any(line.startswith("checkpoint ") and "step-00001500" in line for line in lines)
    bars = [line for line in lines if line.startswith("epoch ")]
    assert len(bars) == 1 and "step 1500/1500" in bars[0] and "loss " in bars[0]
    assert all(len(line) < 80 for line in bars)
    assert drawn.count("\r\x1b[K") > 3
    assert lines[-2].startswith("done after step 1500")
