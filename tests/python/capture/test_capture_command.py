"""The command `tesser capture`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tesser
from tesser import capture_command

ROOT = Path(__file__).resolve().parents[3]

STEP_FILE = """
import torch
from torch import nn
from tesser import Step
from parts import loss


def step(width: int = 8, rate: float = 0.1, note: str = ""):
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    return Step(model, loss, {"x": torch.randn(3, 4)}, optimizer, name="two layers", forward=lambda m, b: m(b["x"]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "step.py").write_text(STEP_FILE)
    (tmp_path / "parts.py").write_text("def loss(model, batch):\n    return model(batch['x']).square().mean()\n")
    return tmp_path


def _capture(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-m", "tesser", "capture", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder as the working directory of this process, for commands that need no process of their own."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "parts", raising=False)
    return folder


def test_a_step_file_becomes_a_program(folder: Path) -> None:
    done = _capture(folder, "step.py", "--json", "--", "width=16", "note=two words")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["output"] == "two_layers.tesser" and summary["parameters"] == 4 * 16 + 16 + 16 * 2 + 2
    program = tesser.Program.read(folder / "two_layers.tesser" / "program.json")
    assert summary["nodes"] == len(program.nodes) == sum(summary["nodes_by_phase"].values())
    assert {node.source for node in program.nodes if node.phase == "forward"} == {"parts.py:2"}
    assert sorted(path.name for path in (folder / "two_layers.tesser").iterdir()) == [
        "forward.json",
        "program.json",
        "state.safetensors",
    ]
    interpreter = tesser.Interpreter.open(folder / "two_layers.tesser")
    assert interpreter.state["0.weight"].shape == (16, 4)


def test_a_summary_is_printed_and_no_state_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert capture_command.main(["step.py", "-o", "plan.tesser", "--no-state", "--name", "planned"]) == 0
    printed = capsys.readouterr().out
    assert "plan.tesser  (without state: to plan only)" in printed and "58" in printed
    assert not (here / "plan.tesser" / "state.safetensors").exists()
    assert tesser.Program.read(here / "plan.tesser" / "program.json").name == "planned"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, ["missing.py"], "missing.py: cannot be read: No such file"),
        ("x = 1\n", ["step.py"], "step.py: the file defines no function step()"),
        ("def step(:\n", ["step.py"], "step.py:1: syntax error"),
        ("def step():\n    return 3\n", ["step.py"], "step.py: step() returned int"),
        ("def step():\n    a = 1\n    return a / 0\n", ["step.py"], "step.py:3: ZeroDivisionError"),
        ("import nothing_of_this_name\n", ["step.py"], "step.py:1: ModuleNotFoundError"),
        ("raise SystemExit(7)\n", ["step.py"], "step.py:1: the file ends the process"),
        (STEP_FILE, ["step.py", "--", "depth=3"], "step.py: step(width: int = 8"),
        (STEP_FILE, ["step.py", "--", "depth"], "'depth' is no argument of step(); write key=value"),
        (STEP_FILE, ["step.py", "--", "width=wide"], "step.py:9: TypeError"),
        (STEP_FILE, ["step.py", "-o", "."], "exists and is no program directory"),
    ],
)
def test_wrong_use_ends_with_one_line_and_exit_code_2(
    here: Path, text: str | None, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (here / "step.py").write_text(text)
    assert capture_command.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tesser capture: ") and message in line
    assert sorted(path.name for path in here.iterdir() if path.name != "__pycache__") == ["parts.py", "step.py"]


def test_a_refusal_names_the_line_in_the_imported_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "parts.py").write_text(
        "def loss(model, batch):\n    y = model(batch['x'])\n    return y.mean() if y.sum() > 0 else y.sum()\n"
    )
    assert capture_command.main(["step.py"]) == 2
    message = capsys.readouterr().err
    assert "parts.py:3: the program is fixed before any data is seen" in message
    assert "torch.where" in message


def test_gpt3_is_captured_without_being_allocated(folder: Path) -> None:
    (folder / "step.py").write_text("from models.gpt import step\n")
    done = _capture(folder, "step.py", "--no-state", "--json", "-o", "gpt3.tesser", "--", "size=175b")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert 174e9 < summary["parameters"] < 176e9
    assert summary["seconds"] < 60 and summary["peak_bytes"] < 4e9
    print(f"GPT-3: {summary['nodes']} nodes in {summary['seconds']} s, {summary['peak_bytes'] / 1e6:.0f} MB")
