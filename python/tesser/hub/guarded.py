"""Parameters and gradients that tell of changes by hand: the hub has the weights, and reads the gradients."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from tesser.hub.error import HubInputError

if TYPE_CHECKING:
    from tesser.hub.exchange import Exchange

# Past the classes below: these neither wait nor check.
grad_of = torch.Tensor.grad.__get__
set_grad = torch.Tensor.grad.__set__
_set_data = torch.Tensor.data.__set__


class _Guarded:
    """A tensor's version counts what is written into it, but not what is written through `.data`, which has a count of
    its own. Here `.data` is what detach() gives, which shares the count."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        _set_data(self, value)

    def _plain(self) -> torch.Tensor:
        return self.detach()

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        return memo.setdefault(id(self), copy.deepcopy(self._plain(), memo))

    def __reduce_ex__(self, protocol: int) -> tuple:
        return self._plain().__reduce_ex__(protocol)


class _GuardedGradient(_Guarded, torch.Tensor):
    pass


class _GuardedParameter(_Guarded):
    """Of one exchange, which `exchange` of its class is."""

    exchange: Exchange

    @property
    def data(self) -> torch.Tensor:
        self.exchange.wait_for(self)
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        _set_data(self, value)

    @property
    def grad(self) -> torch.Tensor | None:
        """It may be memory that the hub still reads: whoever gets it here may write into it."""
        self.exchange.wait_for(self)
        return grad_of(self)

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        set_grad(self, value)

    @grad.deleter
    def grad(self) -> None:
        set_grad(self, None)

    def _plain(self) -> torch.Tensor:
        self.exchange.wait_for(self)
        if isinstance(self, torch.nn.Parameter):
            return torch.nn.Parameter(self.detach(), self.requires_grad)
        return self.detach().requires_grad_(self.requires_grad)


def guard_gradient(gradient: torch.Tensor) -> torch.Tensor:
    if type(gradient) is torch.Tensor:
        gradient.__class__ = _GuardedGradient
    return gradient


def guard_parameters(parameters: Iterable[torch.Tensor], exchange: Exchange) -> None:
    """In place, so that every list of parameters has it. Other classes of parameters than torch's stay as they are."""
    made = {
        kind: type(kind.__name__, (_GuardedParameter, kind), {"exchange": exchange, "kind": kind})
        for kind in (torch.nn.Parameter, torch.Tensor)
    }
    for each in parameters:
        if type(each) in made:
            each.__class__ = made[type(each)]


def unguard_parameters(parameters: Iterable[torch.Tensor]) -> None:
    for each in parameters:
        if isinstance(each, _GuardedParameter):
            each.__class__ = type(each).kind


def is_guarded(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, _GuardedParameter)


def refuse_other_optimizers(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Before each step of each of torch's optimizers but the hub's: some do not even change the version."""
    if getattr(optimizer, "is_of_hub", False):
        return
    for number, group in enumerate(optimizer.param_groups):
        for index, each in enumerate(group["params"]):
            if is_guarded(each):
                raise HubInputError(
                    f"{type(optimizer).__name__} would change parameter {index} of its group {number}, which a hub "
                    "updates\nWhat to do: step() the optimizer that tesser.hub.wrap gave back, and no other over the "
                    "same parameters"
                )
