"""`tesser plan` and `tesser show NAME.plan`, as a user runs them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
PRESETS = ["tofu", "default", "dp", "allrow-greedy", "spartan", "equalchop", "no-reduction", "megatron"]


@pytest.fixture(scope="module")
def program(captured: Callable[[str], Path]) -> Path:
    return captured("gpt")


def plan(run: Run, program: Path, output: Path, *words: object) -> dict:
    outcome = run("plan", program, "-o", output, "--json", *words)
    assert outcome.returncode == 0, outcome.stderr
    return json.loads(outcome.stdout)


def shown(run: Run, path: Path, *words: object) -> str:
    outcome = run("show", path, *words)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_makes_a_plan_that_is_shown(preset: str, program: Path, run_tesser: Run, tmp_path: Path) -> None:
    path = tmp_path / "gpt.plan"
    made = plan(run_tesser, program, path, "--workers", 4, "--preset", preset)
    assert made["preset"] == preset and made["workers"] == 4 and made["undescribed"] == []
    file = json.loads(path.read_text(encoding="utf-8"))
    assert file["format"] == "tesser.plan" and file["program_hash"] == made["program_hash"]
    assert len(file["nodes"]) == made["nodes"]
    summary = json.loads(shown(run_tesser, path, "--json", "--alone"))
    assert summary["bytes_per_step"] == made["bytes_per_step"] == sum(summary["level_bytes"])
    assert summary["peak_bytes"] == made["peak_bytes_per_worker"] > summary["state_bytes"]
    # Each transfer and worker is rounded to whole bytes.
    assert sum(entry["bytes"] for entry in summary["transfers"]) == pytest.approx(summary["bytes_per_step"], rel=1e-3)
    assert sum(summary["worker_bytes"]) == pytest.approx(summary["bytes_per_step"], rel=1e-3)
    assert summary["comparison"] == []


def test_a_plan_is_the_same_every_time(program: Path, run_tesser: Run, tmp_path: Path) -> None:
    for name in ("a.plan", "b.plan"):
        plan(run_tesser, program, tmp_path / name, "--workers", 6)
    assert (tmp_path / "a.plan").read_bytes() == (tmp_path / "b.plan").read_bytes()


def test_tofu_keeps_an_equal_share_of_everything_that_divides(program: Path, run_tesser: Run, tmp_path: Path) -> None:
    path = tmp_path / "gpt.plan"
    plan(run_tesser, program, path, "--workers", 4, "--preset", "tofu")
    for tensor in json.loads(shown(run_tesser, path, "--json", "--alone"))["tensors"]:
        elements = 1
        for size in tensor["shape"]:
            elements *= size
        if any(size % 4 == 0 for size in tensor["shape"]):
            assert tensor["worker_bytes"] * 4 % elements == 0, tensor
            assert "copies" not in tensor["cut"] and "every worker" not in tensor["cut"], tensor


def test_what_is_shown(program: Path, run_tesser: Run, tmp_path: Path) -> None:
    path = tmp_path / "gpt.plan"
    plan(run_tesser, program, path, "--workers", 4, "--preset", "dp")
    text = shown(run_tesser, path)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == f"{path}: plan of gpt for 4 workers, preset dp"
    assert any(line.startswith("moved ") and "a worker receives" in line for line in lines)
    assert any(line.startswith("memory ") and "state and batch" in line for line in lines)
    assert any(line.startswith("blocks.*.attention.query_key_value.weight (x") for line in lines), text
    assert any("all-reduce of the gradient of " in line and "its parts are summed over" in line for line in lines), text
    begin = lines.index("compared with the plans of every preset, a step and a worker")
    compared = {line.split()[0]: line for line in lines[begin + 2 :]}
    assert set(PRESETS) <= set(compared), text
    own = next(line for line in lines[begin:] if line.startswith("this plan"))
    assert own.removeprefix("this plan ") == compared["dp"].removeprefix("dp ")


def test_the_regions_of_workers_cover_everything(program: Path, run_tesser: Run, tmp_path: Path) -> None:
    path = tmp_path / "gpt.plan"
    plan(run_tesser, program, path, "--workers", 3, "--preset", "tofu")
    sizes = []
    for worker in range(3):
        text = shown(run_tesser, path, "--worker", worker)
        assert text.startswith(f"worker {worker} of 3")
        values = {line.split()[0]: line for line in text.splitlines() if " float32[" in line}
        sizes.append({name: int(line.split()[-1]) for name, line in values.items() if "." in name})
    for name, size in sizes[0].items():
        assert size >= sizes[2][name] and sum(each[name] for each in sizes) > 0
    outcome = run_tesser("show", path, "--worker", 3)
    assert outcome.returncode == 2 and "the plan has workers 0 to 2" in outcome.stderr


def test_memory_bounds(program: Path, run_tesser: Run, tmp_path: Path) -> None:
    path = tmp_path / "gpt.plan"
    free = plan(run_tesser, program, path, "--workers", 4)
    bound = free["peak_bytes_per_worker"]
    assert plan(run_tesser, program, path, "--workers", 4, "--memory", f"{bound}")["peak_bytes_per_worker"] <= bound
    path.unlink()
    outcome = run_tesser("plan", program, "-o", path, "--workers", 4, "--memory", "1KiB")
    assert outcome.returncode == 1
    assert "no plan fits 4 workers" in outcome.stderr and "the smallest bound for 4 workers is" in outcome.stderr
    assert not path.exists()


def test_topologies(program: Path, run_tesser: Run, tmp_path: Path) -> None:
    machines = tmp_path / "machines.json"
    machines.write_text(
        '{"links":[{"name":"network","parts":2,"bandwidth":1e9},{"name":"memory","parts":3,"bandwidth":4e10}]}',
        encoding="utf-8",
    )
    path = tmp_path / "gpt.plan"
    plan(run_tesser, program, path, "--workers", 6, "--topology", machines, "--preset", "tofu")
    levels = json.loads(path.read_text(encoding="utf-8"))["levels"]
    assert list(dict.fromkeys(level["link"] for level in levels)) == ["network", "memory"]
    assert "over network" in shown(run_tesser, path, "--alone")
    outcome = run_tesser("plan", program, "-o", path, "--workers", 8, "--topology", machines)
    assert outcome.returncode == 2 and "separate 6 workers, but 8 are asked for" in outcome.stderr


def test_plans_find_their_program_beside_them(captured: Callable, run_tesser: Run, tmp_path: Path) -> None:
    shutil.copytree(captured("mlp"), tmp_path / "a" / "mlp.tesser")
    plan(run_tesser, tmp_path / "a" / "mlp.tesser", tmp_path / "a" / "mlp.plan", "--workers", 2)
    (tmp_path / "a").rename(tmp_path / "b")
    shown(run_tesser, tmp_path / "b" / "mlp.plan", "--alone")
    (tmp_path / "b" / "mlp.tesser").rename(tmp_path / "other.tesser")
    outcome = run_tesser("show", tmp_path / "b" / "mlp.plan")
    assert outcome.returncode == 2 and "--of NAME.tesser" in outcome.stderr
    shown(run_tesser, tmp_path / "b" / "mlp.plan", "--alone", "--of", tmp_path / "other.tesser")
    outcome = run_tesser("show", tmp_path / "b" / "mlp.plan", "--of", captured("gpt"))
    assert outcome.returncode == 2 and "is a plan of another program: of mlp" in outcome.stderr


def unheard_of(tmp_path: Path) -> Path:
    def node(name: str, op: str, source: str) -> dict:
        return {"name": name, "op": op, "args": [source], "out": [[name, "float32", [8]]], "phase": "forward"}

    path = tmp_path / "program.json"
    program = {
        "format": "tesser.program",
        "version": 1,
        "name": "chain",
        "kind": "forward",
        "producer": "test",
        "first_step": 0,
        "schedules": [],
        "inputs": [{"name": "x", "role": "batch", "dtype": "float32", "shape": [8]}],
        "nodes": [
            node("a", "aten::neg", "%x"),
            node("b", "aten::never_heard_of", "%a"),
            node("c", "aten::never_heard_of", "%b"),
        ],
        "outputs": [{"role": "result", "name": "y", "value": "%c"}],
    }
    path.write_text(json.dumps(program), encoding="utf-8")
    return path


def test_an_operator_without_description_is_named_once(run_tesser: Run, tmp_path: Path) -> None:
    program = unheard_of(tmp_path)
    outcome = run_tesser("plan", program, "-w", 2, "-o", tmp_path / "chain.plan")
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr.count("warning") == 1
    assert (
        "aten::never_heard_of has no description, so every worker computes all of it (2 nodes, first node b)"
        in outcome.stderr
    )
    assert "aten::never_heard_of (2 nodes)" in shown(run_tesser, tmp_path / "chain.plan", "--alone")
    described = tmp_path / "my.tdl"
    described.write_text("aten::never_heard_of(x) -> y:\n    y[i] = x[i]\n", encoding="utf-8")
    outcome = run_tesser("plan", program, "-w", 2, "-o", tmp_path / "chain.plan", "--tdl", described)
    assert outcome.returncode == 0 and outcome.stderr == ""
    assert "never_heard_of (2 nodes)" not in shown(run_tesser, tmp_path / "chain.plan", "--alone")
    described.write_text("aten::never_heard_of(x) -> y:\n    y[i] = x[i\n", encoding="utf-8")
    outcome = run_tesser("plan", program, "-w", 2, "-o", tmp_path / "chain.plan", "--tdl", described)
    assert outcome.returncode == 2 and f"{described}:2:" in outcome.stderr


def test_a_description_that_does_not_fit_ends_no_plan(
    captured: Callable[[str], Path], run_tesser: Run, tmp_path: Path
) -> None:
    described = tmp_path / "my.tdl"
    described.write_text("aten::mm(a, b) -> c:\n    c[n, i, j] = sum[k](a[n, i, k] * b[n, k, j])\n", encoding="utf-8")
    for preset in ("default", "tofu", "dp", "no-reduction", "spartan", "equalchop", "megatron", "allrow-greedy"):
        words = ["-w", 2, "--preset", preset, "--tdl", described, "-o", tmp_path / "mlp.plan"]
        outcome = run_tesser("plan", captured("mlp"), *words)
        assert outcome.returncode == 0, outcome.stderr
        lines = outcome.stderr.splitlines()
        assert lines and all("warning: aten::mm has no description that fits (" in line for line in lines)
        assert f"; described in {described}:1 (aten::mm)), so every worker computes all of it" in outcome.stderr
    outcome = run_tesser("lower", tmp_path / "mlp.plan", "-o", tmp_path / "mlp.lowered")
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "4", "--preset", "best"], "--preset"),
        (["--workers", "0"], "--workers"),
        (["--preset", "tofu"], "--workers is required"),
        (["--workers", "4", "--memory", "much"], "--memory much: expected a size such as 12GiB"),
        (["--workers", "4", "--memory", "1GiB", "--preset", "tofu"], "leave out --memory, or use --preset default"),
        (["--workers", "4", "--topology", "none.json"], "none.json"),
        (["--workers", "4", "--tdl", "none.tdl"], "none.tdl"),
    ],
)
def test_wrong_usage_exits_with_2(
    words: list[str], message: str, captured: Callable[[str], Path], run_tesser: Run, tmp_path: Path
) -> None:
    outcome = run_tesser("plan", captured("mlp"), "-o", tmp_path / "mlp.plan", *words)
    assert outcome.returncode == 2 and message in outcome.stderr, outcome.stderr
    assert not list(tmp_path.iterdir())


def test_more_workers_than_there_is_to_cut(run_tesser: Run, tmp_path: Path) -> None:
    outcome = run_tesser("plan", unheard_of(tmp_path), "-w", 1 << 12, "--preset", "tofu", "-o", tmp_path / "chain.plan")
    assert outcome.returncode == 2 and "nothing is left that can be cut for 4096 workers" in outcome.stderr


def test_options_of_programs_and_plans_are_not_mixed(captured: Callable, run_tesser: Run, tmp_path: Path) -> None:
    plan(run_tesser, captured("mlp"), tmp_path / "mlp.plan", "--workers", 2)
    outcome = run_tesser("show", tmp_path / "mlp.plan", "--graph")
    assert outcome.returncode == 2 and "is a plan" in outcome.stderr
    outcome = run_tesser("show", captured("mlp"), "--worker", 1)
    assert outcome.returncode == 2 and "is no plan" in outcome.stderr
