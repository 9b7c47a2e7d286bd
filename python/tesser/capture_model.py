"""The tensors a step owns: parameters and buffers with all their names; running the model with stand-ins for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin

from tesser.capture_error import CaptureError
from tesser.step import Step


@dataclass(eq=False)
class StateTensor:
    """One parameter or buffer. Tied ones are one StateTensor with several names."""

    name: str
    tensor: Tensor
    is_parameter: bool
    aliases: list[str] = field(default_factory=list)
    persistent: bool = True
    trainable: bool = False
    replacement: Tensor | None = None  # of a buffer that the model builds anew in its first pass, from shapes alone

    @property
    def content(self) -> Tensor:
        """What the step starts from."""
        return self.tensor if self.replacement is None else self.replacement


def state_tensors(model: nn.Module) -> list[StateTensor]:
    """Parameters, then buffers, in the model's order, each tensor once under its first name."""
    found: dict[int, StateTensor] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for own_name, tensor in module._parameters.items():
            if tensor is not None:
                name = f"{prefix}.{own_name}" if prefix else own_name
                _check_kind(name, tensor)
                _enter(found, StateTensor(name, tensor, is_parameter=True))
    for prefix, module in model.named_modules(remove_duplicate=False):
        for own_name, tensor in module._buffers.items():
            if tensor is not None:
                name = f"{prefix}.{own_name}" if prefix else own_name
                _check_kind(name, tensor)
                persistent = own_name not in module._non_persistent_buffers_set
                _enter(found, StateTensor(name, tensor, is_parameter=False, persistent=persistent))
    for name, _ in model.named_modules():
        if name:
            check_name(name, "module")
    for state in found.values():
        for name in (state.name, *state.aliases):
            check_name(name, "parameter" if state.is_parameter else "buffer")
    _refuse_shared_memory(list(found.values()))
    return list(found.values())


