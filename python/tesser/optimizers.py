"""What a torch optimizer does in one step, as calls of the operators ``tesser::sgd`` and ``tesser::adam``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import lr_scheduler

import tesser.operators  # noqa: F401  (registers the operators)
from tesser import schedules
from tesser.schedules import Schedule

_NEAREST = {
    "NAdam": "Adam",
    "RAdam": "Adam",
    "Adamax": "Adam",
    "Adagrad": "Adam",
    "Adadelta": "Adam",
    "RMSprop": "Adam",
    "SparseAdam": "Adam",
    "Adafactor": "AdamW",
    "Muon": "AdamW",
    "ASGD": "SGD",
    "Rprop": "SGD",
    "LBFGS": "SGD",
}


@dataclass(frozen=True)
class StateSlot:
    """One tensor of optimizer state of a parameter."""

    name: str  # PyTorch's name of the slot: momentum_buffer, exp_avg, exp_avg_sq, max_exp_avg_sq
    shape: tuple[int, ...]
    dtype: torch.dtype
    initial: Tensor | None  # content when the optimizer has history; None: zeros


@dataclass(frozen=True)
class ParameterUpdate:
    """The update of one parameter: one call of `operator`.

    The operator's arguments are parameter, gradient, a tensor or None for each entry of `slots`, learning rate (float64
    scalar), step (int64 scalar), then `arguments`. Its results are the new parameter and the new content of each slot,
    None where the slot is None.
    """

    parameter: str
    group: int
    operator: str  # "tesser::sgd" or "tesser::adam"
    slots: tuple[StateSlot | None, ...]
    arguments: tuple[float | bool, ...]

    def apply(
        self, parameter: Tensor, gradient: Tensor, state: Iterable[Tensor | None], learning_rate: Tensor, step: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Calls the operator with an entry of `state` for each of `slots`; returns the new parameter and state."""
        operator = getattr(torch.ops.tesser, self.operator.removeprefix("tesser::"))
        return operator(parameter, gradient, *state, learning_rate, step, *self.arguments)


def describe(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | Mapping[str, Tensor],
    schedule: Schedule | list[Schedule] | lr_scheduler.LRScheduler | None = None,
) -> list[ParameterUpdate]:
    """One update for each parameter of the optimizer that needs a gradient, in the order of its groups.

    `schedule` is checked against the optimizer's groups; see :func:`tesser.schedules.for_groups` for the schedules
    themselves and :func:`steps_done` for the step at which the program starts. ValueError for optimizers and options
    that have no operator.
    """
    describe_group = _describers(optimizer)
    schedules.for_groups(schedule, optimizer)
    names = _names_by_tensor(named_parameters)
    first_step = steps_done(optimizer, schedule)
    updates = []
    for group_index, group in enumerate(optimizer.param_groups):
        if group.get("differentiable"):
            raise ValueError(
                f"{type(optimizer).__name__} with differentiable=True: a program does not differentiate its update."
                " Leave the option out."
            )
        for index, parameter in enumerate(group["params"]):
            name = names.get(id(parameter))
            if name is None:
                raise ValueError(
                    f"parameter {index} of group {group_index} of the optimizer, shape {list(parameter.shape)},"
                    " is no parameter of the model."
                    " Build the optimizer from the parameters of the model that the step returns."
                )
            if parameter.requires_grad:
                state = optimizer.state.get(parameter, {})
                updates.append(describe_group(name, group_index, parameter, group, state, first_step))
    return updates


