"""Learning-rate schedules as data (docs/formats/program.md, Schedules).

A schedule gives the learning rate of step s, the number of steps done before, so schedules count steps, not epochs. Use
the classes here, :func:`warmup_cosine`, or a ``torch.optim.lr_scheduler`` object that has a form as data
(:func:`from_torch`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch.optim import lr_scheduler


@dataclass(frozen=True)
class Schedule:
    """Learning rate as a function of the number of steps done. Base of the classes below."""

    kind: ClassVar[str]

    def at(self, step: int) -> float:
        """The learning rate of the step before which `step` steps were done (0 in the first)."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The entry of a program's ``schedules``: ``kind``, then the keys of its row in the format's table."""
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class Constant(Schedule):
    """`rate` at every step."""

    rate: float
    kind: ClassVar[str] = "constant"

    def at(self, step: int) -> float:
        return self.rate


@dataclass(frozen=True)
class StepDecay(Schedule):
    """`rate`, multiplied by `factor` after every `every` steps."""

    rate: float
    every: int
    factor: float
    kind: ClassVar[str] = "step"

    def __post_init__(self) -> None:
        _require(self.every >= 1, f"StepDecay: every is at least 1 step, not {self.every}")

    def at(self, step: int) -> float:
        return self.rate * self.factor ** (step // self.every)


@dataclass(frozen=True)
class Linear(Schedule):
    """From `rate` * `start` to `rate` * `end` over `steps` steps, then `rate` * `end`."""

    rate: float
    start: float
    end: float
    steps: int
    kind: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        _require(self.steps >= 1, f"Linear: steps is at least 1, not {self.steps}")

    def at(self, step: int) -> float:
        return self.rate * (self.start + (self.end - self.start) * min(step, self.steps) / self.steps)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from `rate` down to `minimum` over `steps` steps, then `minimum`."""

    rate: float
    minimum: float
    steps: int
    kind: ClassVar[str] = "cosine"

    def __post_init__(self) -> None:
        _require(self.steps >= 1, f"Cosine: steps is at least 1, not {self.steps}")

    def at(self, step: int) -> float:
        progress = min(step, self.steps) / self.steps
        return self.minimum + (self.rate - self.minimum) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class OneCycle(Schedule):
    """From `initial` up to `maximum` until step `rise` * `steps` - 1, down to `final` at step `steps` - 1."""

    maximum: float
    initial: float
    final: float
    steps: int
    rise: float = 0.3
    anneal: str = "cosine"
    kind: ClassVar[str] = "one_cycle"

    def __post_init__(self) -> None:
        _require(self.steps >= 2, f"OneCycle: steps is at least 2, not {self.steps}")
        _require(
            0.0 <= self.rise < 1.0, f"OneCycle: rise is a fraction of the steps, from 0 to below 1, not {self.rise}"
        )
        _require(self.anneal in ("cosine", "linear"), f'OneCycle: anneal is "cosine" or "linear", not "{self.anneal}"')

    def at(self, step: int) -> float:
        last = self.steps - 1
        top = self.rise * self.steps - 1
        step = min(step, last)
        if top > 0 and step <= top:
            return self._between(self.initial, self.maximum, step / top)
        return self._between(self.maximum, self.final, (step - top) / (last - top))

    def _between(self, start: float, end: float, progress: float) -> float:
        if self.anneal == "linear":
            return start + (end - start) * progress
        return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class Sequence(Schedule):
    """``parts[i]`` from step ``milestones[i - 1]`` on, each counting its own steps from there."""

    parts: tuple[Schedule, ...]
    milestones: tuple[int, ...]
    kind: ClassVar[str] = "sequence"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "milestones", tuple(self.milestones))
        _require(
            len(self.parts) == len(self.milestones) + 1,
            f"Sequence: one milestone between two parts, not {len(self.milestones)} for {len(self.parts)} parts",
        )
        rising = all(before < after for before, after in zip((0, *self.milestones), self.milestones, strict=False))
        _require(rising, f"Sequence: milestones are positive and rise, not {list(self.milestones)}")

    def at(self, step: int) -> float:
        index = bisect_right(self.milestones, step)
        return self.parts[index].at(step - (self.milestones[index - 1] if index else 0))

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "parts": [part.to_json() for part in self.parts],
            "milestones": list(self.milestones),
        }


_KINDS: dict[str, type[Schedule]] = {c.kind: c for c in (Constant, StepDecay, Linear, Cosine, OneCycle, Sequence)}


def from_json(entry: Mapping[str, Any]) -> Schedule:
    """The schedule of an entry of a program's ``schedules``; ValueError for an unknown kind or wrong keys."""
    values = dict(entry)
    kind = values.pop("kind", None)
    _require(kind in _KINDS, f"schedule: kind {kind!r} is none of {', '.join(_KINDS)}")
    schedule_class = _KINDS[kind]
    names = {field.name for field in fields(schedule_class)}
    _require(
        set(values) == names,
        f"schedule of kind {kind}: keys are {', '.join(sorted(names))}, not {', '.join(sorted(values))}",
    )
    if schedule_class is Sequence:
        values["parts"] = tuple(from_json(part) for part in values["parts"])
    return schedule_class(**values)


def warmup_cosine(rate: float, warmup: int, steps: int, minimum: float = 0.0) -> Schedule:
    """Linear from `rate` / `warmup` in step 0 to `rate` in step `warmup` - 1; a cosine to `minimum` at step `steps`."""
    _require(0 <= warmup < steps, f"warmup_cosine: warmup is 0 to below steps, not {warmup} of {steps}")
    decay = Cosine(float(rate), float(minimum), steps - warmup)
    if warmup == 0:
        return decay
    rise = Constant(float(rate)) if warmup == 1 else Linear(float(rate), 1.0 / warmup, 1.0, warmup - 1)
    return Sequence((rise, decay), (warmup,))


def from_torch(scheduler: lr_scheduler.LRScheduler) -> list[Schedule]:
    """One schedule for each parameter group of the scheduler's optimizer, with the learning rates the scheduler would
    set.

    ValueError, with what to use instead, for schedulers that have no form as data. CosineAnnealingLR goes up again when
    it is stepped past T_max; the schedule stays at eta_min there.
    """
    return [_group_schedule(scheduler, group) for group in range(len(scheduler.optimizer.param_groups))]


def _group_schedule(scheduler: lr_scheduler.LRScheduler, group: int) -> Schedule:
    # Exact types: a subclass may compute anything.
    convert = _CONVERSIONS.get(type(scheduler))
    if convert is None:
        supported = ", ".join(c.__name__ for c in _CONVERSIONS)
        raise ValueError(
            f"{type(scheduler).__name__} has no form as data. Use one of {supported}, or a schedule of tesser.schedules"
            " (Constant, StepDecay, Linear, Cosine, OneCycle, and Sequence to join them)."
        )
    return convert(scheduler, group)


def _base_rate(scheduler: Any, group: int) -> float:
    return float(scheduler.base_lrs[group])


def _from_step(scheduler: Any, group: int) -> Schedule:
    return StepDecay(_base_rate(scheduler, group), int(scheduler.step_size), float(scheduler.gamma))


def _from_exponential(scheduler: Any, group: int) -> Schedule:
    return StepDecay(_base_rate(scheduler, group), 1, float(scheduler.gamma))


def _from_multi_step(scheduler: Any, group: int) -> Schedule:
    rate = _base_rate(scheduler, group)
    milestones = sorted(scheduler.milestones.elements())
    starts = sorted({milestone for milestone in milestones if milestone > 0})
    parts = [Constant(rate * scheduler.gamma ** bisect_right(milestones, start)) for start in (0, *starts)]
    return Sequence(tuple(parts), tuple(starts)) if starts else parts[0]


def _from_constant(scheduler: Any, group: int) -> Schedule:
    rate = _base_rate(scheduler, group)
    if scheduler.total_iters <= 0:
        return Constant(rate)
    return Sequence((Constant(rate * scheduler.factor), Constant(rate)), (int(scheduler.total_iters),))


def _from_linear(scheduler: Any, group: int) -> Schedule:
    return Linear(
        _base_rate(scheduler, group),
        float(scheduler.start_factor),
        float(scheduler.end_factor),
        int(scheduler.total_iters),
    )


def _from_cosine(scheduler: Any, group: int) -> Schedule:
    return Cosine(_base_rate(scheduler, group), float(scheduler.eta_min), int(scheduler.T_max))


def _from_one_cycle(scheduler: Any, group: int) -> Schedule:
    if scheduler.cycle_momentum:
        raise ValueError(
            "OneCycleLR with cycle_momentum=True changes momentum or beta1 from step to step,"
            " which a program keeps constant."
            " Pass cycle_momentum=False to OneCycleLR."
        )
    if len(scheduler._schedule_phases) != 2:
        raise ValueError(
            "OneCycleLR with three_phase=True has no form as data. Use three_phase=False, or tesser.schedules.Sequence."
        )
    settings = scheduler.optimizer.param_groups[group]
    rise = (scheduler._schedule_phases[0]["end_step"] + 1) / scheduler.total_steps
    return OneCycle(
        maximum=float(settings["max_lr"]),
        initial=float(settings["initial_lr"]),
        final=float(settings["min_lr"]),
        steps=int(scheduler.total_steps),
        rise=rise,
        anneal="cosine" if scheduler._anneal_func_type == "cos" else "linear",
    )


def _from_sequential(scheduler: Any, group: int) -> Schedule:
    parts = tuple(_group_schedule(part, group) for part in scheduler._schedulers)
    return Sequence(parts, tuple(int(milestone) for milestone in scheduler._milestones))


_CONVERSIONS: dict[type, Any] = {
    lr_scheduler.StepLR: _from_step,
    lr_scheduler.MultiStepLR: _from_multi_step,
    lr_scheduler.ConstantLR: _from_constant,
    lr_scheduler.LinearLR: _from_linear,
    lr_scheduler.ExponentialLR: _from_exponential,
    lr_scheduler.CosineAnnealingLR: _from_cosine,
    lr_scheduler.OneCycleLR: _from_one_cycle,
    lr_scheduler.SequentialLR: _from_sequential,
}


def for_groups(
    schedule: Schedule | list[Schedule] | lr_scheduler.LRScheduler | None, optimizer: torch.optim.Optimizer
) -> list[Schedule]:
    """One schedule for each of the optimizer's parameter groups, from what a :class:`tesser.Step` may carry."""
    groups = optimizer.param_groups
    if schedule is None:
        return [Constant(float(group["lr"])) for group in groups]
    if isinstance(schedule, Schedule):
        return [schedule] * len(groups)
    if isinstance(schedule, lr_scheduler.LRScheduler):
        if schedule.optimizer is not optimizer:
            raise ValueError("the step's schedule belongs to another optimizer than the step's")
        return from_torch(schedule)
    if isinstance(schedule, (list, tuple)) and all(isinstance(part, Schedule) for part in schedule):
        if len(schedule) != len(groups):
            raise ValueError(
                f"{len(schedule)} schedules for {len(groups)} parameter groups: give one schedule, or one a group"
            )
        return list(schedule)
    raise ValueError(
        "a step's schedule is a tesser.schedules schedule, one of them a group, or a torch.optim.lr_scheduler,"
        f" not {type(schedule).__name__}"
    )
