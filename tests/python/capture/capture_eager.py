"""The plain PyTorch loop that a captured program is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.optim import lr_scheduler

from tesser import schedules
from tesser.random import RandomMode
from tesser.step import Step


def train_eagerly(
    step: Step, batches: Iterable[Mapping[str, Tensor]], seed: int = 0, first_step: int = 0
) -> tuple[list[float], list[dict[str, float]]]:
    """Trains the step's own model as a user would, random numbers excepted; returns losses and metrics by step."""
    for group in step.optimizer.param_groups:
        group["foreach"] = False
    losses, all_metrics = [], []
    for index, batch in enumerate(batches, start=first_step):
        if step.schedule is not None and not isinstance(step.schedule, lr_scheduler.LRScheduler):
            for group, schedule in zip(
                step.optimizer.param_groups, schedules.for_groups(step.schedule, step.optimizer)
            ):
                group["lr"] = schedule.at(index)
        step.optimizer.zero_grad()
        total, metrics = 0.0, {}
        with RandomMode(seed, index):
            for micro in range(step.accumulate):
                result = step.loss(step.model, _part(batch, micro, step.accumulate))
                loss, found = result if isinstance(result, tuple) else (result, {})
                loss = loss / step.accumulate
                loss.backward()
                total += loss.item()
                for name, value in found.items():
                    metrics[name] = metrics.get(name, 0.0) + value.item() / step.accumulate
        if step.clip_value is not None:
            torch.nn.utils.clip_grad_value_(step.model.parameters(), step.clip_value, foreach=False)
        if step.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(step.model.parameters(), step.clip_norm, step.clip_norm_type, foreach=False)
        step.optimizer.step()
        if isinstance(step.schedule, lr_scheduler.LRScheduler):
            step.schedule.step()
        losses.append(total)
        all_metrics.append(metrics)
    return losses, all_metrics


def _part(batch: Mapping[str, Tensor], index: int, count: int) -> dict[str, Tensor]:
    return {name: tensor.chunk(count)[index] if tensor.dim() else tensor for name, tensor in batch.items()}


def batches_like(step: Step, count: int, seed: int = 1) -> list[dict[str, Tensor]]:
    """Batches of the example's form; whole numbers stay within the example's."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        batch = {}
        for name, example in step.batch.items():
            if example.is_floating_point():
                batch[name] = torch.randn(example.shape, generator=generator, dtype=example.dtype)
            elif example.dtype is torch.bool:
                batch[name] = torch.rand(example.shape, generator=generator) < 0.5
            else:
                batch[name] = torch.randint(
                    0, int(example.max()) + 1, example.shape, generator=generator, dtype=example.dtype
                )
        made.append(batch)
    return made
