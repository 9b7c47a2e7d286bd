"""What a benchmark must say about the machine it ran on, and how it reads a process's memory."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path


def processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def description() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{processor_name()}, {len(os.sched_getaffinity(0))} processors, {memory:.0f} GiB, Linux {platform.release()}"
    )


def memory_bytes(key: str) -> int:
    """A size of this process in bytes: VmRSS (resident now) or VmHWM (the most that was ever resident)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def available_bytes() -> int:
    """What this machine's processes may still take without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")


def loaded_bytes(tesser: Path, environment: Mapping[str, str]) -> int:
    """What the program that trains has resident when its libraries are loaded and it has done nothing yet."""
    program = tesser.with_name("tesser-runtime")  # which `tesser train` becomes
    process = subprocess.Popen([str(program), "--version"], env=dict(environment), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{program} --version ended with exit code {process.returncode}")
    return usage.ru_maxrss * 1024
