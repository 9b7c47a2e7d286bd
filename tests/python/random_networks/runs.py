"""The ways in which a random network is trained: eagerly, by the interpreter, and by `tesser train`."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import tesser
from tesser import schedules
from tesser.random import RandomMode
from tests.python.capture.capture_eager import train_eagerly
from tests.python.commands import binary, command, run_environment
from tests.python.models.equality import SEED, write_data

SECONDS = 180  # of one command, before it counts as hanging
# A worker that gets no processor for three seconds is taken for dead, which a busy machine does to it now and then.
UNHEARD = "has not been heard of"
UNHEARD_TRIES = 2
Batches = list[dict[str, Tensor]]
PRESETS = ("tofu", "default", "dp", "no-reduction", "spartan", "equalchop", "megatron")
RANDOM_PLAN = "random"


@dataclass(frozen=True)
class Way:
    """How a program is trained. `resumed` counts the steps before the run begins anew, 0 for a run in one go, and then
    goes on with `resumed_workers`. A `plan` is a preset, or RANDOM_PLAN for one drawn with `seed`."""

    how: str = "train"  # or "interpreter"
    workers: int = 1
    plan: str = "default"
    seed: int = 0
    threads: int = 1
    replicas: int = 1
    resumed: int = 0
    resumed_workers: int = 1

    def __str__(self) -> str:
        if self.how == "interpreter":
            return "tesser.interpret"
        words = ["tesser train", *map(str, self.words(self.workers))]
        if self.resumed:
            others = " ".join(map(str, self.words(self.resumed_workers)))
            words += [f"(--resume after {self.resumed} steps{f' with {others}' if others else ''})"]
        return " ".join(words)

    def words(self, workers: int) -> list[object]:
        found: list[object] = ["--threads", self.threads] if self.threads > 1 else []
        if workers > 1 and self.plan == RANDOM_PLAN:
            found += ["--plan", self.plan_file(workers)]
        elif workers > 1:
            found += ["--workers", workers, "--preset", self.plan]
        return found + (["--replicas", self.replicas] if self.replicas > 1 else [])

    @property
    def is_divided(self) -> bool:
        """Whether several processes train."""
        return self.workers > 1 or self.replicas > 1 or (self.resumed > 0 and self.resumed_workers > 1)

    def plan_file(self, workers: int) -> str:
        return f"random-{workers}-{self.seed}.plan"

    def simpler(self) -> list[Way]:
        """Ways with one thing less, for reduction."""
        fields = ("resumed", "threads", "replicas", "workers")
        plain = Way()
        found = [replace(self, **{name: getattr(plain, name)}) for name in fields]
        found.append(replace(self, resumed_workers=self.workers))
        found += [replace(self, resumed=0, workers=self.resumed_workers)] if self.resumed else []
        found += [replace(self, workers=self.workers - 1)] if self.workers > 2 else []
        found += [replace(self, plan="tofu")] if self.plan == RANDOM_PLAN else []
        return [way for way in found if way != self] if self.how == "train" else []


INTERPRETER = Way("interpreter")


def drawn_ways(seed: int, count: int) -> list[Way]:
    """`count` ways besides the interpreter; all are met often over many seeds. The first is on one worker."""
    chance = random.Random(f"ways {seed}")
    ways = [Way(threads=chance.choice((1, 1, 2)), resumed=chance.choice((0, 0, 0, 0, 2)))]
    while len(ways) < count:
        replicas = chance.choice((1, 1, 1, 1, 1, 2, 3))
        workers = chance.choice((2, 2, 2, 3, 3, 4, 4, 5)) if replicas == 1 else chance.choice((1, 1, 1, 2))
        plan = chance.choice((*PRESETS, "tofu", "tofu", "default", *[RANDOM_PLAN] * 3))
        if plan == RANDOM_PLAN and (replicas > 1 or not plan_drawer().is_file()):
            plan = "tofu"
        resumed = chance.choice((0, 0, 0, 0, 0, 1, 2))
        way = Way(
            workers=workers, plan=plan, seed=chance.randrange(10**6), threads=chance.choice((1, 1, 1, 2)),
            replicas=replicas, resumed=resumed, resumed_workers=chance.choice((workers, workers, 1, 2)),
        )  # fmt: skip
        if way not in ways:
            ways.append(way)
    return ways


@dataclass
class Run:
    """Losses of all towers by step, and what is left in parameters, buffers and the optimizer."""

    losses: list[list[float]] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)


class Refused(Exception):
    """By name: tesser says that it does not do this, and why."""


class Wrong(Exception):
    """An internal error, a crash or a hang."""


def replica_seed(seed: int, replica: int) -> int:
    """As src/runtime/worker.cc has it: each replica has random numbers of its own."""
    if replica == 0:
        return seed
    mask = 2**64 - 1
    mixed = (seed + replica * 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    mixed ^= mixed >> 31
    return mixed - 2**64 if mixed >= 2**63 else mixed


class RowMajor(TorchDispatchMode):
    """Kernels get their arguments in row-major order, whatever views the network has made of them."""

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        schema = operator._schema
        if not any(result.alias_info is not None for result in schema.returns):
            args = tuple(
                argument.contiguous() if isinstance(argument, Tensor) and spec.alias_info is None else argument
                for argument, spec in zip(args, schema.arguments, strict=False)
            )
        return operator(*args, **(kwargs or {}))


def eager(step: tesser.Step, batches: Batches, dtype: torch.dtype, replicas: int = 1, noise: float = 0.0) -> Run:
    """PyTorch's own run of a fresh step. With `noise` each parameter begins off by that share of itself, and kernels
    get row-major tensors: some of PyTorch's own (the gradient of a batch normalisation) are wrong for others."""
    step.model.to(dtype)
    if noise:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in step.model.parameters():
                parameter.mul_(1 + noise * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    batches = [
        {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in batch.items()}
        for batch in batches
    ]
    with RowMajor() if noise else nullcontext():
        if replicas == 1:
            losses, metrics = train_eagerly(step, batches, SEED)
        else:
            losses, metrics = _replicas(step, batches, replicas)
    towers = [[loss, *found.values()] for loss, found in zip(losses, metrics, strict=True)]
    return Run(towers, _state(step))


def _state(step: tesser.Step) -> dict[str, Tensor]:
    found = {name: tensor.detach().clone() for name, tensor in step.model.named_parameters()}
    found |= {name: tensor.detach().clone() for name, tensor in step.model.named_buffers()}
    return found


def _replicas(step: tesser.Step, batches: Batches, replicas: int) -> tuple[list[float], list[dict[str, float]]]:
    """Each replica takes a batch and has buffers and random numbers of its own; gradients are averaged."""
    models = [step.model] + [deepcopy(step.model) for _ in range(replicas - 1)]
    parameters = list(step.model.parameters())
    losses, all_metrics = [], []
    for index in range(len(batches) // replicas):
        sums: list[Tensor | None] = [None] * len(parameters)
        total, metrics = 0.0, {}
        for replica, model in enumerate(models):
            batch = batches[index * replicas + replica]
            if replica:
                with torch.no_grad():
                    for ours, theirs in zip(model.parameters(), parameters, strict=True):
                        ours.copy_(theirs)
            model.zero_grad()
            with RandomMode(replica_seed(SEED, replica), index):
                for micro in range(step.accumulate):
                    part = {name: tensor.chunk(step.accumulate)[micro] for name, tensor in batch.items()}
                    loss, found = step.loss(model, part)
                    (loss / step.accumulate).backward()
                    total += loss.item() / step.accumulate / replicas
                    for name, value in found.items():
                        metrics[name] = metrics.get(name, 0.0) + value.item() / step.accumulate / replicas
            for number, parameter in enumerate(model.parameters()):
                if parameter.grad is not None:
                    share = parameter.grad / replicas
                    sums[number] = share if sums[number] is None else sums[number] + share
        for parameter, gradient in zip(parameters, sums, strict=True):
            parameter.grad = gradient
        if step.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, step.clip_norm, step.clip_norm_type, foreach=False)
        _set_rates(step, index)
        step.optimizer.step()
        if isinstance(step.schedule, torch.optim.lr_scheduler.LRScheduler):
            step.schedule.step()
        losses.append(total)
        all_metrics.append(metrics)
    return losses, all_metrics


def _set_rates(step: tesser.Step, index: int) -> None:
    for group in step.optimizer.param_groups:
        group["foreach"] = False
    if isinstance(step.schedule, (schedules.Schedule, list)):
        for group, schedule in zip(step.optimizer.param_groups, schedules.for_groups(step.schedule, step.optimizer)):
            group["lr"] = schedule.at(index)


class Captured:
    """A network's program and data in a directory."""

    def __init__(self, step: tesser.Step, batches: Batches, directory: Path) -> None:
        self.directory = directory
        self.program = directory / "network.tesser"
        self.batches = batches
        self._runs = 0
        try:
            tesser.capture(step, self.program)
        except tesser.CaptureError as error:
            raise Refused(str(error)) from error
        except Exception as error:
            raise Wrong(f"capture: {type(error).__name__}: {error}") from error
        write_data(directory / "data", {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]})

    def run(self, way: Way, steps: int) -> Run:
        """Raises Refused and Wrong."""
        if way.how == "interpreter":
            return self._interpreted(steps)
        for _ in range(UNHEARD_TRIES):
            try:
                return self._run(way, steps)
            except Wrong as error:
                if UNHEARD not in str(error):
                    raise
        return self._run(way, steps)

    def _run(self, way: Way, steps: int) -> Run:
        self._runs += 1
        checkpoint = self.directory / f"run-{self._runs}"
        losses: list[list[float]] = []
        parts = [(way.resumed, way.workers), (steps, way.resumed_workers)] if way.resumed else [(steps, way.workers)]
        for until, workers in parts:
            if way.plan == RANDOM_PLAN and workers > 1:
                self._draw_plan(way, workers)
            losses += self._train(
                checkpoint, ["--steps", until, *way.words(workers), *(["--resume"] if losses else [])]
            )
        return Run(losses, read_checkpoint(checkpoint, steps))

    def _draw_plan(self, way: Way, workers: int) -> None:
        words = [plan_drawer(), self.program, workers, way.seed, self.directory / way.plan_file(workers)]
        run_command("random_plan", [str(word) for word in words], self.directory)

    def _interpreted(self, steps: int) -> Run:
        try:
            result = tesser.interpret(self.program, steps, self.batches[:steps], seed=SEED)
        except Exception as error:
            raise Wrong(f"interpreter: {type(error).__name__}: {error}") from error
        losses = [[loss, *metrics.values()] for loss, metrics in zip(result.losses, result.metrics, strict=True)]
        return Run(losses, result.state)

    def _train(self, checkpoint: Path, words: Sequence[object]) -> list[list[float]]:
        words = [
            "train", self.program, "--data", self.directory / "data", "--no-shuffle", "--seed", SEED, "--json",
            "--checkpoint", checkpoint, "--every", 10**6, *words,
        ]  # fmt: skip
        if "--threads" not in words:
            words += ["--threads", 1]
        output = run_command("train", command(*words), self.directory)
        events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        return [
            [_number(event["loss"]), *map(_number, event["metrics"].values())]
            for event in events
            if event["event"] == "step"
        ]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def plan_drawer() -> Path:
    """The program that draws plans of all that descriptions allow."""
    return binary().with_name("random_plan")


