"""The command's own manners: help, version, mistakes in its usage."""

from __future__ import annotations

import pytest

from tests.python.commands import run_tesser

COMMANDS = ["capture", "show", "train", "evaluate", "run", "generate", "export"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    run = run_tesser(name, "--help")
    assert run.code == 0, run.errors
    assert name in run.output


def test_help_and_version() -> None:
    run = run_tesser("--help")
    assert run.code == 0
    assert all(name in run.output for name in COMMANDS) and "Examples:" in run.output
    version = run_tesser("--version")
    assert version.code == 0 and version.output.startswith("tesser ")


def test_mistakes() -> None:
    run = run_tesser()
    assert run.code == 2 and "train" in run.output
    run = run_tesser("evalute")
    assert run.code == 2 and "unknown command 'evalute'; did you mean 'evaluate'?" in run.errors
    run = run_tesser("xyzzyxyzzy")
    assert run.code == 2 and "unknown command 'xyzzyxyzzy'" in run.errors and "did you mean" not in run.errors
    run = run_tesser("--nothing")
    assert run.code == 2 and "--nothing" in run.errors
    run = run_tesser("export")
    assert run.code == 2 and run.errors.startswith("tesser export: ") and "See tesser export --help." in run.errors