def check_name(name: object, what: str) -> None:
    """Refuses what no file of a program can hold as a name; names that the program uses itself are free."""
    if not isinstance(name, str):
        raise CaptureError(f"the {what} {name!r} has a name of type {type(name).__name__}; give it a string")
    if not name or name == "__metadata__" or any(letter < " " or letter == "\x7f" for letter in name):
        raise CaptureError(
            f"the {what} {name!r} has a name that programs cannot hold: empty, with a control character, or "
            "'__metadata__', which safetensors files keep for themselves; rename it"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CaptureError(f"the {what} {name!r} has a name that is no Unicode text; rename it") from None


def _enter(found: dict[int, StateTensor], state: StateTensor) -> None:
    known = found.setdefault(id(state.tensor), state)
    if known is not state and state.name != known.name and state.name not in known.aliases:
        known.aliases.append(state.name)
        known.persistent = known.persistent or state.persistent


def _check_kind(name: str, tensor: Tensor) -> None:
    if isinstance(tensor, UninitializedTensorMixin):
        raise CaptureError(
            f"{name!r} is a lazy parameter without a shape yet; run the model once on the example batch before "
            f"returning it"
        )
    if tensor.layout is not torch.strided:
        raise CaptureError(f"{name!r} has layout {tensor.layout}; use a dense tensor")


def storage_of(tensor: Tensor) -> int:
    """Identity of the memory a tensor lies in."""
    return tensor.untyped_storage()._cdata


def _refuse_shared_memory(states: list[StateTensor]) -> None:
    # Buffers that are only read may be views of one another, as precomputed tables often are.
    owners: dict[int, StateTensor] = {}
    for state in states:
        if state.is_parameter and state.tensor.numel() > 0:
            other = owners.setdefault(storage_of(state.tensor), state)
            if other is not state:
                raise CaptureError(
                    f"parameters {other.name!r} and {state.name!r} share memory without being the same tensor; "
                    "tie them by assigning the same nn.Parameter to both names, or make one a clone()"
                )


def sharing_buffer(state: StateTensor, states: list[StateTensor]) -> StateTensor | None:
    """Another state tensor that lies in the same memory."""
    return next(
        (other for other in states if other is not state and storage_of(other.tensor) == storage_of(state.tensor)), None
    )


def check_batch(batch: Mapping[str, Tensor], states: list[StateTensor], what: str) -> None:
    if not isinstance(batch, Mapping) or not batch:
        raise CaptureError(
            f"{what} of the step must be a non-empty mapping of names to tensors, such as "
            f"{{'images': images, 'labels': labels}}"
        )
    owners: dict[int, str] = {storage_of(state.tensor): state.name for state in states}
    names = {name for state in states for name in (state.name, *state.aliases)}
    for name, tensor in batch.items():
        if not isinstance(tensor, Tensor):
            raise CaptureError(
                f"{what}[{name!r}] is of type {type(tensor).__name__}; every entry must be a tensor under a string name"
            )
        check_name(name, f"tensor of the {what}")
        if name in names:
            raise CaptureError(f"{what}[{name!r}] has the name of a parameter or buffer of the model; rename it")
        if tensor.layout is not torch.strided:
            raise CaptureError(f"{what}[{name!r}] has layout {tensor.layout}; use a dense tensor")
        if tensor.requires_grad:
            raise CaptureError(f"{what}[{name!r}] needs a gradient; data does not, call detach() on it")
        if tensor.numel() > 0 and owners.setdefault(storage_of(tensor), name) != name:
            other = owners[storage_of(tensor)]
            raise CaptureError(
                f"{what}[{name!r}] shares its memory with {other!r}; in the program each is a tensor of its own, so "
                f"give each one: {name}.clone()"
            )
    _check_samples(batch, what)


def _check_samples(batch: Mapping[str, Tensor], what: str) -> None:
    """A batch is so many samples of the data, which lie along dimension 0 of every tensor."""
    first_name, first = next(iter(batch.items()))
    for name, tensor in batch.items():
        if tensor.dim() == 0:
            raise CaptureError(
                f"{what}[{name!r}] has no dimension, but samples lie along dimension 0 of every batch tensor. Use a "
                "Python number for what stays the same, and shape [B] for what each sample has"
            )
        if tensor.shape[0] == 0:
            raise CaptureError(
                f"{what}[{name!r}] has shape {list(tensor.shape)}, which holds no sample; give one or more"
            )
        if tensor.shape[0] != first.shape[0]:
            raise CaptureError(
                f"{what}[{name!r}] has {tensor.shape[0]} samples along dimension 0 and {what}[{first_name!r}] has "
                f"{first.shape[0]}; all need the same number. What is no list of samples, such as the nodes and edges "
                "of a graph, is one sample: give each tensor a dimension before its own (x[None]), so that a batch is "
                "one graph, and take it off in the loss (batch['x'][0])"
            )


def check_optimizer(step: Step, states: list[StateTensor]) -> None:
    """Marks the parameters the optimizer trains, and refuses what does not fit together."""
    if not isinstance(step.optimizer, torch.optim.Optimizer):
        raise CaptureError(
            f"optimizer of the step is of type {type(step.optimizer).__name__}; use torch.optim.SGD, Adam or AdamW"
        )
    by_tensor = {id(state.tensor): state for state in states if state.is_parameter}
    held = {id(parameter) for group in step.optimizer.param_groups for parameter in group["params"]}
    for index, group in enumerate(step.optimizer.param_groups):
        for position, parameter in enumerate(group["params"]):
            if id(parameter) not in by_tensor:
                raise CaptureError(
                    f"parameter {position} of the optimizer's group {index}, shape {list(parameter.shape)}, is not "
                    f"a parameter of the model; "
                    "give the optimizer model.parameters(), after the model has its final form"
                )
    outside = [
        state.name for state in by_tensor.values() if state.tensor.requires_grad and id(state.tensor) not in held
    ]
    if outside:
        shown = ", ".join(outside[:5]) + (f" and {len(outside) - 5} more" if len(outside) > 5 else "")
        raise CaptureError(
            f"parameters need gradients but are not in the optimizer: {shown}. Give them to the optimizer, or "
            f"freeze them with requires_grad_(False)"
        )
    for state in by_tensor.values():
        state.trainable = state.tensor.requires_grad
        if state.tensor._backward_hooks or state.tensor._post_accumulate_grad_hooks:
            raise CaptureError(
                f"{state.name!r} has a hook on its gradient, which a program does not run; clip with clip_norm or "
                "clip_value of the step, and change gradients in the loss"
            )
    if step.optimizer._optimizer_step_pre_hooks or step.optimizer._optimizer_step_post_hooks:
        raise CaptureError(
            "the optimizer has hooks on its step, which a program does not run; remove them. Clip gradients with "
            "clip_norm or clip_value of the step, set rates with its schedule, and keep averages of weights in buffers"
        )
    if not any(state.trainable for state in states):
        raise CaptureError(
            "no parameter of the model needs a gradient, so there is nothing to train; call requires_grad_() on those "
            "to train"
        )


@contextmanager
def stand_ins(model: nn.Module, replacements: dict[int, Tensor]) -> Iterator[None]:
    """Runs the body with the model's tensors replaced, by id; afterwards every module has the attributes it had.

    Also replaced are references in plain attributes and in lists there, such as recurrent layers keep of their weights.
    Containers among the attributes, a cache or a table of hooks say, get back what they held.
    """
    kept: list[tuple[Any, Any]] = []

    def replaced(entry: Any) -> Any:
        if isinstance(entry, Tensor):
            return replacements.get(id(entry), entry)
        if type(entry) in (list, tuple) and any(
            isinstance(part, Tensor) and id(part) in replacements for part in entry
        ):
            return type(entry)(replaced(part) for part in entry)
        return entry

    try:
        for module in list(model.modules()):
            containers = (entry for entry in module.__dict__.values() if isinstance(entry, (dict, list, set)))
            kept += [(container, container.copy()) for container in (module.__dict__, *containers)]
            for table in (module._parameters, module._buffers, module.__dict__):
                for key, entry in table.items():
                    table[key] = replaced(entry)
        yield
    finally:
        for container, entries in kept:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(entries)