def run_command(name: str, words: Sequence[str], directory: Path) -> str:
    """A command's output. Refused where it ends with code 2, Wrong where it ends otherwise or not at all."""
    words = [str(Path(words[0]).absolute()), *words[1:]]
    process = subprocess.Popen(
        words, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=run_environment(),
        start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Wrong(f"{name}: still running after {SECONDS} s") from None
    if process.returncode == 0:
        return output
    lines = [line for line in errors.splitlines() if line.strip()]
    told = [line for line in lines if "error: " in line]
    message = " ".join(told or lines[:10])[:600]  # not the stack of a crash
    if process.returncode == 2 and not re.search("mistake of tesser|internal|worker .* failed", message):
        raise Refused(f"{name}: {message}")
    raise Wrong(f"{name}: exit code {process.returncode}: {message}")


def read_checkpoint(directory: Path, step: int) -> dict[str, Tensor]:
    """Parameters and buffers of a checkpoint (docs/formats/checkpoint.md), put together from their parts."""
    directory = directory / f"step-{step:08}"
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    shards = {shard["file"]: load_file(directory / shard["file"]) for shard in manifest["shards"]}
    state = {}
    for value in manifest["values"]:
        name = value["name"]
        if value["role"] == "optimizer_state":
            continue
        if "parts" not in value:
            state[name] = shards[value["shard"]][name]
            continue
        whole = torch.empty(value["shape"], dtype=getattr(torch, value["dtype"]))
        for part in value["parts"]:
            place = tuple(slice(begin, begin + size) for begin, size in zip(part["begin"], part["size"], strict=True))
            whole[place] = shards[part["shard"]][name]
        state[name] = whole
    return state
