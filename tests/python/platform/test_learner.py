"""`tesser learner`: how a command is started, what it gets, how it ends, and what is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tesser
from tests.python.commands import command, train, write_classifier_data
from tests.python.distributed.runs import weights
from tests.python.platform.learner_job import LearnerJob, collector, wait_for
from tests.python.train.train_steps import classifier_step

SEEDS = int(os.environ.get("TESSER_FAULT_SEEDS", "2"))


@pytest.fixture
def make_job(tmp_path):
    jobs = []

    def make(words: list[str] | str, **members: object) -> LearnerJob:
        words = ["sh", "-c", words] if isinstance(words, str) else words
        jobs.append(LearnerJob(tmp_path / f"job-{len(jobs)}-{os.getpid()}", words, **members))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


def test_output_metrics_and_exit(make_job):
    job = make_job(
        "echo out; echo err >&2; for i in 1 2 3; do echo step $i/3 loss 0.$i; done; printf end",
        metrics=[{"type": "regex", "pattern": r"step (?<step>\d+)/(?<steps>\d+) loss (?<loss>\S+)", "path": ""}],
    )
    process = job.start()
    up = job.up()
    assert up["pid"] == process.pid and up["addresses"] and 20000 <= up["port"] <= 32000
    assert not job.lines(), "a command was started before all learners were there"
    job.go()
    exit = job.ended()
    assert process.wait(10) == 0
    assert (exit["code"], exit["signal"], exit["class"], exit["lines"]) == (0, None, "", 6), exit
    assert exit["log_complete"] and not exit["stopped"] and exit["started"] <= exit["time"]
    assert job.texts() == ["out", "err", "step 1/3 loss 0.1", "step 2/3 loss 0.2", "step 3/3 loss 0.3", "end"]
    metrics = [json.loads(line) for line in (job.root / "metrics" / "0.jsonl").read_text().splitlines()]
    assert [(each["step"], each["name"], each["value"]) for each in metrics] == [
        (1, "loss", 0.1), (2, "loss", 0.2), (3, "loss", 0.3),
    ]  # fmt: skip
    progress = json.loads((job.root / "metrics" / "progress.json").read_text())
    assert (progress["step"], progress["steps"], progress["seconds_left"]) == (3, 3, 0.0)
    assert not list((job.root / "logs" / "0").glob("raw-*"))
    # It is done: another process of this learner starts nothing.
    assert job.start().wait(10) == 0
    assert job.ended() == exit and len(job.texts()) == 6


@pytest.mark.parametrize(
    ("words", "code", "number", "kind", "reason"),
    [
        ("exit 3", 3, None, "U", "the command ended with code 3"),
        ("kill -SEGV $$", None, 11, "U", "SIGSEGV"),
        ("kill -KILL $$", None, 9, "S", "SIGKILL"),
        (["pyhton", "x"], None, None, "U", "command not found: 'pyhton'"),
        (["run.sh"], None, None, "U", "./run.sh"),
        (["./run.sh"], None, None, "U", "not executable"),
        (["./no_interpreter"], None, None, "U", "#! line"),
        (["./plain"], None, None, "U", "has no #! line"),
    ],
)
def test_how_commands_fail(make_job, words, code, number, kind, reason):
    job = make_job(words)
    (job.root / "code" / "run.sh").write_text("#!/bin/sh\n")
    for name, text in (("no_interpreter", "#!/no/such/program\n"), ("plain", "echo hello\n")):
        (job.root / "code" / name).write_text(text)
        (job.root / "code" / name).chmod(0o755)
    exit = job.run()
    assert (exit["code"], exit["signal"], exit["class"]) == (code, number, kind), exit
    assert reason in exit["reason"], exit


def test_environment(make_job):
    job = make_job(
        "env -0 | tr '\\0' '\\n'; pwd",
        environment={"MINE": "a", "KEY": "x-${PASSWORD}"},
        each={"millicpus": 3000, "memory_bytes": 0, "accelerators": {"v100": 2}},
    )
    (job.root / "learner-secrets.json").write_text('{"PASSWORD": "secret"}')
    job.start(SERVER_SECRET="1", CUDA_VISIBLE_DEVICES="0,1", PYTHONPATH="/server")
    job.go()
    assert job.ended()["code"] == 0
    texts = job.texts()
    variables = dict(text.split("=", 1) for text in texts[:-1])
    root = str(job.root)
    expected = {
        "DATA_DIR": f"{root}/data", "MODEL_DIR": f"{root}/code", "RESULT_DIR": f"{root}/results",
        "LOG_DIR": f"{root}/logs/0/files", "CHECKPOINT_DIR": f"{root}/checkpoints", "JOB_STATE_DIR": f"{root}/state",
        "LEARNER_ID": "0", "NUM_LEARNERS": "1", "GPU_COUNT": "2", "TRAINING_ID": job.root.name, "RANK": "0",
        "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job.up()["port"]), "TESSER_RESTART": "1",
        "TESSER_LEARNER": f"{job.root.name}/1/0", "OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "0,1",
        "MINE": "a", "KEY": "x-secret",
    }  # fmt: skip
    assert {name: variables.get(name) for name in expected} == expected
    assert not {"SERVER_SECRET", "PYTHONPATH", "TESSER_RANK"} & variables.keys()
    for name in ("DATA_DIR", "RESULT_DIR", "LOG_DIR", "CHECKPOINT_DIR", "JOB_STATE_DIR"):
        assert Path(variables[name]).is_dir()
    assert texts[-1] == f"{root}/code"


def test_stop_before_go(make_job):
    job = make_job("echo never")
    job.start()
    job.up()
    job.stop()
    exit = job.ended()
    assert exit["started"] is None and exit["stopped"] and exit["class"] == "S"
    assert not job.texts()


def test_stop_ends_softly_and_then_hard(make_job):
    soft = make_job("trap 'echo saved; exit 0' TERM; echo begun; while :; do sleep 0.05; done")
    hard = make_job("trap '' TERM; echo begun; while :; do sleep 0.05; done")
    for job in (soft, hard):
        job.start()
        job.go()
        wait_for(lambda job=job: job.texts() == ["begun"], "no line")
        job.stop()
    exit = soft.ended()
    assert (exit["code"], exit["class"], exit["stopped"]) == (0, "S", True) and soft.texts()[-1] == "saved"
    exit = hard.ended()
    assert (exit["signal"], exit["class"], exit["stopped"]) == (9, "S", True)


def test_who_stops_a_command_may_have_less_time_than_its_grace(make_job):
    job = make_job("trap '' TERM; echo begun; while :; do sleep 0.05; done", grace_seconds=60)
    job.start()
    job.go()
    wait_for(lambda: job.texts() == ["begun"], "no line")
    job.stop('{"grace_milliseconds": 50000}')
    time.sleep(0.5)
    assert not (job.directory() / "exit-0.json").exists()
    job.stop('{"grace_milliseconds": 100}')
    exit = job.ended()
    assert (exit["signal"], exit["class"], exit["stopped"]) == (9, "S", True)


def test_a_learner_that_is_told_to_end_ends_its_command(make_job):
    job = make_job("trap 'echo saved; exit 7' TERM; echo begun; while :; do sleep 0.05; done")
    process = job.start()
    job.go()
    wait_for(lambda: job.texts() == ["begun"], "no line")
    process.send_signal(signal.SIGTERM)
    exit = job.ended()
    assert (exit["code"], exit["stopped"]) == (7, True) and job.texts()[-1] == "saved"
    assert process.wait(10) == 0


# One that left its parents, one that left its session too, one that has no environment of ours, one that is paused.
DESCENDANTS = """
(sleep 1000 &)
(setsid sleep 1000 &)
(setsid env -i /bin/sleep 1000 &)
(sh -c 'trap "" TERM; kill -STOP $$; sleep 1000' &)
echo begun
"""


@pytest.mark.parametrize("how", ["ends", "stopped"])
def test_no_descendant_is_left(make_job, how):
    job = make_job(DESCENDANTS + ("sleep 0.3" if how == "ends" else "sleep 1000"))
    process = job.start()
    job.go()
    wait_for(lambda: job.texts() == ["begun"], "no line")
    tree = descendants(process.pid)
    if how == "stopped":
        job.stop()
    exit = job.ended()
    assert exit["stopped"] == (how == "stopped")
    assert not job.tagged() and len(tree) >= 4
    assert not [pid for pid in tree if Path(f"/proc/{pid}").exists() and pid != process.pid]


def descendants(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def test_a_killed_learner_takes_its_command_with_it(make_job):
    job = make_job("setsid sleep 1000 & sleep 1000 & echo begun; sleep 1000")
    process = job.start()
    job.go()
    wait_for(lambda: job.texts() == ["begun"], "no line")
    process.kill()
    process.wait()
    wait_for(lambda: not job.tagged(), "the command lives on", 5)
    # Another process of the same attempt does not start the command a second time.
    assert job.start().wait(10) == 0
    exit = job.ended()
    assert exit["class"] == "S" and "earlier process" in exit["reason"] and job.texts() == ["begun"]


def test_two_processes_of_one_learner(make_job):
    job = make_job("echo once")
    job.start()
    job.up()
    second = job.start()
    assert second.wait(10) == 1 and "lives" in job.said()
    job.go()
    assert job.ended()["code"] == 0 and job.texts() == ["once"]


def test_a_flood_takes_bounded_room(make_job):
    job = make_job("timeout 1.5 yes 'a line that floods the log of a learner'; echo; echo last", log_bytes=1 << 20)
    process = job.start()
    job.go()
    most = 0
    resident = 0
    while not (job.directory() / "exit-0.json").exists():
        try:
            files = list((job.root / "logs" / "0").iterdir())
            most = max(most, sum(path.stat().st_blocks * 512 for path in files))
            status = Path(f"/proc/{collector(process.pid)}/status").read_text()
            resident = max(resident, int(status.split("VmRSS:")[1].split()[0]))
        except (OSError, IndexError):  # gone meanwhile
            pass
        time.sleep(0.02)
    assert job.ended()["code"] == 0
    kept = sum(path.stat().st_size for path in (job.root / "logs" / "0").glob("lines-*"))
    assert kept <= 1 << 20 and "last" in job.texts()
    # A command is not held up, so what it writes between two looks is there beside what is kept.
    assert most < 300 << 20 and 0 < resident < 64 << 10, (most, resident)


WRITER = """
import os, sys, time
attempt, lines = os.environ["TESSER_RESTART"], int(sys.argv[1])
done = os.open(os.path.join(os.environ["JOB_STATE_DIR"], "written-" + attempt), os.O_CREAT | os.O_WRONLY)
for number in range(1, lines + 1):
    os.write(1 + number % 2, f"{attempt}:{number}\\n".encode())
    os.pwrite(done, str(number).encode(), 0)
    if number % 50 == 0:
        time.sleep(0.002)
