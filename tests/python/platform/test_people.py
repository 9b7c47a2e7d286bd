"""The people's commands and the Python client against a running server."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tesser.client import Client, ClientError, JobFailed, OutOfReach
from tests.python.commands import binary
from tests.python.platform.server_process import Server

SECONDS = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("people") / "data").start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return (server.data / "admin.token").read_text().strip()


@pytest.fixture()
def client(server: Server, token: str) -> Client:
    return Client(f"http://127.0.0.1:{server.port}", token)


@pytest.fixture()
def tesser(server: Server, token: str, tmp_path: Path):
    """Runs a command as somebody who has logged in by variables."""

    def run(*words: object, code: int = 0, given: str = "", **variables: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TESSER_")}
        environment |= {
            "HOME": str(tmp_path),
            "TESSER_SERVER": f"http://127.0.0.1:{server.port}",
            "TESSER_TOKEN": token,
        }
        environment = {name: value for name, value in (environment | variables).items() if value}
        words = [str(binary()), *(str(word) for word in words)]
        done = subprocess.run(words, input=given, capture_output=True, text=True, env=environment, timeout=SECONDS)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stdout + done.stderr

    return run


@pytest.fixture()
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "run.sh").write_text(
        'for i in 1 2 3; do echo "step $i/3 loss 0.$i"; done\ncp run.sh $RESULT_DIR/out\n'
    )
    (directory / "large.bin").write_bytes(b"x" * 1000)
    (directory / ".tesserignore").write_text("*.bin\n")
    return directory


def manifest(directory: Path, command: str = "sh run.sh", **more: object) -> Path:
    path = directory / "job.yaml"
    metrics = [{"type": "regex", "pattern": r"step (?<step>\d+)/(?<steps>\d+) loss (?<loss>[0-9.]+)"}]
    path.write_text(json.dumps({"name": "people", "command": command, "metrics": metrics} | more))
    return path


def test_submit_follow_and_all_that_comes_after(tesser, code: Path, tmp_path: Path) -> None:
    output = tesser("submit", manifest(tmp_path), code, "--follow")
    job, *lines = output.splitlines()
    assert lines == ["step 1/3 loss 0.1", "step 2/3 loss 0.2", "step 3/3 loss 0.3"]
    assert tesser("logs", job).splitlines() == lines
    assert [json.loads(line)["text"] for line in tesser("logs", job, "--follow", "--json").splitlines()] == lines
    losses = [json.loads(line) for line in tesser("metrics", job, "--name", "loss", "--json").splitlines()]
    assert [(each["step"], each["value"]) for each in losses] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    events = json.loads(tesser("metrics", job, "--tensorboard", tmp_path / "runs", "--follow", "--json"))
    assert events == {"directory": str(tmp_path / "runs"), "metrics": 3}
    assert len(list((tmp_path / "runs" / "learner-0").glob("*tfevents*"))) == 1
    assert json.loads(tesser("status", job, "--json"))["state"] == "COMPLETED"
    shown = tesser("status", job)
    assert f"{job}  COMPLETED" in shown and "DOWNLOADING" in shown
    assert job in tesser("list") and job in tesser("list", "--ids").split()
    assert job in [each["id"] for each in json.loads(tesser("list", "--json", "--state", "COMPLETED"))["jobs"]]
    tar = tmp_path / "results.tar"
    tesser("download", job, "-o", tar)
    with tarfile.open(tar) as archive:
        assert archive.extractfile("out").read() == (code / "run.sh").read_bytes()
    tesser("download", job, "--definition", "-o", tar)
    with tarfile.open(tar) as archive:
        assert "large.bin" not in archive.getnames() and "run.sh" in archive.getnames()
    tesser("delete", job, "--yes")


EVENTS = [
    {"event": "start", "program": "p", "step": 4, "until_step": 9, "samples": 30, "batch_size": 5, "seed": 1,
     "predicted_peak_bytes": 2048, "resumed_from": "/c/4"},
    {"event": "step", "step": 7, "epoch": 2, "loss": 0.123456, "metrics": {"accuracy": 1, "lost": None}},
    {"event": "evaluation", "step": 9, "epoch": 1, "results": {"loss": None}, "samples": 30},
    {"event": "checkpoint", "step": 9, "path": "/c/9", "seconds": 0.25, "bytes": 2048},
    {"event": "note", "message": "a note"},
    {"event": "end", "interrupted": True, "step": 9, "steps": 4, "seconds": 62.0, "samples_per_second": 5.25,
     "final_loss": 0.5, "peak_bytes": 1024},
    {"event": "error", "message": "the disk is full", "exit_code": 1},
    {"event": "step", "step": 7},
    {"event": "another"},
]  # fmt: skip
WORDS = [
    "p: 30 samples, batch 5, steps 5 to 9, seed 1, predicted peak memory 2.0 KiB, resumed from /c/4",
    "epoch 2  step 7  loss 0.1235  accuracy 1  lost not finite",
    "epoch 1, step 9: evaluation:  loss not finite (30 samples)",
    "checkpoint /c/9 (2.0 KiB, 0.2 s)",
    "a note",
    "stopped after step 9, loss 0.5: 4 steps in 1:02, 5.2 samples/s, peak memory 1.0 KiB",
    "error: the disk is full",
]


def test_events_of_a_program_are_shown_in_words(tesser, tmp_path: Path) -> None:
    code = tmp_path / "events"
    code.mkdir()
    raw = [json.dumps(event, separators=(",", ":")) for event in EVENTS]
    (code / "events").write_text("\n".join(raw) + "\n")
    job, *lines = tesser("submit", manifest(tmp_path, "cat events"), code, "--follow").splitlines()
    assert lines == tesser("logs", job).splitlines() == WORDS + raw[len(WORDS) :]
    assert tesser("logs", job, "--raw").splitlines() == raw
    assert [json.loads(line)["text"] for line in tesser("logs", job, "--json").splitlines()] == raw


def test_the_outcome_of_a_job_is_that_of_follow(tesser, tmp_path: Path) -> None:
    output = tesser("submit", manifest(tmp_path, "echo broken; exit 3", restarts=0), "--follow", code=1)
    assert "broken" in output and "FAILED" in output


def test_halt_and_resume(tesser, tmp_path: Path) -> None:
    path = manifest(
        tmp_path, "test -e $JOB_STATE_DIR/second && exit 0; touch $JOB_STATE_DIR/second; sleep 100", grace=1
    )
    job = tesser("submit", path).strip()
    tesser("halt", job)
    assert "HALTED" in tesser("status", job, "--follow", code=1)
    tesser("resume", job)
    tesser("halt", job)
    tesser("status", job, "--follow", code=1)
    tesser("delete", job, "-y")


def test_secrets_reach_the_command_and_nothing_else(tesser, server: Server, tmp_path: Path) -> None:
    # The command proves that it has the values without showing them.
    command = (
        'test "$(printf %s "$A$B" | sha256sum | cut -c1-64)" = ' + sha256(b"is ann-secretmarked hunter2").hexdigest()
    )
    path = manifest(tmp_path, command, environment={"A": "is ${MY_SECRET}", "B": {"secret": "marked hunter2"}})
    told = tesser("submit", path, code=2)
    assert "${MY_SECRET} is not set in your environment" in told
    job = tesser("submit", path, "--follow", MY_SECRET="ann-secret").splitlines()[0]
    for shown in (tesser("status", job, "--json"), tesser("logs", job), tesser("list", "--json")):
        assert "hunter2" not in shown and "ann-secret" not in shown
    for file in (server.data / "jobs" / job).rglob("*"):
        if file.is_file() and not file.name.endswith("secrets.json"):
            content = file.read_bytes()
            assert b"hunter2" not in content and b"ann-secret" not in content, file
    secrets = server.data / "jobs" / job / "secrets.json"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600


def test_messages_say_what_to_do(tesser, tmp_path: Path) -> None:
    job = tesser("submit", manifest(tmp_path, "true")).strip()
    assert f"did you mean '{job}'?" in tesser("status", job[:-1] + "_", code=2)
    assert "no server listens" in tesser("list", code=2, TESSER_SERVER="http://127.0.0.1:1")
    assert "`tesser login" in tesser("list", code=2, TESSER_SERVER="", TESSER_TOKEN="")
    assert "does not know this token" in tesser("list", code=2, TESSER_TOKEN="wrong")
    path = tmp_path / "wrong.yaml"
    path.write_text("name: a\ncommand: x\nmemmory: 2GiB\n")
    assert "line 3: 'memmory' is no key of a manifest; did you mean 'memory'?" in tesser("submit", path, code=2)


def test_submit_looks_for_a_programs_files(tesser, server: Server, code: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: p\nprogram: step.py\ndata: data/train\n")
    assert "'program' is 'step.py'" in tesser("submit", path, code=2)
    (code / "step.py").write_text("")
    assert f"{path}: 'data' is 'data/train'" in tesser("submit", path, code, "--check", code=2)
    (code / "data").mkdir()
    (code / "data" / "train").write_bytes(b"x")
    tesser("submit", path, code, "--check")
    # What is left out of the archive is missing all the same, and the server says so.
    (code / ".tesserignore").write_text("data\n")
    assert "'data' is 'data/train'" in tesser("submit", path, code, code=2)
    assert not any((server.data / "incoming").iterdir())


def test_login_keeps_the_token_for_this_user_alone(tesser, server: Server, token: str, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}"
    nobody = {"TESSER_SERVER": "", "TESSER_TOKEN": ""}
    tesser("login", url, given="wrong\n", code=2, **nobody)
    assert "no token was given" in tesser("login", url, given="", code=2, **nobody)
    kept = tmp_path / ".config" / "tesser" / "login.json"
    assert not kept.exists()
    assert "logged in" in tesser("login", url, given=token + "\n", **nobody)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    tesser("list", **nobody)
    # A token is given to its own server alone.
    assert "no server listens" in tesser("list", code=2, TESSER_SERVER="http://127.0.0.1:1", TESSER_TOKEN="")


def test_nodes_and_quota(tesser) -> None:
    assert "NODE" in tesser("nodes") and "4.0 GiB" in tesser("nodes")
    assert {node["name"] for node in json.loads(tesser("nodes", "--json"))["nodes"]} == {"a", "b"}
    assert "teams" in json.loads(tesser("quota", "--json"))
    tesser("team", "add", "vision")
    tesser("quota", "set", "vision", "--cpus", 1.5, "--memory", "2GiB", "--accelerators", "v100:1")
    assert "1.5 cpus, 2.0 GiB, 1 v100" in tesser("quota")
    assert "no team 'none'" in tesser("quota", "set", "none", "--cpus", 1, code=2)
    assert "--memory" in tesser("quota", "set", "vision", "--memory", "much", code=2)
    assert "v100:8" in tesser("quota", "set", "vision", "--accelerators", "v100", code=2)
    assert "no: is being emptied" in tesser("nodes", "drain", "a") + tesser("nodes")
    assert "no node 'c'" in tesser("nodes", "drain", "c", code=2)
    tesser("nodes", "undrain", "a")
    assert "emptied" not in tesser("nodes")
    assert json.loads(tesser("quota", "remove", "vision", "--json"))["quota"] is None
    assert "has no quota" in tesser("quota", "remove", "vision", code=2)
    tesser("team", "remove", "vision")


def test_the_python_client(client: Client, code: Path, tmp_path: Path) -> None:
    job = client.submit(manifest(tmp_path), code)["id"]
    lines = [line["text"] for line in client.logs(job, follow=True)]
    assert lines == ["step 1/3 loss 0.1", "step 2/3 loss 0.2", "step 3/3 loss 0.3"]
    assert client.wait(job, timeout=SECONDS)["state"] == "COMPLETED"
    assert [metric["value"] for metric in client.metrics(job, name="loss")] == [0.1, 0.2, 0.3]
    assert [change["state"] for change in client.history(job)][-1] == "COMPLETED"
    assert job in [each["id"] for each in client.jobs(state="COMPLETED")]
    assert client.download(job, tmp_path / "r.tar") == (tmp_path / "r.tar").stat().st_size > 0
    assert {node["name"] for node in client.nodes()} == {"a", "b"}
    assert client.set_quota("default", cpus=2, accelerators={"v100": 1})["quota"]["millicpus"] == 2000
    assert [team["quota"]["accelerators"] for team in client.quota()] == [{"v100": 1}]
    assert client.remove_quota("default")["quota"] is None
    assert client.drain("a")["is_draining"] and not client.drain("a", False)["is_draining"]
    client.delete(job)


def test_the_python_client_has_one_job_for_a_key_and_tells_failures(client: Client, tmp_path: Path) -> None:
    path = manifest(tmp_path, "exit 3", restarts=0)
    job = client.submit(path, key="once")["id"]
    assert client.submit(path, key="once")["id"] == job
    with pytest.raises(JobFailed, match="FAILED"):
        client.wait(job, timeout=SECONDS)
    with pytest.raises(ClientError, match="line 3: 'memmory' is no key"):
        client.submit("name: a\ncommand: x\nmemmory: 1GiB\n")
    with pytest.raises(ClientError) as missing:
        client.status("no-such-job")
    assert missing.value.status == 404
    with pytest.raises(OutOfReach, match="no server listens"):
        Client("http://127.0.0.1:1", "t").nodes()


def test_the_python_client_needs_nothing_but_python() -> None:
    source = "import sys, tesser.client; assert not {'torch', 'numpy'} & set(sys.modules)"
    python_path = str(Path(__file__).parents[3] / "python")
    subprocess.run([sys.executable, "-S", "-c", source], env={"PYTHONPATH": python_path}, check=True, timeout=SECONDS)


COMPLETED = [
    (["tesser", "su"], "submit"),
    (["tesser", "submit", "--fo"], "--follow"),
    (["tesser", "status", ""], "JOB"),
    (["tesser", "logs", "--follow", "peo"], "JOB"),
]
NAMES = ["command", "option", "job", "job after an option"]


def bash_completes(script: Path, ids: Path, typed: list[str]) -> str:
    words = " ".join(f"'{word}'" for word in typed)
    line = f"source {script}; tesser() {{ cat {ids}; }}; COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _tesser"
    line += '; printf "%s\\n" "${COMPREPLY[@]}"'
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def fish_completes(script: Path, ids: Path, typed: list[str]) -> str:
    line = f"source {script}; function tesser; cat {ids}; end; complete -C '{' '.join(typed)}'"
    return subprocess.run(["fish", "-c", line], capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def zsh_completes(script: Path, ids: Path, typed: list[str]) -> str:
    """What a terminal shows after the tabulator key: zsh completes nowhere else."""
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(
            "zsh", ["zsh", "-f", "-i"], os.environ | {"TERM": "dumb", "PS1": "> ", "ZDOTDIR": str(script.parent)}
        )
    setup = f"autoload -Uz compinit; compinit -u; source {script}; tesser() {{ cat {ids} }}; print rea''dy\n"
    shown = ""
    steps = [("", setup), ("ready\r\n", " ".join(typed) + "\t\t"), (typed[-1], "")]
    try:
        for awaited, keys in steps:
            until = time.monotonic() + SECONDS
            while awaited not in shown:
                assert time.monotonic() < until, shown
                if select.select([terminal], [], [], 0.1)[0]:
                    shown += os.read(terminal, 65536).decode(errors="replace")
            shown = "" if keys else shown
            os.write(terminal, keys.encode())
        while select.select([terminal], [], [], 2)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)
    return shown


@pytest.mark.parametrize(("typed", "expected"), COMPLETED, ids=NAMES)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_jobs(
    tesser, tmp_path: Path, shell: str, typed: list[str], expected: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    job = tesser("submit", manifest(tmp_path, "true")).strip()
    script = tmp_path / "completion"
    script.write_text(tesser("completion", shell))
    ids = tmp_path / "ids"
    ids.write_text(tesser("list", "--ids"))
    complete = {"bash": bash_completes, "zsh": zsh_completes, "fish": fish_completes}[shell]
    assert (job if expected == "JOB" else expected) in complete(script, ids, typed).split()
