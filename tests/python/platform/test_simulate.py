"""`tesser simulate` as a user runs it, over the Philly traces that benches replay."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.python.commands import ROOT, binary

TRACE = ROOT / "bench" / "traces" / "philly-vc-2869ce.csv"


def simulate(*words: str | int | Path) -> subprocess.CompletedProcess[str]:
    command = [str(binary()), "simulate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_gangs_hold_no_accelerator_that_does_not_run() -> None:
    done = simulate(TRACE, "--nodes", "6x8", "--json")
    assert done.returncode == 0, done.stderr
    by_policy = {each["policy"]: each for each in json.loads(done.stdout)}
    assert set(by_policy) == {"gang-pack", "gang-spread", "single-pack", "single-spread"}
    for name, report in by_policy.items():
        assert report["jobs"] == report["finished"] == 956, name
        assert report["used_gpu_hours"] == pytest.approx(70037.75, rel=1e-3)
        assert report["wait_p50_s"] <= report["wait_p95_s"] <= report["wait_p99_s"]
    assert by_policy["gang-pack"]["idle_held_gpu_hours"] == 0
    assert by_policy["gang-spread"]["idle_held_gpu_hours"] == 0
    assert by_policy["single-pack"]["idle_held_gpu_hours"] > 1000


def test_repeats_for_a_seed() -> None:
    words = (TRACE, "--nodes", "6x8", "--policy", "gang-spread", "--seed", 3, "--json")
    kept = [json.loads(simulate(*words).stdout)[0]["wait_percentiles_s"] for _ in range(2)]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((TRACE, "--nodes", "8"), "--nodes 8: expected NODESxACCELERATORS"),
        ((TRACE, "--nodes", "0x8"), "--nodes 0x8"),
        ((TRACE, "--learner", 9), "--learner 9: a learner has from 1 to 8 accelerators"),
        ((TRACE, "--quota", "vision"), "--quota vision: expected TEAM=ACCELERATORS"),
        (("nowhere.csv",), "nowhere.csv"),
        ((), "expected either a trace or --synthetic JOBS"),
        ((TRACE, "--policy", "fair"), "--policy"),
    ],
)
def test_wrong_words_are_told(words: tuple, message: str) -> None:
    done = simulate(*words)
    assert done.returncode == 2
    assert message in done.stderr
