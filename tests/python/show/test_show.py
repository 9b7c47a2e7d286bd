"""`tesser show` on the sample programs of tests/graph, as a user runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))
PROGRAMS = ROOT / "tests" / "graph" / "programs"


def show(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(BINARY), "show", *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    program = tmp_path / "sample.tesser"
    program.mkdir()
    shutil.copy(PROGRAMS / "step.json", program / "program.json")
    shutil.copy(PROGRAMS / "forward.json", program / "forward.json")
    return program


def test_graph_is_the_golden_print(directory: Path) -> None:
    assert show(directory, "--graph").stdout == (PROGRAMS / "step.txt").read_text(encoding="utf-8")
    forward = show(directory, "--graph", "--program", "forward").stdout
    assert forward == (PROGRAMS / "forward.txt").read_text(encoding="utf-8")


def test_prepared_graph_is_the_one_that_runs(tmp_path: Path) -> None:
    def node(name: str, op: str, source: str) -> dict:
        return {"name": name, "op": op, "args": [source], "out": [[name, "float32", [8]]], "phase": "forward"}

    program = {
        "format": "tesser.program",
        "version": 1,
        "name": "chain",
        "kind": "forward",
        "producer": "test",
        "first_step": 0,
        "schedules": [],
        "inputs": [{"name": "x", "role": "batch", "dtype": "float32", "shape": [8]}],
        "nodes": [node("a", "aten::neg", "%x"), node("b", "aten::relu", "%a")],
        "outputs": [{"role": "result", "name": "y", "value": "%b"}],
    }
    (tmp_path / "forward.json").write_text(json.dumps(program), encoding="utf-8")
    assert "%b = aten::relu(%a)" in show(tmp_path / "forward.json", "--graph").stdout
    prepared = show(tmp_path / "forward.json", "--graph", "--prepared").stdout
    assert '%b = tesser::fused("t0 = neg(i0); o0 = relu(t0)", [%x], [0])' in prepared
    alone = show(tmp_path / "forward.json", "--prepared")
    assert alone.returncode == 2 and "--prepared requires --graph" in alone.stderr


def test_summary_says_what_the_program_is(directory: Path) -> None:
    outcome = show(directory)
    assert outcome.returncode == 0
    lines = [" ".join(line.split()) for line in outcome.stdout.splitlines()]
    assert lines[0] == f'{directory}: step program sample "é"'
    assert "parameters 152 in 2 tensors, 608 bytes; 80 of them frozen" in lines
    assert "batch images float32[4, 1, 28, 28], labels int64[4]" in lines
    assert "nodes 12 (9 forward, 1 backward, 1 clip, 1 update)" in lines
    assert any(line.startswith("(all) 152 12 ") for line in lines)
    assert any(line.startswith("conv 72 3 ") for line in lines)


def test_json_agrees_with_the_summary(directory: Path) -> None:
    summary = json.loads(show(directory, "--json").stdout)
    assert summary["parameters"] == 152
    assert summary["trainable_parameters"] == 72
    assert summary["nodes"] == {"forward": 9, "backward": 1, "clip": 1, "update": 1}
    assert sum(summary["operators"].values()) == 12
    assert summary["modules"][0]["path"] == "" and summary["modules"][0]["nodes"] == 12
    memory = summary["memory"]
    assert memory["peak_bytes"] == memory["state_bytes"] + memory["arena_bytes"]
    assert memory["arena_bytes"] >= memory["live_bytes"] > 0


def test_memory_names_the_fullest_node(directory: Path) -> None:
    output = show(directory, "--memory", "--program", "forward").stdout
    assert "memory is fullest at node 2 of 2" in output
    assert "%mm = aten::mm(%features, %t)" in output
    assert "160 bytes  mm  float32[4, 10]  aten::mm in head" in output


def test_the_program_of_one_worker(tmp_path: Path) -> None:
    plan = subprocess.run(
        [str(BINARY), "plan", PROGRAMS / "step.json", "--workers", "2", "-o", tmp_path / "sample.plan"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert plan.returncode == 0, plan.stderr
    lowered = tmp_path / "sample.lowered"
    words = [str(BINARY), "lower", tmp_path / "sample.plan", "-o", lowered]
    assert subprocess.run(words, capture_output=True, timeout=60).returncode == 0
    table = [line.split()[0] for line in show(lowered).stdout.splitlines() if line.strip()]
    assert table[-4:-1] == ["worker", "0", "1"]
    assert [worker["nodes"] > 0 for worker in json.loads(show(lowered, "--json").stdout)["workers"]] == [True, True]
    for words in ([], ["--graph"], ["--memory"], ["--json"], ["--graph", "--prepared"]):
        one = show(lowered, "--worker", 1, *words)
        assert one.returncode == 0, one.stderr
        of_file = show(lowered / "worker-1.json", *words).stdout
        assert one.stdout.splitlines()[1:] == of_file.splitlines()[1:]
    assert f"{lowered}, worker 1: step program" in show(lowered, "--worker", 1).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--worker", "9"], "has workers 0 to 1, not 9"),
        (["--graph"], "holds a program for each worker; say which with --worker"),
        (["--worker", "0", "--alone"], "--alone and --of are for plans"),
    ],
)
def test_what_a_lowered_program_does_not_have(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "lowering.json").write_text(
        '{"format":"tesser.lowered","version":2,"name":"x","program_hash":"","plan_hash":"","workers":2,"transfers":0,'
        '"bytes":0}'
    )
    outcome = show(tmp_path, *words)
    assert outcome.returncode == 2
    assert message in outcome.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.tesser"], "missing.tesser: no such file"),
        (["--program", "both"], "--program: both not in"),
        (["--graph", "--json"], "excludes"),
    ],
)
def test_wrong_usage_and_input_exit_with_2(directory: Path, words: list[str], message: str) -> None:
    outcome = show(*words) if words[0].endswith(".tesser") else show(directory, *words)
    assert outcome.returncode == 2
    assert message in outcome.stderr
    assert outcome.stdout == ""


def test_a_damaged_program_is_one_clear_error(directory: Path) -> None:
    file = directory / "program.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"%split.0"', '"%split.7"'), encoding="utf-8")
    outcome = show(directory)
    assert outcome.returncode == 2
    assert outcome.stderr == (
        f'tesser show: error: {file}: node mean: reads "%split.7", which no input or earlier node defines\n'
    )
