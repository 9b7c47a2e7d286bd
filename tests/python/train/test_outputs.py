"""Where a command writes: links, devices, pipes and directories stay what they are, and a result that could not be
written is an error with one message."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

import tesser
from tests.python.commands import SECONDS, command, run_environment, run_tesser, train
from tests.python.train.export_step import differences, export_step

STEPS = ["--steps", 2, "--no-shuffle"]


def shell(line: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash in which "$@" is the tesser command with these words."""
    return subprocess.run(
        ["bash", "-c", line, "bash", *command(*words)], capture_output=True, text=True, timeout=SECONDS,
        env=run_environment(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of export_step() after two steps, in a directory that is reached through a link."""
    from safetensors.torch import save_file

    directory = tmp_path_factory.mktemp("export")
    step = export_step()
    tesser.capture(step, directory / "step.tesser")
    (directory / "data").mkdir()
    save_file(step.batch, directory / "data" / "data.safetensors")
    (directory / "check points ä").mkdir()
    (directory / "link").symlink_to("check points ä")
    run = train(directory / "step.tesser", directory / "data", *STEPS, "--checkpoint", directory / "link" / "new")
    assert run.code == 0, run.errors
    assert (directory / "link").is_symlink()
    return directory / "check points ä" / "new"


def test_an_export_is_what_state_dict_has(checkpoint: Path, tmp_path: Path) -> None:
    assert run_tesser("export", checkpoint, "-o", tmp_path / "weights").code == 0
    assert differences(tmp_path / "weights", steps=2) == []
    # Moved, it goes on, and may be cut over several workers.
    moved = shutil.copytree(checkpoint, tmp_path / "moved")
    words = ["--no-shuffle", "--checkpoint", moved, "--resume", "--steps", 3]
    directory = checkpoint.parents[1]
    run = train(directory / "step.tesser", directory / "data", *words, "--workers", 2)
    assert run.code == 0, run.errors
    assert run_tesser("export", moved, "-o", tmp_path / "more").code == 0
    assert differences(tmp_path / "more", steps=3) == []


def test_links_are_written_through(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    for name in ("link", "dangling"):
        assert run_tesser("export", checkpoint, "-o", tmp_path / name).code == 0
        assert (tmp_path / name).is_symlink()
    assert differences(tmp_path / "file", steps=2) == differences(tmp_path / "new", steps=2) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file", "link", "new"]


def test_devices_stay_and_tell(checkpoint: Path, tmp_path: Path) -> None:
    assert run_tesser("export", checkpoint, "-o", "/dev/null").code == 0
    full = run_tesser("export", checkpoint, "-o", "/dev/full")
    assert full.code == 1
    assert full.errors == "tesser export: error: /dev/full: cannot write: No space left on device\n"
    for device in ("/dev/null", "/dev/full"):
        assert stat.S_ISCHR(os.stat(device).st_mode)


def test_a_directory_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for words in (["export", "no-checkpoint"], ["plan", "no-program", "-w", 2]):
        run = run_tesser(*words, "-o", tmp_path / "kept")
        assert run.code == 2
        assert f"{tmp_path / 'kept'}: is a directory, expected the name of a file" in run.errors
        run = run_tesser(*words, "-o", tmp_path / "none" / "file")
        assert run.code == 2 and "its directory does not exist" in run.errors
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


@pytest.mark.parametrize("line", ['"$@" -o /dev/stdout', '"$@" -o >(cat)', '"$@" -o /dev/stdout > "$FILE"'])
def test_standard_output_and_pipes_get_the_results_alone(checkpoint: Path, tmp_path: Path, line: str) -> None:
    # The shell waits for no process behind >(), so that a pipe says when all of it has come.
    piped = line if "FILE" in line else f'{{ {line}; }} | cat > "$FILE"'
    file = tmp_path / "weights"
    done = subprocess.run(
        ["bash", "-c", piped, "bash", *command("export", checkpoint)], env=run_environment(FILE=str(file)),
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if "cat)" in line:  # the summary is in the same pipe, behind or before the file
        assert b" tensors, " in file.read_bytes()
    else:
        assert differences(file, steps=2) == []
        assert " tensors, " in done.stderr


def test_a_lowered_program_and_a_capture_behind_links(classifier: Path, tmp_path: Path) -> None:
    assert run_tesser("plan", classifier, "-w", 2, "-o", tmp_path / "a.plan").code == 0
    (tmp_path / "link").symlink_to("there")
    for _ in range(2):  # anew, then in place of the first
        for name in ("link", "plain.lowered/"):
            run = run_tesser("lower", tmp_path / "a.plan", "-o", f"{tmp_path}/{name}")
            assert run.code == 0, run.errors
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "worker-1.json").is_file()
    (tmp_path / "step").symlink_to("step.tesser")
    for _ in range(2):
        tesser.capture(export_step(), tmp_path / "step", state=False)
    assert (tmp_path / "step").is_symlink() and (tmp_path / "step.tesser" / "program.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.plan", "link", "plain.lowered", "step", "step.tesser", "there",
    ]  # fmt: skip
    with pytest.raises(tesser.CaptureError, match="/dev/null exists and is no program directory"):
        tesser.capture(export_step(), "/dev/null")


def test_a_trace_that_cannot_be_written_is_refused_before_the_first_step(
    classifier: Path, data: Path, tmp_path: Path
) -> None:
    words = ["--steps", 2, "--workers", 2, "--checkpoint", tmp_path / "run"]
    refused = train(classifier, data / "train", *words, "--trace", tmp_path / "none" / "trace")
    assert refused.code == 2 and not refused.of("step") and "its directory does not exist" in refused.errors
    full = train(classifier, data / "train", *words, "--trace", "/dev/full")
    assert full.code == 1 and len(full.of("step")) == 2
    assert "/dev/full: cannot write: No space left on device; " in full.errors
    assert "step-00000002 is complete" in full.errors


@pytest.fixture(scope="module")
def printing(classifier: Path, data: Path) -> dict[str, list[object]]:
    """A command of each kind that prints."""
    return {
        "show": ["show", classifier],
        "show --json": ["show", classifier, "--json"],
        "plan": ["plan", classifier, "-w", 2, "-o", "/dev/null"],
        "plan --json": ["plan", classifier, "-w", 2, "-o", "/dev/null", "--json"],
        "train": ["train", classifier, "--data", data / "train", "--steps", 2],
        "train --json": ["train", classifier, "--data", data / "train", "--steps", 2, "--json"],
        "tdl explain": ["tdl", "explain", "aten::mm"],
        "completion": ["completion", "bash"],
        "hub recommend": ["hub", "recommend", "--model", "1MB", "--workers", 2, "--bandwidth", "1GB"],
        "hub serve": ["hub", "serve", "--listen", "127.0.0.1:0"],
        "server": ["server", "--data", "DATA", "--listen", "127.0.0.1:0", "--learner-users", "same"],
        "help": ["train", "--help"],
        "version": ["--version"],
    }


NAMES = [
    "show", "show --json", "plan", "plan --json", "train", "train --json", "tdl explain", "completion",
    "hub recommend", "hub serve", "server", "help", "version",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_full_standard_output_is_an_error(name: str, printing: dict, tmp_path: Path) -> None:
    words = [tmp_path / "server" if word == "DATA" else word for word in printing[name]]
    done = shell('"$@" > /dev/full', *words)
    assert done.returncode == 1, done.stderr
    assert "standard output: cannot write: No space left on device" in done.stderr
    assert "terminate" not in done.stderr


@pytest.mark.parametrize("name", ["show", "train"])
def test_a_closed_standard_output_is_an_error_and_no_files(name: str, printing: dict, tmp_path: Path) -> None:
    done = shell('"$@" >&-', *printing[name])
    assert done.returncode == 1 and "standard output: cannot write: Bad file descriptor" in done.stderr
    written = shell('"$@" >&-', *printing["plan"][:-1], tmp_path / "a.plan")
    assert written.returncode == 1
    assert (tmp_path / "a.plan").read_text().startswith('{\n"format":"tesser.plan"')


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_standard_error_that_takes_nothing_changes_nothing(
    redirection: str, printing: dict, classifier: Path, data: Path, tmp_path: Path
) -> None:
    for workers in (1, 2):
        words = ["--workers", workers, "--checkpoint", tmp_path / str(workers), "--resume"]  # --resume gives a note
        done = shell(f'"$@" {redirection}', *printing["train"], *words)
        assert done.returncode == 0 and "done after step 2" in done.stdout
    assert shell(f'"$@" {redirection}', "export", tmp_path / "none", "-o", "/dev/null").returncode == 2
    assert shell(f'"$@" {redirection}', "capture", tmp_path / "none.py").returncode == 2


@pytest.mark.parametrize("words", [[], ["--json"], ["--workers", 2]])
def test_a_closed_pipe_ends_the_output_and_not_the_run(
    words: list[object], classifier: Path, data: Path, tmp_path: Path
) -> None:
    arguments = ["train", classifier, "--data", data / "train", "--steps", 300, "--checkpoint", tmp_path / "run"]
    done = shell('"$@" | head -1; exit ${PIPESTATUS[0]}', *arguments, *words)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert (tmp_path / "run" / "step-00000300" / "manifest.json").is_file()


def test_a_closed_pipe_ends_a_command_that_only_prints(classifier: Path) -> None:
    done = shell('"$@" | true; exit ${PIPESTATUS[0]}', "show", classifier, "--graph")
    assert done.returncode in (0, 128 + 13) and done.stderr == ""


def test_a_capture_prints_or_says_why_not(tmp_path: Path) -> None:
    (tmp_path / "line.py").write_text(
        "import torch, tesser\n"
        "def step():\n"
        "    model = torch.nn.Linear(2, 1)\n"
        "    return tesser.Step(model, lambda m, b: m(b['x']).mean(), {'x': torch.zeros(4, 2)},\n"
        "                       torch.optim.SGD(model.parameters(), lr=0.1))\n"
    )
    words = ["capture", tmp_path / "line.py", "-o", tmp_path / "line.tesser"]
    full = shell('"$@" > /dev/full', *words)
    assert full.returncode == 1
    assert full.stderr == "tesser capture: standard output: cannot write: No space left on device\n"
    closed = shell('"$@" | true; exit ${PIPESTATUS[0]}', *words)
    assert closed.returncode == 0 and closed.stderr == ""
    assert (tmp_path / "line.tesser" / "program.json").is_file()


def test_a_full_disk_for_the_log_keeps_the_run(classifier: Path, data: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            command("train", classifier, "--data", data / "train", "--steps", 5, "--checkpoint", tmp_path / "run"),
            stdout=full, stderr=subprocess.PIPE, text=True, env=run_environment(),
        )  # fmt: skip
        errors = process.communicate(timeout=SECONDS)[1]
    assert process.returncode == 1
    first, last = errors.splitlines()
    assert "the run goes on without it and ends with exit code 1" in first
    assert last == "tesser train: error: standard output: cannot write: No space left on device"
    assert (tmp_path / "run" / "step-00000005" / "manifest.json").is_file()
