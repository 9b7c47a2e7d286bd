"""Learning-rate schedules as data (docs/formats/program.md, Schedules).

A schedule gives the learning rate of step s, the number of steps done before, so schedules count steps, not epochs. Use
the classes here, :func:`warmup_cosine`, or a ``torch.optim.lr_scheduler`` object that has a form as data
(:func:`from_torch`).
"""

from __future__ import annotations

import copy
import math
import warnings
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch.optim import lr_scheduler

DEEPEST = 16  # sequences within one another that readers take
CHECKED_STEPS = 500  # how far a conversion is compared with the scheduler itself


@dataclass(frozen=True)
class Schedule:
    """Learning rate as a function of the number of steps done. Base of the classes below."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        """Numbers of any library become Python's; ValueError for those a program cannot hold."""
        for field in fields(self):
            value, name = getattr(self, field.name), f"{type(self).__name__}: {field.name}"
            if field.type == "int":
                object.__setattr__(self, field.name, _whole(value, name))
            elif field.type == "float":
                _require(math.isfinite(value), f"{name} is a finite number, not {value}")
                object.__setattr__(self, field.name, float(value))

    def at(self, step: int) -> float:
        """The learning rate of the step before which `step` steps were done (0 in the first)."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The entry of a program's ``schedules``: ``kind``, then the keys of its row in the format's table."""
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _whole(number: Any, name: str) -> int:
    _require(
        math.isfinite(number) and number == int(number),
        f"{name} is {number}, but schedules count whole steps; give a whole number",
    )
    return int(number)


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
        super().__post_init__()
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
        super().__post_init__()
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
        super().__post_init__()
        _require(self.steps >= 1, f"Cosine: steps is at least 1, not {self.steps}")

    def at(self, step: int) -> float:
        progress = min(step, self.steps) / self.steps
        return self.minimum + (self.rate - self.minimum) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class CosineWave(Schedule):
    """A cosine from `rate` down to `minimum` at step `steps`, up to `rate` at 2 * `steps`, and so on."""

    rate: float
    minimum: float
    steps: int
    kind: ClassVar[str] = "cosine_wave"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.steps >= 1, f"CosineWave: steps is at least 1, not {self.steps}")

    def at(self, step: int) -> float:
        progress = step // self.steps % 2 + step % self.steps / self.steps
        return self.minimum + (self.rate - self.minimum) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class End(Schedule):
    """No rate: a run that would come to it is refused before it starts. The last part of a :class:`Sequence`."""

    kind: ClassVar[str] = "end"

    def at(self, step: int) -> float:
        raise ValueError("the schedule has ended: it gives no rate for this step")


@dataclass(frozen=True)
class OneCycle(Schedule):
    """From `initial` up to `maximum` until step `rise` * `steps` - 1, down to `final` at step `steps` - 1, then
    `final`."""

    maximum: float
    initial: float
    final: float
    steps: int
    rise: float = 0.3
    anneal: str = "cosine"
    kind: ClassVar[str] = "one_cycle"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.steps >= 1, f"OneCycle: steps is at least 1, not {self.steps}")
        _require(0.0 <= self.rise <= 1.0, f"OneCycle: rise is a fraction of the steps, from 0 to 1, not {self.rise}")
        _require(self.anneal in ("cosine", "linear"), f'OneCycle: anneal is "cosine" or "linear", not "{self.anneal}"')

    def at(self, step: int) -> float:
        last, top = self.steps - 1, self.rise * self.steps - 1
        step = min(step, last)
        if step <= top:
            return self._between(self.initial, self.maximum, step / top if top > 0 else 1.0)
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
        object.__setattr__(
            self, "milestones", tuple(_whole(milestone, "Sequence: a milestone") for milestone in self.milestones)
        )
        _require(
            len(self.parts) == len(self.milestones) + 1,
            f"Sequence: one milestone between two parts, not {len(self.milestones)} for {len(self.parts)} parts",
        )
        rising = all(before < after for before, after in zip((0, *self.milestones), self.milestones, strict=False))
        _require(rising, f"Sequence: milestones are positive and rise, not {list(self.milestones)}")
        _require(not isinstance(self.parts[0], End), "Sequence: the first part is End, which gives no rate")
        _require(_depth(self) <= DEEPEST, f"Sequence: at most {DEEPEST} of them lie within one another")

    def at(self, step: int) -> float:
        index = bisect_right(self.milestones, step)
        return self.parts[index].at(step - (self.milestones[index - 1] if index else 0))

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "parts": [part.to_json() for part in self.parts],
            "milestones": list(self.milestones),
        }


def _depth(schedule: Schedule) -> int:
    return 1 + max(map(_depth, schedule.parts)) if isinstance(schedule, Sequence) else 0


