"""What a step file returns: everything one training step is made of."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from tesser.schedules import Schedule

Batch = Mapping[str, Tensor]
LossFunction = Callable[[nn.Module, Batch], "Tensor | tuple[Tensor, Mapping[str, Tensor]]"]
ForwardFunction = Callable[[nn.Module, Batch], "Tensor | Mapping[str, Tensor]"]


@dataclass
class Step:
    """One training step, as a step file's ``step()`` returns it.

    Attributes:
        model: the module, in the mode it is trained in (``train()`` as a rule).
        loss: called as ``loss(model, batch)``; returns a scalar, or a scalar and a mapping of scalar metrics by name.
        batch: example tensors by name. Names are those of the data files; shapes and dtypes are fixed by this example,
            its values are not used.
        optimizer: ``torch.optim`` SGD, Adam or AdamW over the model's parameters, with any parameter groups.
        schedule: a ``tesser.schedules`` schedule for every group, one schedule a group, a ``torch.optim.lr_scheduler``
            that has a form as data, or nothing for each group's constant learning rate.
        clip_norm: largest norm of all gradients together (``torch.nn.utils.clip_grad_norm_``).
        clip_norm_type: which norm, 2 by default, ``inf`` allowed.
        clip_value: largest magnitude of a gradient's element (``torch.nn.utils.clip_grad_value_``).
        accumulate: number of micro-batches: the batch is cut along dimension 0 into so many equal parts, whose losses
            are averaged.
        forward: called as ``forward(model, batch)`` with the model in evaluation mode, for the forward program kept
            beside the step. Returns a tensor (named ``result``) or tensors by name. Scalars are averaged over a data
            set by ``tesser evaluate``.
        forward_batch: example tensors of the forward program; ``batch`` where it is not given.
        name: name of the program; the model's class name where it is not given.
    """

    model: nn.Module
    loss: LossFunction
    batch: Batch
    optimizer: torch.optim.Optimizer
    schedule: Schedule | list[Schedule] | torch.optim.lr_scheduler.LRScheduler | None = None
    clip_norm: float | None = None
    clip_norm_type: float = 2.0
    clip_value: float | None = None
    accumulate: int = 1
    forward: ForwardFunction | None = None
    forward_batch: Batch | None = None
    name: str | None = None
    # File and line that made it: refusals of its fields name them.
    source: tuple[str, int] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(("<", os.path.dirname(__file__) + os.sep)):
            frame = frame.f_back
        self.source = None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
