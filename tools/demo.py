"""./x demo: an example trained in C++, by two workers after a plan, and in PyTorch, side by side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench import machine
from tools import build, environment
from tools.console import ROOT, Failure, Usage, environment_with, heading, output_of, run

OUTPUT = ROOT / "build" / "demo"
VARIABLES = {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}
WORKERS = 2
LEAST_ACCURACY = 0.97
MEBIBYTE = 2**20
# Of what `tesser show NAME.plan` prints: the sections that begin so.
SHOWN_OF_A_PLAN = ("parameter or batch", "what modules compute", "compared with")


@dataclass
class Run:
    """What a training run said of itself, in the events of docs/formats/events.md."""

    evaluations: list[dict] = field(default_factory=list)
    end: dict = field(default_factory=dict)


def demo(name: str, arguments: list[str]) -> None:
    demos = {"mnist": mnist, "shakespeare": shakespeare}
    if name not in demos:
        raise Usage(f"there is no demo {name}; demos: {', '.join(demos)}")
    if arguments:
        raise Usage(f"./x demo {name} takes no further argument, and was given {arguments[0]}")
    build.build("release", ["tesser"])
    demos[name](ROOT / "examples" / name)


def capture(example: Path) -> Path:
    """Prepares the example's data and captures its step; returns the program."""
    heading(f"preparing the data of {example.relative_to(ROOT)}")
    run([environment.PYTHON, example / "prepare.py"], "read the message above", VARIABLES)
    program = OUTPUT / f"{example.name}.tesser"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    heading(f"capturing {example.relative_to(ROOT)}/step.py as {program.relative_to(ROOT)}")
    command = [build.tesser(), "capture", example / "step.py", "-o", program]
    run(command, "read the message above", VARIABLES)
    run([build.tesser(), "show", program], "read the message above")
    return program


def plan(program: Path) -> Path:
    """Plans the step for the demo's workers and shows the plan's tables."""
    path = OUTPUT / f"{program.stem}.plan"
    heading(f"planning the step for {WORKERS} workers: {path.relative_to(ROOT)}")
    run([build.tesser(), "plan", program, "--workers", str(WORKERS), "-o", path], "read the message above")
    text = output_of([build.tesser(), "show", path])
    if text is None:
        raise Failure(f"tesser show {path} failed\nWhat to do: run it and read its message")
    title, *sections = text.split("\n\n")
    print("\n\n".join([title, *(section for section in sections if section.startswith(SHOWN_OF_A_PLAN))]))
    print(f"\n  all of it, with every transfer: tesser show {path.relative_to(ROOT)}")
    return path


def mnist(example: Path) -> None:
    """Trains on 8,500 images, checks on 1,500, by workers in C++ and then in PyTorch, and compares the two runs epoch
    by epoch."""
    program = capture(example)
    plan_file = plan(program)
    train, check = example / "data" / "train", example / "data" / "check"
    heading(f"training in C++, {WORKERS} workers")
    command = [build.tesser(), "train", program, "--data", train, "--evaluate", check, "--epochs", "10", "--json"]
    ours = follow([*command, "--plan", plan_file])
    ours.end["resident_after_imports_bytes"] = machine.loaded_bytes(build.tesser(), os.environ)
    heading("memory of each worker")
    print(memory_table(ours.end["workers"], predicted_alone(program)))
    heading("training in PyTorch")
    theirs = follow([environment.PYTHON, example / "pytorch.py"])
    heading("tesser and PyTorch")
    print(comparison(ours, theirs))
    accuracy = ours.evaluations[-1]["results"]["accuracy"]
    if accuracy < LEAST_ACCURACY:
        raise Failure(
            f"tesser reached {accuracy:.2%} on the held-back images, and the demo promises {LEAST_ACCURACY:.0%}"
        )


def predicted_alone(program: Path) -> int:
    """Bytes that one worker would need for the whole step."""
    text = output_of([build.tesser(), "show", program, "--json"])
    if text is None:
        raise Failure(f"tesser show {program} --json failed\nWhat to do: run it and read its message")
    return json.loads(text)["memory"]["peak_bytes"]