_KINDS: dict[str, type[Schedule]] = {
    kind.kind: kind for kind in (Constant, StepDecay, Linear, Cosine, CosineWave, OneCycle, Sequence, End)
}


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
    """One schedule for each parameter group of the scheduler's optimizer, with the learning rates that the scheduler
    will set from where it stands.

    ValueError, with what to use instead, for schedulers that have no form as data. Each conversion is compared with a
    copy of the scheduler that goes on, so one whose rates are not those of its settings is refused too: it was changed
    by hand, or another scheduler has written into the same optimizer.
    """
    groups = range(len(scheduler.optimizer.param_groups))
    converted = [_group_schedule(scheduler, group, later=False) for group in groups]
    _compare(scheduler, converted, restart=False)
    return converted


def _compare(scheduler: Any, converted: list[Schedule], restart: bool) -> None:
    """ValueError where the scheduler, going on or begun anew by a SequentialLR, sets other rates than the schedules."""
    name, optimizer = type(scheduler).__name__, scheduler.optimizer
    groups = [
        {key: copy.deepcopy(entry) for key, entry in group.items() if key not in ("params", "param_names")}
        | {"params": [torch.nn.Parameter(torch.zeros(()))]}
        for group in optimizer.param_groups
    ]
    stand_in = torch.optim.SGD(groups, lr=0.1)
    step = int(scheduler.last_epoch)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            copied = copy.deepcopy(scheduler, {id(optimizer): stand_in})
            if restart:
                copied._update_lr(0)
            step = first = int(copied.last_epoch)
            while (difference := _difference(stand_in, converted, step)) is None and step < first + CHECKED_STEPS:
                step += 1
                if all(_ends_at(schedule, step) for schedule in converted):
                    break
                copied.step()
    except Exception as error:
        raise ValueError(
            f"{name} fails in PyTorch itself at step {step} ({type(error).__name__}: {str(error) or 'no closed form'})."
            " Change its settings, or use a schedule of tesser.schedules"
        ) from error
    _require(
        difference is None,
        f"{name} sets {difference}: the rates were changed by hand, another scheduler writes into the same optimizer, "
        "or its settings do not fit each other. Build it anew over a new optimizer, or use a schedule of "
        "tesser.schedules",
    )
    if isinstance(scheduler, lr_scheduler.SequentialLR):
        for number, _ in _used_parts(scheduler)[1:]:
            part = scheduler._schedulers[number]
            _compare(part, [_group_schedule(part, group, later=True) for group in range(len(converted))], restart=True)


def _difference(optimizer: torch.optim.Optimizer, converted: list[Schedule], step: int) -> str | None:
    for index, (group, schedule) in enumerate(zip(optimizer.param_groups, converted, strict=True)):
        rate, expected = float(group["lr"]), schedule.at(step)
        scale = abs(float(group.get("initial_lr", rate)))
        if not math.isclose(rate, expected, rel_tol=1e-7, abs_tol=1e-10 * scale):
            return f"{rate:.9g} as the rate of group {index} in step {step} (from 0), its settings give {expected:.9g}"
    return None


def _ends_at(schedule: Schedule, step: int) -> bool:
    if isinstance(schedule, Sequence):
        index = bisect_right(schedule.milestones, step)
        return _ends_at(schedule.parts[index], step - (schedule.milestones[index - 1] if index else 0))
    return isinstance(schedule, End)


def _group_schedule(scheduler: lr_scheduler.LRScheduler, group: int, later: bool) -> Schedule:
    """`later`: of a SequentialLR's part that is not its first, which begins with PyTorch's closed formula."""
    # Exact types: a subclass may compute anything.
    convert = _CONVERSIONS.get(type(scheduler))
    if convert is None:
        supported = ", ".join(c.__name__ for c in _CONVERSIONS)
        raise ValueError(
            f"{type(scheduler).__name__} has no form as data. Use one of {supported}, or a schedule of tesser.schedules"
            " (Constant, StepDecay, Linear, Cosine, OneCycle, and Sequence to join them)"
        )
    return convert(scheduler, group, later)


def _base_rate(scheduler: Any, group: int) -> float:
    return float(scheduler.base_lrs[group])


def _setting(scheduler: Any, name: str, smallest: int) -> int:
    """A number of steps among the scheduler's settings."""
    where = f"{name} of {type(scheduler).__name__}"
    number = _whole(getattr(scheduler, name), where)
    _require(number >= smallest, f"{where} is {number}; give {smallest} or more")
    return number


def _from_step(scheduler: Any, group: int, later: bool) -> Schedule:
    return StepDecay(_base_rate(scheduler, group), _setting(scheduler, "step_size", 1), float(scheduler.gamma))


