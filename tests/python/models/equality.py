"""Trains one step by tesser and by PyTorch from the same state, on the same data and random numbers, and compares them
(docs/exactness.md)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

import tesser
from tests.python.capture.capture_eager import train_eagerly
from tests.python.commands import binary

STEPS = 20
SEED = 5


@dataclass(frozen=True)
class Tolerance:
    """Largest difference: of a loss relative to it, of a tensor's element relative to it plus `absolute`."""

    loss: float
    relative: float
    absolute: float


TOLERANCES = {torch.float32: Tolerance(1e-5, 1e-5, 2e-6), torch.float64: Tolerance(1e-13, 1e-12, 1e-14)}


@dataclass
class Run:
    losses: list[float]
    state: dict[str, Tensor]  # by the names of state_dict()


def write_data(directory: Path, samples: Mapping[str, Tensor]) -> None:
    directory.mkdir()
    for name, tensor in samples.items():
        np.save(directory / f"{name}.npy", tensor.numpy())


def batches(step: tesser.Step, samples: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The samples in their order, in batches of the step's size."""
    size = len(next(iter(step.batch.values())))
    parts = [tensor.split(size) for tensor in samples.values()]
    return [dict(zip(samples, part, strict=True)) for part in zip(*parts, strict=True)]


def train_with_pytorch(step: tesser.Step, samples: Mapping[str, Tensor]) -> Run:
    """Trains the step's own model."""
    losses, _ = train_eagerly(step, batches(step, samples), SEED)
    return Run(losses, {name: tensor.detach().clone() for name, tensor in step.model.state_dict().items()})


def train_with_interpreter(program: Path, step: tesser.Step, samples: Mapping[str, Tensor]) -> Run:
    """The program node by node in PyTorch: tells a fault of capture from one of the runtime."""
    parts = batches(step, samples)
    result = tesser.interpret(program, len(parts), parts, seed=SEED)
    state = dict(result.state)
    for value in tesser.Program.read(program / "program.json").inputs:
        state |= dict.fromkeys(value.aliases or (), state.get(value.name))
    return Run(result.losses, state)


def train_with_tesser(
    program: Path, data: Path, checkpoint: Path, threads: int = 1, steps: int = STEPS, scratch_foreseen: bool = True
) -> Run:
    """The tesser command: train with a checkpoint at the end, and export. `scratch_foreseen` is whether its prediction
    of memory covers what kernels take for themselves."""
    command = [binary(), "train", program, "--data", data, "--steps", steps, "--no-shuffle", "--seed", SEED]
    lines = _output_of(
        [*command, "--threads", threads, "--json", "--checkpoint", checkpoint, "--every", steps]
    ).splitlines()
    events = [json.loads(line) for line in lines]
    _check_memory(events[-1], scratch_foreseen)
    losses = [event["loss"] for event in events if event["event"] == "step"]
    weights = checkpoint.parent / f"{checkpoint.name}.safetensors"
    _output_of([binary(), "export", checkpoint, "-o", weights])
    return Run(losses, load_file(weights))


def _check_memory(end: dict, scratch_foreseen: bool) -> None:
    """After the first step no storage comes from outside the plan, and its peak is what was foreseen."""
    assert end["unplanned_allocations"] == 0
    foreseen, measured = end["predicted_peak_bytes"], end["peak_bytes"]
    most = foreseen if scratch_foreseen else foreseen + end["scratch_bytes"]
    assert foreseen - 0.05 * measured <= measured <= most + 0.05 * measured, (
        f"{foreseen} bytes foreseen, {measured} measured"
    )


def _output_of(command: list[object]) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}"
    return done.stdout


def differences(ours: Run, theirs: Run, tolerance: Tolerance) -> list[str]:
    """One line for each loss or tensor that is further from PyTorch's than allowed."""
    found = []
    if len(ours.losses) != len(theirs.losses):
        found.append(f"{len(ours.losses)} losses instead of {len(theirs.losses)}")
    for index, (our_loss, their_loss) in enumerate(zip(ours.losses, theirs.losses)):
        if not abs(our_loss - their_loss) <= tolerance.loss * abs(their_loss):
            found.append(f"loss of step {index + 1}: {our_loss!r} instead of {their_loss!r}")
    missing = theirs.state.keys() - ours.state.keys()
    found += [f"{name}: missing" for name in sorted(missing)]
    for name, expected in theirs.state.items():
        if name not in missing and (line := _difference(ours.state[name], expected, tolerance)):
            found.append(f"{name}: {line}")
    return found


def _difference(ours: Tensor, theirs: Tensor, tolerance: Tolerance) -> str | None:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{ours.dtype} {list(ours.shape)} instead of {theirs.dtype} {list(theirs.shape)}"
    if not theirs.is_floating_point():
        return None if torch.equal(ours, theirs) else f"{ours.tolist()} instead of {theirs.tolist()}"
    distance = (ours.double() - theirs.double()).abs()
    excess = distance / (tolerance.absolute + tolerance.relative * theirs.double().abs())
    if bool((excess <= 1).all()):  # false for nan too
        return None
    worst = int(excess.nan_to_num(float("inf")).argmax())
    return (
        f"{int((~(excess <= 1)).sum())} of {theirs.numel()} elements differ, most the {worst}th:"
        f" {ours.flatten()[worst].item()!r} instead of {theirs.flatten()[worst].item()!r}"
    )
