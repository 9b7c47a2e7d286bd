"""What ./x prints, and how it runs other programs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROCESSORS = len(os.sched_getaffinity(0))


class Failure(Exception):
    """Something ./x was asked for did not work: exit code 1. The message says what, where and what to do."""


class Usage(Exception):
    """./x was asked for something that does not exist: exit code 2."""


def heading(text: str) -> None:
    print(f"==> {text}", flush=True)


def error(text: str) -> None:
    sys.stdout.flush()
    print(f"./x: {text}", file=sys.stderr, flush=True)


def environment_with(changes: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **changes}


def succeeds(command: Sequence[str | Path], changes: Mapping[str, str] | None = None) -> bool:
    """Runs a command whose output the user sees."""
    sys.stdout.flush()
    try:
        return (
            subprocess.run([str(part) for part in command], cwd=ROOT, env=environment_with(changes or {})).returncode
            == 0
        )
    except FileNotFoundError:
        error(f"{command[0]} is not installed")
        return False


def run(command: Sequence[str | Path], what_to_do: str, changes: Mapping[str, str] | None = None) -> None:
    """As succeeds(), but a failure ends ./x with the command and what to do about it."""
    if not succeeds(command, changes):
        raise Failure(f"this command failed: {shlex.join(str(part) for part in command)}\nWhat to do: {what_to_do}")


def output_of(command: Sequence[str | Path]) -> str | None:
    """Standard output of a quiet command, or None when it is missing or fails."""
    try:
        result = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None