def _from_exponential(scheduler: Any, group: int, later: bool) -> Schedule:
    return StepDecay(_base_rate(scheduler, group), 1, float(scheduler.gamma))


def _from_multi_step(scheduler: Any, group: int, later: bool) -> Schedule:
    rate = _base_rate(scheduler, group)
    milestones = sorted(
        _whole(milestone, "a milestone of MultiStepLR") for milestone in scheduler.milestones.elements()
    )
    _require(
        not milestones or milestones[0] >= 0,
        f"a milestone of MultiStepLR is {milestones[0] if milestones else 0}; no step is that early, so leave it out",
    )
    starts = sorted({milestone for milestone in milestones if milestone > 0})
    parts = [Constant(rate * scheduler.gamma ** bisect_right(milestones, start)) for start in (0, *starts)]
    return Sequence(tuple(parts), tuple(starts)) if starts else parts[0]


def _from_constant(scheduler: Any, group: int, later: bool) -> Schedule:
    rate, steps = _base_rate(scheduler, group), _setting(scheduler, "total_iters", 0)
    factor = float(scheduler.factor)
    if steps == 0:
        # The end is looked for after each step, so one at step 0 is passed by; the closed formula knows it.
        return Constant(rate if later else rate * factor)
    _require(factor != 0, "ConstantLR with factor=0 divides by it at step total_iters; give a small factor, say 1e-9")
    return Sequence((Constant(rate * factor), Constant(rate)), (steps,))


def _from_linear(scheduler: Any, group: int, later: bool) -> Schedule:
    rate, start, end = _base_rate(scheduler, group), float(scheduler.start_factor), float(scheduler.end_factor)
    steps = _setting(scheduler, "total_iters", 1 if later else 0)
    return Linear(rate, start, end, steps) if steps else Constant(rate * start)


def _from_cosine(scheduler: Any, group: int, later: bool) -> Schedule:
    return CosineWave(_base_rate(scheduler, group), float(scheduler.eta_min), _setting(scheduler, "T_max", 1))


def _from_one_cycle(scheduler: Any, group: int, later: bool) -> Schedule:
    if scheduler.cycle_momentum:
        raise ValueError(
            "OneCycleLR with cycle_momentum=True changes momentum or beta1 from step to step,"
            " which a program keeps constant."
            " Pass cycle_momentum=False to OneCycleLR"
        )
    if len(scheduler._schedule_phases) != 2:
        raise ValueError(
            "OneCycleLR with three_phase=True has no form as data. Use three_phase=False, or tesser.schedules.Sequence"
        )
    settings = scheduler.optimizer.param_groups[group]
    steps, top = int(scheduler.total_steps), float(scheduler._schedule_phases[0]["end_step"])
    cycle = OneCycle(
        maximum=float(settings["max_lr"]),
        initial=float(settings["initial_lr"]),
        final=float(settings["min_lr"]),
        steps=steps,
        rise=(top + 1) / steps,
        anneal="cosine" if scheduler._anneal_func_type == "cos" else "linear",
    )
    if top >= steps - 1:
        return Sequence((cycle, End()), (steps,))
    # PyTorch gives one rate more than total_steps, on the way beyond the end of the second phase.
    beyond = cycle._between(cycle.maximum, cycle.final, (steps - top) / (steps - 1 - top))
    return Sequence((cycle, Constant(beyond), End()), (steps, steps + 1))


def _used_parts(scheduler: lr_scheduler.SequentialLR) -> list[tuple[int, int]]:
    """Index and first step of each part that sets a rate: one that ends where it begins, or before step 0, does not."""
    milestones = [_whole(milestone, "a milestone of SequentialLR") for milestone in scheduler._milestones]
    _require(
        milestones == sorted(milestones), f"the milestones of SequentialLR are {milestones}; give them in rising order"
    )
    begins = [0, *(max(0, milestone) for milestone in milestones)]
    ends = [*begins[1:], math.inf]
    return [(number, begin) for number, (begin, end) in enumerate(zip(begins, ends)) if begin < end]


def _from_sequential(scheduler: Any, group: int, later: bool) -> Schedule:
    used = _used_parts(scheduler)
    _require(
        not any(type(scheduler._schedulers[number]) is type(scheduler) for number, _ in used),
        "SequentialLR within SequentialLR: PyTorch miscounts the inner one's steps; give one SequentialLR all parts",
    )
    parts = [
        _group_schedule(scheduler._schedulers[number], group, later=place > 0) for place, (number, _) in enumerate(used)
    ]
    return Sequence(tuple(parts), tuple(begin for _, begin in used[1:])) if len(parts) > 1 else parts[0]


_CONVERSIONS: dict[type, Callable[[Any, int, bool], Schedule]] = {
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
        _require(not isinstance(schedule, End), "the schedule is End, which gives no rate; put it into a Sequence")
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
