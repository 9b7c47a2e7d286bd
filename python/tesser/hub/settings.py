"""What a job asks of a hub (src/hub/job_settings.h), and how torch's optimizers say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tesser.hub.error import HubInputError

GRADIENT_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
ON_LOSS = ("stop", "continue", "wait")


@dataclass(frozen=True)
class ParameterGroup:
    """How tensors are updated, as far as it stays the same for the whole job."""

    algorithm: str = (
        "sgd"  # or "adam", or "assign": weights become the sum of what is given, neither averaged nor clipped
    )
    momentum: bool = False  # SGD: whether there is a momentum buffer
    nesterov: bool = False
    decoupled_weight_decay: bool = False  # Adam: AdamW
    amsgrad: bool = False
    maximize: bool = False

    @property
    def state_names(self) -> tuple[str, ...]:
        """The optimizer's state beside each tensor, as torch names it."""
        if self.algorithm == "assign":
            return ()
        if self.algorithm == "sgd":
            return ("momentum_buffer",) if self.momentum else ()
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if self.amsgrad else ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Numbers:
    """What may change from step to step, of one parameter group."""

    learning_rate: float
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def values(self) -> tuple[float, ...]:
        """In the order of the C interface."""
        return (self.learning_rate, self.momentum, self.dampening, self.weight_decay, self.beta1, self.beta2, self.eps)


@dataclass(frozen=True)
class Key:
    """One tensor. Names are unique."""

    name: str
    elements: int
    group: int = 0
    row_elements: int = 0  # of an embedding of whose gradient only the rows that were touched are given; else 0


@dataclass(frozen=True)
class Settings:
    """The same for every worker of a job."""

    replicas: int
    groups: tuple[ParameterGroup, ...]
    keys: tuple[Key, ...]
    racks: int = 1  # that the ranks are divided among in order, each with hubs of its own
    average: bool = True
    clip_norm: float = 0.0  # 0: no clipping
    gradient_dtype: torch.dtype = torch.float32  # as gradients travel
    on_loss: str = "stop"
    one_machine: bool = False
    chunk_bytes: int = 256 * 1024

    def to_json(self) -> str:
        if self.gradient_dtype not in GRADIENT_DTYPES:
            names = ", ".join(str(each) for each in GRADIENT_DTYPES)
            raise HubInputError(f"gradients travel as one of {names}, not as {self.gradient_dtype}")
        if self.on_loss not in ON_LOSS:
            raise HubInputError(f"on_loss is {self.on_loss!r}; it is one of {', '.join(ON_LOSS)}")
        return json.dumps(
            {
                "replicas": self.replicas,
                "racks": self.racks,
                "groups": [vars(group) for group in self.groups],
                "average": self.average,
                "clip_norm": self.clip_norm,
                "wire": GRADIENT_DTYPES[self.gradient_dtype],
                "update": "step",
                "on_loss": self.on_loss,
                "one_machine": self.one_machine,
                "chunk_bytes": self.chunk_bytes,
                "keys": [[key.name, key.elements, key.group, key.row_elements] for key in self.keys],
            }
        )


def algorithm_of(optimizer: torch.optim.Optimizer) -> str:
    kinds = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adam"}
    if type(optimizer) not in kinds:
        raise HubInputError(
            f"a hub does not update as {type(optimizer).__name__} does; it has torch.optim.SGD, Adam and AdamW"
        )
    return kinds[type(optimizer)]


def group_of(algorithm: str, group: Mapping) -> ParameterGroup:
    """Of one of an optimizer's param_groups."""
    if group.get("differentiable"):
        raise HubInputError("an optimizer with differentiable=True cannot be updated at a hub")
    maximize = bool(group.get("maximize", False))
    if algorithm == "sgd":
        return ParameterGroup("sgd", float(group["momentum"]) != 0, bool(group["nesterov"]), maximize=maximize)
    return ParameterGroup(
        "adam",
        decoupled_weight_decay=bool(group["decoupled_weight_decay"]),
        amsgrad=bool(group["amsgrad"]),
        maximize=maximize,
    )


def numbers_of(algorithm: str, group: Mapping) -> Numbers:
    """Of one of an optimizer's param_groups, as they are now."""
    if algorithm == "sgd":
        return Numbers(
            float(group["lr"]), float(group["momentum"]), float(group["dampening"]), float(group["weight_decay"])
        )
    beta1, beta2 = group["betas"]
    return Numbers(
        float(group["lr"]),
        weight_decay=float(group["weight_decay"]),
        beta1=float(beta1),
        beta2=float(beta2),
        eps=float(group["eps"]),
    )
