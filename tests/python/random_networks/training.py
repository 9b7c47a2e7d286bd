"""How a network is trained: the optimizer with its options and groups, clipping, schedules, frozen parameters."""

from __future__ import annotations

from dataclasses import dataclass

from tests.python.random_networks.draw import Draw
from tests.python.random_networks.text import call

SCHEDULES = (
    "None", "schedules.StepDecay(RATE, 2, 0.5)", "schedules.Linear(RATE, 0.3, 1.0, 3)",
    "schedules.Cosine(RATE, 0.001, 3)", "lr_scheduler.StepLR(optimizer, 1, 0.7)",
    "lr_scheduler.ExponentialLR(optimizer, 0.8)", "lr_scheduler.MultiStepLR(optimizer, [1, 3], 0.5)",
    "lr_scheduler.CosineAnnealingLR(optimizer, 6)", "lr_scheduler.LinearLR(optimizer, 0.4, 1.0, 3)",
    "lr_scheduler.ConstantLR(optimizer, 0.5, 2)",
)  # fmt: skip


@dataclass
class Training:
    samples: int  # of a micro-batch
    accumulate: int
    before: list[str]  # lines of step() before the optimizer
    optimizer: list[str]  # lines that make `optimizer`
    step: str  # further arguments of tesser.Step


def training(d: Draw) -> Training:
    samples = d.of("samples", 3, 1, 2, 4, 5, 6, 7)
    accumulate = d.of("accumulate", 1, 1, 1, 1, 1, 2, 3)
    every = d.of("frozen", 0, 0, 0, 5, 3)
    before = []
    if every:
        before = [
            "for number, parameter in enumerate(model.parameters()):",
            f"    parameter.requires_grad_(number % {every} != {every - 1})",
        ]
    kind = d.of("optimizer", "SGD", "Adam", "AdamW")
    rate = d.of("rate", 0.05, 0.2) if kind == "SGD" else d.of("adam_rate", 0.01, 0.003)
    decay = {"weight_decay": (d.of("decay", 0.0, 0.1), 0.0 if kind != "AdamW" else 0.01)}
    ascend = {"maximize": (d.of("maximize", False, False, False, True), False)}
    if kind == "SGD":
        momentum = d.of("momentum", 0.0, 0.9, 0.5)
        nesterov = bool(momentum) and d.flag("nesterov")
        dampening = d.of("dampening", 0.0, 0.3) if momentum and not nesterov else 0.0
        words = {"momentum": (momentum, 0.0), "nesterov": (nesterov, False), "dampening": (dampening, 0.0)}
    else:
        words = {
            "betas": (d.of("betas", "(0.9, 0.999)", "(0.8, 0.9)"), "(0.9, 0.999)"),
            # A gradient that is zero but for rounding must not become a step of the rate.
            "eps": (d.of("eps", 1e-3, 1e-2), None),
            "amsgrad": (d.flag("amsgrad"), False),
        }
    parameters = "model.parameters()"
    lines = []
    if d.flag("groups"):
        lines = ["parameters = list(model.parameters())"]
        more = d.of("group", "'lr': RATE", "'weight_decay': 0.05", "'lr': RATE, 'weight_decay': 0.2")
        more = more.replace("RATE", str(0.3 * rate))
        parameters = "[{'params': parameters[::2]}, {'params': parameters[1::2], " + more + "}]"
    schedule = d.of("schedule", *SCHEDULES).replace("RATE", str(rate))
    lines.append(f"optimizer = {call(f'torch.optim.{kind}', parameters, lr=(rate, None), **words, **decay, **ascend)}")
    step = ""
    clip = d.of("clip", 0.0, 0.0, 0.5, 0.05)
    if clip:
        step += f", clip_norm={clip}"
        kind_of_norm = d.of("norm", 2.0, 2.0, 2.0, 1.0, "float('inf')")
        step += f", clip_norm_type={kind_of_norm}" if kind_of_norm != 2.0 else ""
    by_value = d.of("clip_value", 0.0, 0.0, 0.0, 0.02)
    step += f", clip_value={by_value}" if by_value else ""
    step += f", accumulate={accumulate}" if accumulate > 1 else ""
    step += f", schedule={schedule}" if schedule != "None" else ""
    return Training(samples, accumulate, before, lines, step)
