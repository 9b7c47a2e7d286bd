"""What makes a model wait for its weights: every way to a parameter by its module, and a module's own forward. A module
may have parameters of several exchanges (of two optimizers, say)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tesser.hub.exchange import Exchange


class WaitingParameters(dict):
    """A module's _parameters. Whoever takes a parameter out gets it with its weights there: `self.weight` in any
    forward, parameters(), state_dict(), copies. A copy of the module has a plain dict."""

    __slots__ = ("exchanges",)

    def __init__(self, parameters: dict[str, torch.nn.Parameter | None], exchanges: tuple[Exchange, ...]) -> None:
        super().__init__(parameters)
        self.exchanges = exchanges

    def __getitem__(self, name: str) -> torch.nn.Parameter | None:
        parameter = super().__getitem__(name)
        for exchange in self.exchanges:
            if exchange.is_behind:
                exchange.wait_for(parameter)
        return parameter

    def get(self, name: str, default: object = None) -> object:
        parameter = super().get(name, default)
        for exchange in self.exchanges:
            if exchange.is_behind:
                exchange.wait_for(parameter)
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
        for exchange in self.exchanges:
            if exchange.is_behind:
                for parameter in super().values():
                    exchange.wait_for(parameter)

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
        if torch.compiler.is_compiling():  # step() has waited, and looks itself
            return
        if self.exchange.is_away and module.training and torch.is_grad_enabled():
            self.exchange.start()
        self.exchange.take_buffers()
        self.exchange.prepare(dict.values(module._parameters))


class BeforeLoading(_Hook):
    """A module is to get other weights."""

    def __call__(self, *_: object) -> None:
        self.exchange.go_away()


class NoSync:
    """model.no_sync(), as DistributedDataParallel has it, of all exchanges of the model. A copy of it does nothing."""

    def __init__(self) -> None:
        self.exchanges: tuple[Exchange, ...] = ()

    def __call__(self) -> contextlib.AbstractContextManager:
        stack = contextlib.ExitStack()
        for exchange in self.exchanges:
            stack.enter_context(exchange.paused())
        return stack

    def __reduce__(self) -> tuple:
        return NoSync, ()


def install(model: torch.nn.Module, exchange: Exchange) -> Iterator[object]:
    """Gives back handles, which remove() the hooks."""
    keys = exchange.key_of
    with_buffers = set() if exchange.buffers is None else exchange.buffers.modules()
    for module in model.modules():
        has_keys = any(id(parameter) in keys for parameter in module._parameters.values())
        if has_keys:
            others = module._parameters.exchanges if isinstance(module._parameters, WaitingParameters) else ()
            module._parameters = WaitingParameters(module._parameters.copy(), (*others, exchange))
        if has_keys or module in with_buffers:
            yield module.register_forward_pre_hook(BeforeForward(exchange))
            yield module.register_load_state_dict_pre_hook(BeforeLoading(exchange))
    if not hasattr(model, "no_sync"):
        model.no_sync = NoSync()
    if isinstance(model.no_sync, NoSync):
        model.no_sync.exchanges += (exchange,)


def uninstall(model: torch.nn.Module, exchange: Exchange, handles: list) -> None:
    for handle in handles:
        handle.remove()
    for module in model.modules():
        parameters = module._parameters
        if isinstance(parameters, WaitingParameters):
            parameters.exchanges = tuple(each for each in parameters.exchanges if each is not exchange)
            if not parameters.exchanges:
                module._parameters = parameters.copy()
    if isinstance(getattr(model, "no_sync", None), NoSync):
        model.no_sync.exchanges = tuple(each for each in model.no_sync.exchanges if each is not exchange)
        if not model.no_sync.exchanges:
            del model.no_sync