"""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_line_is_there_once_whatever_dies(make_job, seed):
    """SIGKILL of collector, command and learner at random points of several attempts."""
    print(f"seed {seed}")
    random_numbers = random.Random(seed)
    lines = 8000
    job = make_job([sys.executable, "write.py", str(lines)])
    (job.root / "code" / "write.py").write_text(WRITER)
    for attempt in range(1, 5):
        job.attempt = attempt
        process = job.start()
        job.go()
        victims = ["collector"] * random_numbers.randint(1, 4)
        if attempt < 4:
            victims += [random_numbers.choice(["learner", "command"])]
        for victim in victims:
            time.sleep(random_numbers.uniform(0, 0.25))
            if victim == "learner":
                process.kill()
                process.wait()
                wait_for(lambda: not job.tagged(), "the command lives on", 10)
            elif victim == "collector" and (pid := collector(process.pid)) is not None:
                kill(pid)
            elif victim == "command":
                for pid in job.tagged() - {process.pid, collector(process.pid)}:
                    kill(pid)
        if "learner" not in victims:
            job.ended()
    assert job.ended()["code"] == 0
    seen: dict[int, list[int]] = {}
    all_lines = job.lines()
    assert [line.sequence for line in all_lines] == list(range(1, len(all_lines) + 1))
    for line in all_lines:
        attempt, number = line.text.split(":")
        assert int(attempt) == line.attempt
        seen.setdefault(line.attempt, []).append(int(number))
    assert seen[4] == list(range(1, lines + 1))
    for numbers in seen.values():
        assert numbers == list(range(1, len(numbers) + 1))
    for path in (job.root / "state").glob("written-*"):
        assert len(seen.get(int(path.name.split("-")[1]), [])) >= int(path.read_text() or 0)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_torchrun_style_learners_meet(make_job):
    """torch.distributed's environment: two learners add their ranks up, over the port kept for rank 0."""
    code = textwrap.dedent("""
        import torch, torch.distributed as distributed
        distributed.init_process_group("gloo")
        value = torch.tensor([distributed.get_rank() + 1])
        distributed.all_reduce(value)
        print("sum", value.item())
        distributed.destroy_process_group()
    """)
    job = make_job([sys.executable, "-c", code], learners=2)
    assert job.run()["code"] == 0, job.texts()
    for rank in range(2):
        assert job.texts(rank)[-1] == "sum 3"


