"""What a run may differ from PyTorch's in float64: PyTorch's own gap between float32 and float64, with a floor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from tests.python.random_networks.runs import Run, Way, eager
from tests.python.random_networks.source import load

STEPS = 4
FLOOR = 3e-6  # of the largest element of a tensor, or of 0.1
FACTOR = 12.0  # on PyTorch's own gap
NOISE = 2e-7  # how much parameters are moved to see what rounding makes of itself
CHAOTIC = 1e-4  # a gap of this share of the largest element says nothing
TOLD = 30.0  # training must change something by this many times what is allowed


@dataclass
class Allowed:
    """What is right, and by how much a run may be off."""

    run: Run
    losses: list[list[float]]
    state: dict[str, float]


class Reference:
    """PyTorch's runs of a step file, for each number of replicas."""

    def __init__(self, path: Path, steps: int = STEPS) -> None:
        self.path = path
        self.steps = steps
        self._known: dict[int, Allowed] = {}

    @cached_property
    def module(self):
        return load(self.path)

    def step(self):
        return self.module.step()

    def batches(self, count: int) -> list[dict[str, Tensor]]:
        return [self.module.batch(number) for number in range(1, count + 1)]

    def allowed(self, replicas: int = 1) -> Allowed:
        if replicas not in self._known:
            batches = self.batches(self.steps * replicas)
            exact = eager(self.step(), batches, torch.float64, replicas)
            runs = [
                eager(self.step(), batches, torch.float32, replicas),
                eager(self.step(), batches, torch.float64, replicas, NOISE),
            ]
            losses = [
                [FLOOR * max(abs(value), 0.1) + FACTOR * max(abs(run.losses[step][tower] - value) for run in runs)
                 for tower, value in enumerate(row)]
                for step, row in enumerate(exact.losses)
            ]  # fmt: skip
            state = {
                name: FLOOR * largest(tensor) + FACTOR * max(distance(run.state[name], tensor) for run in runs)
                for name, tensor in exact.state.items()
            }
            self._known[replicas] = Allowed(exact, losses, state)
        return self._known[replicas]

    def useless_towers(self, replicas: int = 1) -> dict[int, str]:
        """Towers whose numbers say nothing, and why: not finite, chaotic, or not changed by training."""
        allowed = self.allowed(replicas)
        found: dict[int, str] = {}
        first = {name: tensor.double() for name, tensor in self.step().model.state_dict().items()}
        changed = set()
        for row, limits in zip(allowed.run.losses, allowed.losses, strict=True):
            for tower, (value, limit) in enumerate(zip(row[1:], limits[1:], strict=True)):
                if not abs(value) < 1e6 or not limit < CHAOTIC * FACTOR * max(abs(value), 0.1):
                    found[tower] = "not finite or chaotic"
        for name, tensor in allowed.run.state.items():
            tower = tower_of(name)
            if not tensor.is_floating_point():
                continue
            if not tensor.isfinite().all() or not allowed.state[name] < CHAOTIC * FACTOR * largest(tensor):
                found[tower] = "not finite or chaotic"
            if name in first and distance(first[name], tensor) > TOLD * allowed.state[name]:
                changed.add(tower)
        for tower in range(len(allowed.run.losses[0]) - 1):
            if tower not in changed:
                found.setdefault(tower, "training changes nothing")
        return found

    def differences(self, run: Run, way: Way) -> dict[int, str]:
        """What is off, by tower."""
        allowed = self.allowed(way.replicas)
        found: dict[int, str] = {}
        if len(run.losses) != len(allowed.run.losses):
            return {-1: f"{len(run.losses)} losses instead of {len(allowed.run.losses)}"}
        for step, (ours, right, limits) in enumerate(zip(run.losses, allowed.run.losses, allowed.losses, strict=True)):
            for tower, (value, expected, limit) in enumerate(zip(ours, right, limits, strict=True), start=-1):
                if not abs(value - expected) <= limit:
                    found.setdefault(tower, f"loss of step {step + 1}: {value!r} instead of {expected!r}")
        for name, expected in allowed.run.state.items():
            value = run.state.get(name)
            if value is None:
                found.setdefault(tower_of(name), f"{name} is missing")
            elif value.shape != expected.shape:
                found.setdefault(tower_of(name), f"{name} is of shape {list(value.shape)}, not {list(expected.shape)}")
            elif not distance(value, expected) <= allowed.state[name]:
                found.setdefault(
                    tower_of(name),
                    f"{name} is off by {distance(value, expected):.3g}, {allowed.state[name]:.2g} allowed",
                )
        if len(found) > 1:
            found.pop(-1, None)  # the sum, which says less than its terms
        return found


def largest(tensor: Tensor) -> float:
    return max(tensor.abs().max().item(), 0.1) if tensor.numel() else 0.0


def distance(one: Tensor, other: Tensor) -> float:
    return (one.double() - other.double()).abs().max().item() if one.numel() else 0.0


def tower_of(name: str) -> int:
    return int(re.match(r"towers\.(\d+)\.", name).group(1))
