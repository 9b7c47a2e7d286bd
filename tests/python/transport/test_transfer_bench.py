"""./x bench transfer, small: every system measures and verifies, and the report holds what it should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.transfer import model_tensors, report

ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))
GRPC = BINARY.parent / "grpc_transfer"  # ./x bench transfer builds it
SIZES = [64, 100_001]


def bench(output: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "bench.transfer", "--tesser", BINARY, "--grpc", GRPC, "--output", output]
    command += ["--turns", "1", "--time", "10", *arguments]
    path = f"{ROOT / 'python'}:{ROOT}"
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path}
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_sizes(tmp_path):
    systems = [system for system in report.SYSTEMS if system != "grpc"]
    printed = bench(tmp_path, "--systems", ",".join(systems), "--sizes", ",".join(map(str, SIZES)))
    assert "static / memcpy" in printed and "grpc" not in printed
    entries = json.loads((tmp_path / "transfer.json").read_text())
    assert {(entry["system"], entry["bytes"]) for entry in entries} == {(s, b) for s in systems for b in SIZES}
    for entry in entries:
        assert 0 < entry["us_min"] <= entry["us_median"]
        assert entry["gb_s"] == pytest.approx(entry["bytes"] / entry["us_median"] * 1e-3, rel=1e-3)
    ElementTree.parse(tmp_path / "transfer.svg")


@pytest.mark.skipif(not GRPC.exists(), reason="gRPC's program is built by ./x bench transfer only")
@pytest.mark.parametrize("exchange", [[], ["--exchange"]])
def test_grpc(exchange):
    sizes = [8, *SIZES, 3_000_000]
    result = subprocess.run([GRPC, *exchange, "10", *map(str, sizes)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["bytes"] for row in rows] == ([sum(sizes)] if exchange else sizes)
    assert all(row["rounds"] >= 3 for row in rows)


@pytest.mark.parametrize(
    "command",
    [
        [
            BINARY,
            "transport",
            "bench",
            "--json",
            "--time",
            "10",
            "--systems",
            "static,dynamic",
            "--exchange",
            "--sizes",
        ],
        [BINARY, "transport", "bench", "--json", "--time", "10", "--tcp", "--exchange", "--sizes"],
        [sys.executable, "-m", "bench.transfer.gloo", "--exchange", "10"],
    ],
    ids=["shared-memory", "tcp", "gloo"],
)
def test_an_exchange_of_many_tensors_at_once(command):
    sizes = [8, 4000, 1_000_000, *range(64, 64 * 50, 64)]
    words = [",".join(map(str, sizes))] if command[0] == BINARY else map(str, sizes)
    result = subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert rows and all((row["bytes"], row["tensors"]) == (sum(sizes), len(sizes)) for row in rows)


def test_the_models_tensors_are_those_of_the_paper():
    megabytes_and_variables = {
        "AlexNet": (176.42, 16),
        "Inception-v3": (92.90, 196),
        "VGG16": (512.32, 32),
        "LSTM": (35.93, 14),
        "GRU": (27.92, 11),
        "FCN-5": (204.47, 10),
    }
    for model, (megabytes, variables) in megabytes_and_variables.items():
        sizes = model_tensors.tensor_bytes(model)
        assert len(sizes) == variables
        assert sum(sizes) / 2**20 == pytest.approx(megabytes, abs=0.005)


def test_ratios_say_how_many_times_faster_the_first_is():
    rows = {64: {"tesser-static": {"us_median": 2.0}, "grpc": {"us_median": 50.0}}}
    assert report.table(rows, "us_median", "size", report.RATIOS).splitlines() == [
        "| size | tesser-static | grpc | static / grpc |",
        "|---:|---:|---:|---:|",
        "| 64 B | 2.00 | 50.0 | 25.0 |",
    ]