def steps_done(
    optimizer: torch.optim.Optimizer, schedule: Schedule | list[Schedule] | lr_scheduler.LRScheduler | None = None
) -> int:
    """Steps the optimizer has done.

    Adam counts them itself; for SGD it is the scheduler's count, or 1 where only momentum buffers tell of some.
    """
    counts = {
        int(state["step"]) if "step" in state else 0
        for group in optimizer.param_groups
        for state in (optimizer.state.get(parameter, {}) for parameter in group["params"] if parameter.requires_grad)
    }
    has_buffers = any(state.get("momentum_buffer") is not None for state in optimizer.state.values())
    scheduled = int(schedule.last_epoch) if isinstance(schedule, lr_scheduler.LRScheduler) else None
    if len(counts) > 1:
        raise ValueError(
            f"the optimizer's parameters have done different numbers of steps ({', '.join(map(str, sorted(counts)))});"
            " a program counts one step for all. Start with a new optimizer."
        )
    counted = counts.pop() if counts else 0
    if counted == 0 and has_buffers:
        return max(1, scheduled or 0)
    if counted == 0 and type(optimizer) is torch.optim.SGD:
        return scheduled or 0
    if scheduled is not None and scheduled != counted:
        raise ValueError(
            f"the optimizer has done {counted} steps and its scheduler {scheduled}. Schedules count steps here,"
            " not epochs:"
            " give the scheduler its lengths in steps and call its step() after every optimizer step."
        )
    return counted


def _describers(optimizer: torch.optim.Optimizer) -> Any:
    # Exact types: a subclass may compute anything.
    if type(optimizer) is torch.optim.SGD:
        return _describe_sgd
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW):
        return _describe_adam
    name = type(optimizer).__name__
    bases = [
        base.__name__
        for base in type(optimizer).__mro__
        if base in (torch.optim.SGD, torch.optim.AdamW, torch.optim.Adam)
    ]
    nearest = bases[0] if bases else _NEAREST.get(name, "AdamW")
    raise ValueError(
        f"optimizer {name} is not supported; torch.optim.SGD, Adam and AdamW are."
        f" The nearest to it is torch.optim.{nearest}."
    )


def _names_by_tensor(named_parameters: Iterable[tuple[str, Tensor]] | Mapping[str, Tensor]) -> dict[int, str]:
    pairs = named_parameters.items() if isinstance(named_parameters, Mapping) else named_parameters
    names: dict[int, str] = {}
    for name, parameter in pairs:
        # The first name of a tied parameter counts.
        names.setdefault(id(parameter), name)
    return names


def _slot(name: str, parameter: Tensor, state: Mapping[str, Any]) -> StateSlot:
    initial = state.get(name)
    return StateSlot(name, tuple(parameter.shape), parameter.dtype, None if initial is None else initial.detach())


def _describe_sgd(
    name: str, group_index: int, parameter: Tensor, group: Mapping[str, Any], state: Mapping[str, Any], first_step: int
) -> ParameterUpdate:
    momentum = float(group["momentum"])
    dampening = float(group["dampening"])
    slot = None
    if momentum != 0:
        slot = _slot("momentum_buffer", parameter, state)
        if slot.initial is None and first_step > 0 and dampening != 0:
            raise ValueError(
                f"parameter {name} has no momentum buffer although {first_step} steps were done, and dampening is not"
                " 0, so its first step would differ from PyTorch's. Start with a new optimizer."
            )
    arguments = (momentum, dampening, float(group["weight_decay"]), bool(group["nesterov"]), bool(group["maximize"]))
    return ParameterUpdate(name, group_index, "tesser::sgd", (slot,), arguments)


def _describe_adam(
    name: str, group_index: int, parameter: Tensor, group: Mapping[str, Any], state: Mapping[str, Any], first_step: int
) -> ParameterUpdate:
    amsgrad = bool(group["amsgrad"])
    if amsgrad and state and "max_exp_avg_sq" not in state:
        raise ValueError(f"parameter {name} has Adam's history without amsgrad's. Start with a new optimizer.")
    slots = (
        _slot("exp_avg", parameter, state),
        _slot("exp_avg_sq", parameter, state),
        _slot("max_exp_avg_sq", parameter, state) if amsgrad else None,
    )
    beta1, beta2 = (float(beta) for beta in group["betas"])
    arguments = (
        beta1,
        beta2,
        float(group["eps"]),
        float(group["weight_decay"]),
        bool(group["decoupled_weight_decay"]),
        amsgrad,
        bool(group["maximize"]),
    )
    return ParameterUpdate(name, group_index, "tesser::adam", slots, arguments)