def test_a_tesser_program_of_two_workers(make_job, tmp_path):
    """The weights are those of `tesser train --workers 2`; a step file is captured; metrics and progress are there."""
    tesser.capture(classifier_step(), tmp_path / "plain.tesser")
    write_classifier_data(tmp_path / "data", 64, 0)
    words = ("--epochs", 2, "--checkpoint", tmp_path / "plain", "--workers", 2)
    assert train(tmp_path / "plain.tesser", tmp_path / "data", *words).code == 0
    program = {
        "program": "step.py", "data": "data", "workers": 2, "replicas": None, "preset": "",
        "arguments": ["--epochs", "2"],
    }  # fmt: skip
    job = make_job([], learners=2, program=program)
    source = Path(classifier_step.__code__.co_filename).read_text()
    (job.root / "code" / "step.py").write_text(source + "\n\ndef step():\n    return classifier_step()\n")
    shutil.copytree(tmp_path / "data", job.root / "code" / "data")
    exit = job.run()
    assert exit["code"] == 0, (exit, job.texts(0), job.texts(1))
    assert job.ended(1)["code"] == 0
    expected = weights(tmp_path / "plain")
    given = load_file(job.root / "results" / "weights.safetensors")
    assert given.keys() == expected.keys()
    assert all(torch.equal(given[name], expected[name]) for name in expected)
    progress = json.loads((job.root / "metrics" / "progress.json").read_text())
    assert progress["step"] == progress["steps"] > 0
    names = {json.loads(line)["name"] for line in (job.root / "metrics" / "0.jsonl").read_text().splitlines()}
    assert {"loss", "seconds"} <= names


def test_wrong_use(tmp_path):
    def run(*words: object, **variables: str) -> subprocess.CompletedProcess:
        environment = {name: value for name, value in os.environ.items() if name not in ("TESSER_RANK", "SLURM_PROCID")}
        return subprocess.run(
            command("learner", *words), capture_output=True, text=True, env=environment | variables, timeout=30
        )

    assert run("--volume", tmp_path, "--attempt", 1).returncode == 2
    assert "SLURM_PROCID is 'x'" in run("--volume", tmp_path, "--attempt", 1, SLURM_PROCID="x").stderr
    missing = run("--volume", tmp_path, "--attempt", 1, "--rank", 0)
    assert missing.returncode == 2 and "job.json" in missing.stderr
    assert run("--volume", tmp_path / "none", "--attempt", 1, "--rank", 0).returncode != 0


def test_the_token_of_a_run_is_its_owners_alone(make_job):
    program = {"program": "p.tesser", "data": "d", "workers": None, "replicas": None, "preset": "", "arguments": []}
    job = make_job([], learners=2, program=program)
    job.start(0)
    job.up(0)
    token = job.directory() / "run-token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600 and len(token.read_text()) == 32
    job.stop()
    job.ended(0)
