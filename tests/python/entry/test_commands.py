"""./x as a user types it: what it accepts, refuses and says when the machine lacks something."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import environment
from tools.console import Failure

ROOT = Path(__file__).resolve().parents[3]


def run_x(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "x", *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("arguments", [(), ("help",), ("--help",)])
def test_help_lists_every_verb(arguments):
    result = run_x(*arguments)
    assert result.returncode == 0
    for verb in ("setup", "build", "test", "demo", "bench", "lint", "format"):
        assert f"\n  {verb}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tset",), "tset"),
        (("build", "fast"), "presets: release, debug, asan-ubsan, tsan"),
        (("demo", "cifar"), "demos: mnist, shakespeare"),
        (("demo", "mnist", "--fast"), "--fast"),
        (("bench", "speed"), "benchmarks: step, plan, network, optimizer, transfer, hub, simulate, platform"),
        (("test", "--fuzz-seconds", "-1"), "seconds"),
        (("lint", "src"), "src"),
    ],
)
def test_wrong_usage_says_what_there_is(arguments, message):
    result = run_x(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_missing_packages_without_rights(monkeypatch):
    monkeypatch.setattr(environment, "is_installed", lambda package: package != "ninja-build")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(
        Failure, match=r"missing.*: ninja-build\nWhat to do: as root, apt-get update && apt-get install"
    ):
        environment.install_missing(["cmake", "ninja-build"])


def test_nothing_is_installed_where_nothing_is_missing(monkeypatch):
    monkeypatch.setattr(environment, "is_installed", lambda package: True)
    monkeypatch.setattr(environment, "run", lambda *arguments: pytest.fail("apt-get was called"))
    environment.install_missing(["cmake", "ninja-build"])


def test_no_python_of_a_version_that_serves(monkeypatch):
    monkeypatch.setattr(environment, "output_of", lambda command: "3.9" if command[0] == "python3" else None)
    with pytest.raises(Failure, match=r"Python 3.11 or newer.*found only 3.9.\nWhat to do: apt-get install"):
        environment.find_python()


def test_a_changed_list_makes_setup_run_again(monkeypatch, tmp_path):
    before = environment.fingerprint()
    changed = tmp_path / "requirements.txt"
    changed.write_text(environment.REQUIREMENTS.read_text() + "another==1.0\n")
    monkeypatch.setattr(environment, "REQUIREMENTS", changed)
    assert environment.fingerprint() != before
