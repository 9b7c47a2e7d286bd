"""What makes a model wait for its weights: every way to a parameter by its module, and a module's own forward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tesser.hub.exchange import Exchange


class WaitingParameters(dict):
    """A module's _parameters. Whoever takes a parameter out gets it with its weights there: `self.weight` in any
    forward, parameters(), state_dict(), copies. A copy of the module has a plain dict."""

    __slots__ = ("exchange",)

    def __init__(self, parameters: dict[str, torch.nn.Parameter | None], exchange: Exchange) -> None:
        super().__init__(parameters)
        self.exchange = exchange

    def __getitem__(self, name: str) -> torch.nn.Parameter | None:
        parameter = super().__getitem__(name)
        if self.exchange.is_behind:
            self.exchange.wait_for(parameter)
        return parameter

    def get(self, name: str, default: object = None) -> object:
        parameter = super().get(name, default)
        if self.exchange.is_behind:
            self.exchange.wait_for(parameter)
        return parameter

    def values(self) -> object:
        self._wait()
        return super().values()

    def items(self) -> object:
        self._wait()
        return super().items()

    def pop(self, name: str, *default: object) -> object:
        self._wait()
        return super().pop(name, *default)

    def copy(self) -> dict:
        self._wait()
        return dict(super().items())

    def _wait(self) -> None:
        if self.exchange.is_behind:
            for parameter in super().values():
                self.exchange.wait_for(parameter)

    def __reduce_ex__(self, protocol: int) -> tuple:
        return dict, (self.copy(),)


def _nothing(*_: object, **__: object) -> None:
    """In the place of a hook in a copy of a model."""


def _get_nothing() -> object:
    return _nothing


class _Hook:
    """Of one model: neither a copy nor a file has it."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    def __reduce__(self) -> tuple:
        return _get_nothing, ()


class BeforeForward(_Hook):
    """For modules that keep parameters in places of their own, as torch.nn.LSTM does; and the job begins again here
    after a checkpoint was loaded."""

    def __call__(self, module: torch.nn.Module, inputs: object) -> None:
        if self.exchange.is_away and module.training and torch.is_grad_enabled():
            self.exchange.start()
        if self.exchange.is_behind:
            for parameter in dict.values(module._parameters):
                self.exchange.wait_for(parameter)


class BeforeLoading(_Hook):
    """A module is to get other weights."""

    def __call__(self, *_: object) -> None:
        self.exchange.go_away()


def install(model: torch.nn.Module, exchange: Exchange) -> Iterator[object]:
    """Gives back handles, which remove() the hooks."""
    keys = exchange.key_of
    for module in model.modules():
        if not any(id(parameter) in keys for parameter in module._parameters.values()):
            continue
        module._parameters = WaitingParameters(module._parameters, exchange)
        yield module.register_forward_pre_hook(BeforeForward(exchange))
        yield module.register_load_state_dict_pre_hook(BeforeLoading(exchange))


def uninstall(model: torch.nn.Module, handles: list) -> None:
    for handle in handles:
        handle.remove()
    for module in model.modules():
        if isinstance(module._parameters, WaitingParameters):
            module._parameters = module._parameters.copy()
