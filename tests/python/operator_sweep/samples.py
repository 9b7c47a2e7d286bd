"""Samples of PyTorch's operator database as training steps.

A sample's floating tensors that need a gradient are the parameters, its other tensors buffers. The loss is a sum of the
operator's results weighted by fixed numbers, so that a mistake in one element shows whatever the others are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map

import tesser
from tesser.random import RandomMode

SEED = 3
RATE = 1.0


@dataclass(frozen=True)
class Variant:
    """An operator of the database, or its in-place form."""

    info: OpInfo
    in_place: bool

    @property
    def name(self) -> str:
        return self.info.full_name + (" in place" if self.in_place else "")


@dataclass
class Numbers:
    """What one step gives: its loss, and each parameter and persistent buffer after it."""

    loss: float
    state: dict[str, Tensor]
    size: float = 0.0  # sum of the magnitudes of the loss's terms
    is_random: bool = False


@dataclass
class Sample:
    variant: Variant
    index: int
    call: SampleInput

    @property
    def name(self) -> str:
        return f"{self.variant.name} #{self.index}"


@dataclass
class _Slot:
    """Stands in a sample's arguments for a tensor of the model."""

    name: str


class _Model(nn.Module):
    """A sample's tensors, and the operator called on them."""

    def __init__(self, sample: Sample, dtype: torch.dtype) -> None:
        super().__init__()
        self.function = _function(sample)
        self.process = sample.call.output_process_fn_grad
        names: dict[int, str] = {}

        def held(entry: Any) -> Any:
            if entry is torch.float32:
                return dtype
            if not isinstance(entry, Tensor):
                return entry
            if id(entry) not in names:
                tensor = entry.detach().clone()
                if tensor.dtype is torch.float32:
                    tensor = tensor.to(dtype)
                if entry.requires_grad:
                    names[id(entry)] = f"p{len(names)}"
                    self.register_parameter(names[id(entry)], nn.Parameter(tensor))
                else:
                    names[id(entry)] = f"b{len(names)}"
                    self.register_buffer(names[id(entry)], tensor)
            return _Slot(names[id(entry)])

        call = sample.call
        self.arguments = tree_map(held, (call.input, call.args, call.kwargs))

    def results(self) -> list[Tensor]:
        input, args, kwargs = tree_map(
            lambda entry: getattr(self, entry.name) if isinstance(entry, _Slot) else entry, self.arguments
        )
        out = self.process(self.function(input, *args, **kwargs))
        return [entry for entry in tree_flatten(out)[0] if isinstance(entry, Tensor)]

    def weigh(self, results: list[Tensor]) -> None:
        """Makes the weights of results of these shapes."""
        for index, result in enumerate(results):
            count = result.numel() * (2 if result.is_complex() else 1)
            weights = (torch.arange(count, dtype=torch.float64) * 0.7 + 0.3 + index).cos()
            shape = [*result.shape, 2] if result.is_complex() else result.shape
            self.register_buffer(f"w{index}", weights.reshape(shape).to(_accumulated(result.dtype)))

    def weighted(self, results: list[Tensor]) -> tuple[Tensor | None, float]:
        """The loss, and the sum of the magnitudes of its terms."""
        total, size = None, 0.0
        for index, result in enumerate(results):
            result = torch.view_as_real(result) if result.is_complex() else result
            terms = result * getattr(self, f"w{index}", 1.0)
            total = terms.sum() if total is None else total + terms.sum()
            size += float(terms.detach().abs().sum()) if not torch.compiler.is_compiling() else 0.0
        return total, size

    def loss(self) -> Tensor | None:
        return self.weighted(self.results())[0]


def _accumulated(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def _function(sample: Sample) -> Callable[..., Any]:
    info = sample.variant.info
    function = info.get_op()
    if sample.variant.in_place:
        in_place = info.get_inplace()
        # A parameter cannot be written into, a result can.
        function = lambda input, *args, **kwargs: in_place(_copy(input), *args, **kwargs)  # noqa: E731
    return lambda *args, **kwargs: info.gradcheck_wrapper(function, *args, **kwargs)


def _copy(entry: Any) -> Any:
    return tree_map(lambda part: part * 1 if isinstance(part, Tensor) else part, entry)


def variants() -> list[Variant]:
    """Every operator with autograd in float32, in the database's order, each followed by its in-place form."""
    found = []
    for info in op_db:
        if info.supports_autograd and torch.float32 in info.supported_backward_dtypes("cpu"):
            found.append(Variant(info, in_place=False))
            if info.get_inplace() is not None and info.supports_inplace_autograd:
                found.append(Variant(info, in_place=True))
    return found


def samples_of(variant: Variant) -> list[Sample]:
    """The same ones, with the same numbers, in every run."""
    torch.manual_seed(zlib.crc32(variant.info.full_name.encode()))
    calls = list(variant.info.sample_inputs("cpu", torch.float32, requires_grad=True))
    return [
        Sample(variant, index, call)
        for index, call in enumerate(calls)
        if not (variant.in_place and call.broadcasts_input)
    ]


def step_of(sample: Sample, dtype: torch.dtype = torch.float32) -> tesser.Step:
    """The step, which capture and eager take alike, its loss not yet weighted."""
    model = _Model(sample, dtype)
    batch = {"unused": torch.zeros(1)}
    trained = list(model.parameters())
    optimizer = torch.optim.SGD(trained or [torch.zeros(1)], lr=RATE)
    return tesser.Step(model, lambda model, batch: model.loss(), batch, optimizer, name="sample")


def run_eagerly(step: tesser.Step) -> Numbers | None:
    """One step of plain PyTorch, after which the model is as before, its loss weighted; none when nothing has a
    gradient. Raises what the operator raises.
    """
    model = step.model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with RandomMode(SEED, 0) as random:
        results = model.results()
        model.weigh(results)
        loss, size = model.weighted(results)
        if loss is None or not loss.requires_grad:
            gradients = None
        else:
            gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        drawn = random._next_id > 0
    after = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(before, strict=False)
    if gradients is None or all(gradient is None for gradient in gradients):
        return None
    for name, gradient in zip(dict(model.named_parameters()), gradients):
        if gradient is not None:
            after[name] = after[name] - RATE * gradient.detach()
    return Numbers(loss.item(), after, size, drawn)
