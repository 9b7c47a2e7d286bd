"""The steps whose training is compared with PyTorch's: every model with every optimizer, and every option of an
optimizer and of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, lr_scheduler

import models
import tesser
from tesser.schedules import Cosine, Linear, OneCycle, StepDecay, warmup_cosine
from tests.python.models.equality import TOLERANCES, Tolerance

# Where a gradient is zero but for rounding (the bias of attention's keys), Adam's quotient is noise unless eps is well
# above it.
EPS = 1e-5

# See Case.switching.
SWITCHING = Tolerance(loss=1e-5, relative=1e-4, absolute=1e-5)


@dataclass(frozen=True)
class Case:
    """A model in its size tiny; `optimizer` makes the optimizer of its module, `options` go to models.load, `change` is
    applied to the step.

    `switching` is for deep networks of convolutions with ReLU. Where the input of a ReLU is zero but for rounding, its
    derivative is 0 in one run and 1 in the other; batch normalisation makes more of that in every step, until two right
    runs have little in common. The shifts of the batch normalisations start at 2.5 there, so that few inputs lie near
    zero, and the tolerance is that of SWITCHING.
    """

    model: str
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    options: dict[str, Any] | None = None
    change: Callable[[tesser.Step], None] | None = None
    dtype: torch.dtype = torch.float32
    switching: bool = False

    @property
    def tolerance(self) -> Tolerance:
        return SWITCHING if self.switching else TOLERANCES[self.dtype]

    def step(self) -> tesser.Step:
        options = dict(self.options or {})
        if self.optimizer is not None:
            options["optimizer"] = self.optimizer
        if self.dtype is not torch.float32:
            make = options.pop("optimizer")
            options["optimizer"] = lambda module: make(module.to(self.dtype))
        step = models.load(self.model, "tiny", **options)
        step.batch = {name: self._converted(tensor) for name, tensor in step.batch.items()}
        if self.switching:
            for module in step.model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    nn.init.constant_(module.bias, 2.5)
        if self.change is not None:
            self.change(step)
        return step

    def samples(self, steps: int) -> dict[str, Tensor]:
        size = len(next(iter(self.step().batch.values())))
        drawn = models.data(self.model, "tiny", samples=steps * size, seed=1, **(self.options or {}))
        return {name: self._converted(tensor) for name, tensor in drawn.items()}

    def _converted(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor


def _made(kind: type[torch.optim.Optimizer], **options: Any) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda module: kind(module.parameters(), **options)


def _two_groups(module: nn.Module) -> torch.optim.Optimizer:
    """The head first and with another rate, betas and decay: groups in another order than the parameters."""
    head = [parameter for name, parameter in module.named_parameters() if name.startswith("head")]
    rest = [parameter for name, parameter in module.named_parameters() if not name.startswith("head")]
    return AdamW(
        [{"params": head, "lr": 2e-3, "betas": (0.8, 0.99)}, {"params": rest, "weight_decay": 0.2}], lr=5e-4, eps=EPS
    )


def _momentum_in_one_group(module: nn.Module) -> torch.optim.Optimizer:
    weights = [parameter for parameter in module.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in module.parameters() if parameter.dim() == 1]
    return SGD([{"params": weights, "momentum": 0.9, "weight_decay": 0.1}, {"params": others}], lr=5e-4)


def _frozen(*prefixes: str) -> Callable[[nn.Module], torch.optim.Optimizer]:
    def make(module: nn.Module) -> torch.optim.Optimizer:
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(not name.startswith(prefixes))
        return AdamW([parameter for parameter in module.parameters() if parameter.requires_grad], lr=1e-3, eps=EPS)

    return make


def _scheduled(make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]) -> Callable[[tesser.Step], None]:
    def change(step: tesser.Step) -> None:
        step.schedule = make(step.optimizer)

    return change


SWITCHING_MODELS = (
    "inception_v3", "mobilenet_v2", "resnet18", "resnet50", "vgg16", "wresnet50", "wresnet101", "wresnet152",
)  # fmt: skip


def _pairs(model: str) -> dict[str, Case]:
    switching = model in SWITCHING_MODELS
    factor = 0.1 if switching else 1.0
    optimizers = {
        "sgd": _made(SGD, lr=1e-5 if model == "inception_v3" else 1e-3 * factor, momentum=0.9),
        "adam": _made(Adam, lr=3e-4 * factor, eps=EPS),
        "adamw": _made(AdamW, lr=3e-4 * factor, eps=EPS),
    }
    return {f"{model}-{name}": Case(model, make, switching=switching) for name, make in optimizers.items()}


# Every model with every optimizer.
PAIRS = {name: case for model in models.names() for name, case in _pairs(model).items()}

# Every option of an optimizer and of a step at least once; where it can be, with different models.
CASES = {
    "alexnet-momentum-decay": Case("alexnet", _made(SGD, lr=0.01, momentum=0.9, weight_decay=0.05)),
    "bert-adamw-clip-norm": Case("bert", _made(AdamW, lr=1e-3, eps=EPS, weight_decay=0.1), {"clip_norm": 1.0}),
    "fcn5-sgd": Case("fcn5", _made(SGD, lr=0.05)),
    "gpt-groups-accumulate": Case("gpt", _two_groups, {"accumulate": 2, "clip_norm": 1.0}),
    "gru_lm-adam": Case("gru_lm", _made(Adam, lr=1e-3, eps=EPS)),
    "inception_v3-dampening": Case(
        "inception_v3", _made(SGD, lr=1e-5, momentum=0.9, dampening=0.3), switching=True
    ),
    "llama-adamw-cosine": Case("llama", _made(AdamW, lr=1e-3, eps=EPS), {"schedule": Cosine(1e-3, 1e-5, 15)}),
    "lstm_lm-sgd-clip-norm": Case("lstm_lm", _made(SGD, lr=0.5), {"clip_norm": 0.25}),
    "mlp-adamw": Case("mlp", _made(AdamW, lr=1e-3, eps=EPS)),
    "mobilenet_v2-adam-decay": Case(
        "mobilenet_v2", _made(Adam, lr=1e-4, eps=EPS, weight_decay=0.1), switching=True
    ),
    "resnet18-one-cycle": Case(
        "resnet18",
        _made(SGD, lr=1e-3, momentum=0.9),
        {"schedule": OneCycle(maximum=1e-3, initial=1e-4, final=1e-6, steps=20)},
        switching=True,
    ),
    "resnet50-nesterov": Case(
        "resnet50", _made(SGD, lr=5e-4, momentum=0.9, nesterov=True, weight_decay=0.1), switching=True
    ),
    "rnn-adam-amsgrad": Case("rnn", _made(Adam, lr=1e-3, eps=EPS, betas=(0.9, 0.6), amsgrad=True)),
    "unet-clip-value": Case("unet", _made(SGD, lr=0.02, momentum=0.9), {"clip_value": 0.01}),
    "vgg16-linear": Case(
        "vgg16", _made(SGD, lr=2e-3, momentum=0.9), {"schedule": Linear(2e-3, 0.1, 1.0, 10)}, switching=True
    ),
    "vit-adamw-amsgrad-warmup": Case(
        "vit", _made(AdamW, lr=1e-3, eps=EPS, betas=(0.9, 0.6), amsgrad=True), {"schedule": warmup_cosine(1e-3, 5, 20)}
    ),
    "wresnet50-step-decay": Case(
        "wresnet50", _made(SGD, lr=1e-3), {"schedule": StepDecay(1e-3, every=7, factor=0.5)}, switching=True
    ),
    "wresnet101-groups": Case("wresnet101", _momentum_in_one_group, switching=True),
    "wresnet152-clip-largest": Case(
        "wresnet152", _made(SGD, lr=2e-3), {"clip_norm": 0.1, "clip_norm_type": float("inf")}, switching=True
    ),
    "gpt-untied": Case("gpt", _made(AdamW, lr=1e-3, eps=EPS), {"tied": False}),
    "gpt-frozen-embedding": Case("gpt", _frozen("token_embedding", "blocks.0.feed_forward_norm")),
    "bert-frozen-encoder-block": Case("bert", _frozen("encoder.blocks.0")),
    "resnet18-accumulate": Case("resnet18", _made(SGD, lr=1e-3), {"accumulate": 2}, switching=True),
    "lstm_lm-accumulate": Case("lstm_lm", _made(Adam, lr=1e-3, eps=EPS), {"accumulate": 4, "clip_norm": 1.0}),
    "gpt-schedule-for-each-group": Case(
        "gpt", _two_groups, {"schedule": [Cosine(2e-3, 0.0, 20), StepDecay(5e-4, 5, 0.5)]}
    ),
    "rnn-steplr": Case(
        "rnn",
        _made(SGD, lr=0.1, momentum=0.9),
        change=_scheduled(lambda optimizer: lr_scheduler.StepLR(optimizer, 6, gamma=0.5)),
    ),
    "mlp-onecyclelr": Case(
        "mlp",
        _made(AdamW, lr=1e-3, eps=EPS),
        change=_scheduled(
            lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=20, cycle_momentum=False)
        ),
    ),
    "mlp-clip-both": Case(
        "mlp",
        _made(AdamW, lr=1e-3, eps=EPS),
        {"clip_value": 0.003, "clip_norm": 0.05, "clip_norm_type": 1.0},
    ),
    "mlp-dampening": Case("mlp", _made(SGD, lr=0.02, momentum=0.9, dampening=0.3)),
    "mlp-sgd-maximize": Case("mlp", _made(SGD, lr=1e-3, momentum=0.5, maximize=True)),
    "fcn5-float64": Case("fcn5", _made(Adam, lr=1e-3, eps=EPS), dtype=torch.float64),
}  # fmt: skip
