"""`tesser transport`: what it prints, and that two processes measure with one another."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))


def transport(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BINARY, "transport", *arguments], capture_output=True, text=True, timeout=60)


def test_info_names_back_ends_limits_and_address():
    shown = transport("info")
    assert shown.returncode == 0, shown.stderr
    for line in ("same machine", "other machines", "adapters", "locked memory limit", "huge pages"):
        assert line in shown.stdout
    assert re.search(r"address +127\.0\.0\.1:\d+/[0-9a-f]{16}", shown.stdout)


def test_bench_measures_both_transfers_and_the_limit():
    measured = transport("bench", "--sizes", "64,100000", "--time", "20", "--json")
    assert measured.returncode == 0, measured.stderr
    rows = [json.loads(line) for line in measured.stdout.splitlines()]
    assert {(row["system"], row["bytes"]) for row in rows} == {
        (system, size) for system in ("tesser-static", "tesser-dynamic", "memcpy") for size in (64, 100000)
    }
    assert all(row["us_median"] > 0 and row["gb_s"] > 0 for row in rows)


def test_two_commands_measure_with_one_another():
    listening = subprocess.Popen(
        [BINARY, "transport", "bench", "--listen", "127.0.0.1:0", "--sizes", "4096", "--time", "20"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = re.search(r"--peers (\S+)", listening.stderr.readline())[1]
        measured = transport("bench", "--peers", address, "--sizes", "4096", "--time", "20")
        assert measured.returncode == 0, measured.stderr
        assert "shared memory (same machine)" in measured.stdout
        assert "tesser-static" in measured.stdout
        assert listening.wait(timeout=20) == 0
    finally:
        listening.kill()


def test_a_peer_that_is_not_there_is_an_error_that_names_it():
    shown = transport("info", "--peers", "127.0.0.1:1")
    assert shown.returncode == 1
    assert "127.0.0.1:1" in shown.stderr
    shown = transport("info", "--peers", "nowhere")
    assert shown.returncode == 2
    assert "HOST:PORT" in shown.stderr
