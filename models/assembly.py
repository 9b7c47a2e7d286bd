"""How a model file's pieces become a step: sizes, sample fields, module, loss and optimizer.

Every model file holds ``MODELS``, the sizes of each model it defines as configurations (frozen dataclasses with a
``batch`` among their fields); ``fields(config)``, what one sample consists of; and ``step(size, ...)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tesser.step import LossFunction, Step

IGNORED = -100  # target without a loss: the default ignore_index of PyTorch's cross entropy


@dataclass(frozen=True)
class Field:
    """One named tensor of a sample: its shape and dtype, and how random samples of it are drawn.

    kind: ``normal`` (standard normal numbers), ``index`` (integers from 0 up to ``high`` - 1), ``masked_index``
    (indices of which about six in seven are IGNORED, the last of each sample never), ``prefix`` (true up to a
    random length) or ``prefix_ones`` (the same as integers, as tokenizers give it).
    """

    shape: tuple[int, ...]
    kind: str = "normal"
    high: int = 0

    @property
    def dtype(self) -> torch.dtype:
        return {"normal": torch.float32, "prefix": torch.bool}.get(self.kind, torch.int64)

    def draw(self, samples: int, generator: torch.Generator) -> Tensor:
        size = (samples, *self.shape)
        if self.kind == "normal":
            return torch.randn(size, generator=generator)
        if self.kind in ("prefix", "prefix_ones"):
            length = torch.randint(self.shape[-1] // 2, self.shape[-1] + 1, (*size[:-1], 1), generator=generator)
            return (torch.arange(self.shape[-1]) < length).to(self.dtype)
        drawn = torch.randint(self.high, size, generator=generator)
        if self.kind == "masked_index":
            ignored = torch.rand(size, generator=generator) < 6 / 7
            ignored[..., -1] = False
            drawn[ignored] = IGNORED
        return drawn


Fields = Mapping[str, Field]


def draw(fields: Fields, samples: int, seed: int) -> dict[str, Tensor]:
    """Random samples, dimension 0 counting them; the same ones for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return {name: field.draw(samples, generator) for name, field in fields.items()}


def configure(sizes: Mapping[str, Any], size: str, options: dict[str, Any]) -> Any:
    """The configuration of ``size`` with those options taken out of ``options`` that are fields of it."""
    if size not in sizes:
        raise ValueError(f"no size {size!r}; there are {', '.join(sizes)}")
    config = sizes[size]
    own = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(config, **{name: options.pop(name) for name in list(options) if name in own})


def _momentum(parameters: Any, lr: float, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, **{"momentum": 0.9, **options})


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": _momentum,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def assemble(
    sizes: Mapping[str, Any],
    size: str,
    options: dict[str, Any],
    *,
    build: Callable[[Any], nn.Module],
    fields: Callable[[Any], Fields],
    loss: LossFunction,
    optimizer: str | Callable[[nn.Module], torch.optim.Optimizer],
    learning_rate: float,
    optimizer_options: Mapping[str, Any] | None = None,
) -> Step:
    """The step of one size of a model.

    ``options`` may override any field of the size's configuration, and may hold ``optimizer`` (a name of OPTIMIZERS, or
    a function from the module to an optimizer), ``learning_rate``, ``optimizer_options`` (its further arguments),
    ``device`` (``cpu`` for the sizes tiny and bench; otherwise ``meta``, which allocates nothing), ``seed`` of the
    initial parameters, and any field of tesser.Step.
    """
    options = dict(options)
    config = configure(sizes, size, options)
    if "optimizer" in options:
        optimizer, optimizer_options = options.pop("optimizer"), None
    learning_rate = options.pop("learning_rate", learning_rate)
    optimizer_options = options.pop("optimizer_options", optimizer_options) or {}
    device = options.pop("device", "cpu" if size in ("tiny", "bench") else "meta")

    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(options.pop("seed", 0))
        model = build(config).train()
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise ValueError(f"no optimizer {optimizer!r}; there are {', '.join(OPTIMIZERS)}")
        made = OPTIMIZERS[optimizer](model.parameters(), lr=learning_rate, **optimizer_options)
    else:
        made = optimizer(model)

    sample = fields(config)
    if device == "meta":
        batch = {
            name: torch.empty(config.batch, *field.shape, dtype=field.dtype, device="meta")
            for name, field in sample.items()
        }
    else:
        batch = draw(sample, config.batch, seed=0)
    return Step(model, loss, batch, made, **options)


def image_fields(config: Any) -> Fields:
    """Images with one label each; the configuration has ``channels``, ``image`` and ``classes``."""
    return {
        "images": Field((config.channels, config.image, config.image)),
        "labels": Field((), "index", config.classes),
    }


def image_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["images"]), batch["labels"])


def token_fields(config: Any) -> Fields:
    """Token sequences and the token that follows each; the configuration has ``sequence`` and ``vocabulary``."""
    return {
        "tokens": Field((config.sequence,), "index", config.vocabulary),
        "targets": Field((config.sequence,), "index", config.vocabulary),
    }


def token_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    logits = model(batch["tokens"])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