def memory_table(workers: list[dict], alone: int) -> str:
    """Peak of the tensors of each worker, foreseen before the first step and measured at the end."""
    lines = [f"  {'worker':>6}  {'predicted':>10}  {'measured':>10}"]
    for number, worker in enumerate(workers):
        sizes = [f"{worker[key] / MEBIBYTE:.1f} MiB" for key in ("predicted_peak_bytes", "peak_bytes")]
        lines.append(f"  {number:>6}  {sizes[0]:>10}  {sizes[1]:>10}")
    return "\n".join([*lines, f"  one worker alone would need {alone / MEBIBYTE:.1f} MiB"])


def shakespeare(example: Path) -> None:
    """Trains a small GPT on characters and prints what it writes."""
    program = capture(example)
    train, check = example / "data" / "train", example / "data" / "check"
    checkpoints = OUTPUT / "shakespeare-checkpoints"
    shutil.rmtree(checkpoints, ignore_errors=True)
    heading("training in C++")
    steps = ["--steps", "1800", "--evaluate", check, "--checkpoint", checkpoints]
    run([build.tesser(), "train", program, "--data", train, *steps], "read the message above")
    heading("generated text")
    text = ["--vocabulary", train, "--prompt", "ROMEO:\n", "--length", "600", "--temperature", "0.8"]
    run([build.tesser(), "generate", program, "--weights", checkpoints, *text], "read the message above")


def follow(command: list[str | Path]) -> Run:
    """Runs a training whose events stand on its standard output, and prints a line an epoch."""
    result = Run()
    for event in events(command):
        match event["event"]:
            case "evaluation":
                result.evaluations.append(event)
                loss, accuracy = event["results"]["loss"], event["results"]["accuracy"]
                print(f"  epoch {event['epoch']:2}  loss {loss:.4f}  accuracy {accuracy:.2%}", flush=True)
            case "end":
                result.end = event
    if not result.evaluations or not result.end:
        raise Failure(f"{command[0]} ended without telling its results")
    return result


def events(command: list[str | Path]) -> Iterator[dict]:
    sys.stdout.flush()
    words = [str(word) for word in command]
    with subprocess.Popen(
        words, cwd=ROOT, env=environment_with(VARIABLES), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode != 0:
        raise Failure(
            f"training ended with exit code {process.returncode}: {' '.join(words)}\nWhat to do: read the message above"
        )


def comparison(ours: Run, theirs: Run) -> str:
    """A table of both runs: loss and accuracy on the held-back images by epoch, then speed and memory."""
    heads = ("loss tesser", "PyTorch", "accuracy tesser", "PyTorch")
    lines = ["          " + "  ".join(f"{head:>15}" for head in heads)]
    for left, right in zip(ours.evaluations, theirs.evaluations, strict=True):
        cells = [f"{run['results']['loss']:.6f}" for run in (left, right)]
        cells += [f"{run['results']['accuracy']:.2%}" for run in (left, right)]
        lines.append(f"  epoch {left['epoch']:2}" + "  ".join(f"{cell:>15}" for cell in cells))
    images = [f"{run.end['samples_per_second']:,.0f}" for run in (ours, theirs)]
    peaks = [run.end["resident_peak_bytes"] / MEBIBYTE for run in (ours, theirs)]
    loaded = [run.end["resident_after_imports_bytes"] / MEBIBYTE for run in (ours, theirs)]
    memory = [f"{peak:,.0f} MiB, {peak - libraries:,.0f}" for peak, libraries in zip(peaks, loaded, strict=True)]
    return "\n".join(
        [
            *lines,
            "",
            f"  images a second in training: tesser {images[0]}, PyTorch {images[1]}",
            f"  peak memory of a process: each worker {memory[0]} of them above its libraries; PyTorch {memory[1]}",
        ]
    )
