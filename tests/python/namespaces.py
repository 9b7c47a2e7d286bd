"""Two network namespaces with one link between them, which stand for two machines."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest


def ip(*words: str) -> bool:
    try:
        return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def two_namespaces(letter: str) -> Iterator[list[str]]:
    """Their names; their addresses are 10.98.0.1 and 10.98.0.2. `letter` tells one user of this from another. Skips the
    test where none can be made."""
    names = [f"tesser{letter}{index}-{os.getpid()}" for index in range(2)]
    pair = f"t{letter}{os.getpid()}"
    up = all(ip("netns", "add", name) for name in names)
    up = up and ip("link", "add", f"{pair}a", "netns", names[0], "type", "veth", "peer", "name", f"{pair}b", "netns",
                   names[1])  # fmt: skip
    for index, end in enumerate("ab"):
        up = up and ip("-n", names[index], "link", "set", "lo", "up")
        up = up and ip("-n", names[index], "addr", "add", f"10.98.0.{index + 1}/24", "dev", f"{pair}{end}")
        up = up and ip("-n", names[index], "link", "set", f"{pair}{end}", "up")
    try:
        if not up:
            pytest.skip("no network namespaces can be made here")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name)
