"""Counter-based random numbers in place of PyTorch's: :class:`RandomMode`.

Inside the mode everything random becomes an operator of ``tesser/operators.py``, whose numbers depend on seed, step,
the operator's place among the random operators of the step, and the element. So PyTorch's eager run of a step under
``RandomMode(seed, step)`` has the same dropout masks and noise as tesser's run of step `step` with that seed. Anything
random that has no such form is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tesser.operators  # noqa: F401  (registers the operators)
from tesser import recurrent

_active: ContextVar[RandomMode | None] = ContextVar("tesser_random_mode", default=None)


class UnsupportedRandomness(ValueError):
    """Something random was called that has no counter-based form."""


def active_mode() -> RandomMode | None:
    """The innermost RandomMode this thread is in."""
    return _active.get()


def _refuse(what: str, remedy: str) -> UnsupportedRandomness:
    return UnsupportedRandomness(f"{what} cannot be made counter-based. {remedy}")


class _Guard(TorchDispatchMode):
    """Refuses every random aten operator that reaches PyTorch's own generator."""

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in operator.tags and not _uses_no_random_numbers(operator, args, kwargs):
            raise _refuse(
                f"{operator.name()}, which draws from PyTorch's generator,",
                "Use dropout, torch.rand, randn, randint, bernoulli or normal of the size you need"
                " and compute from these.",
            )
        return operator(*args, **kwargs)


def _uses_no_random_numbers(operator: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a call's arguments switch an operator's randomness off: dropout with p = 0, or not in training."""
    values = {a.name: a.default_value for a in operator._schema.arguments if a.has_default_value()}
    values.update(zip((a.name for a in operator._schema.arguments), args, strict=False))
    values.update(kwargs)
    if "dropout_p" in values:
        return values["dropout_p"] == 0
    if "train" in values or "training" in values:
        return not values.get("train", values.get("training"))
    return False


def _size_of(args: tuple) -> tuple[int, ...]:
    """The size given as torch.rand(2, 3) or torch.rand((2, 3))."""
    if len(args) == 1 and isinstance(args[0], (tuple, list, torch.Size)):
        args = tuple(args[0])
    return tuple(int(dimension) for dimension in args)


class RandomMode(TorchFunctionMode):
    """Replaces what is random by counter-based operators, in call order from id 0 at each entry.

    `seed` and `step` are integers, or int64 scalars (capture passes traced ones). Dropout with p = 0 or outside
    training leaves its input as it is and takes no id. Generators are refused. `guard` refuses random operators the
    mode does not know by name as they reach the dispatcher; capture, which sees all operators itself, may switch it
    off.
    """

    def __init__(self, seed: Tensor | int, step: Tensor | int, guard: bool = True) -> None:
        super().__init__()
        self._seed = torch.as_tensor(seed, dtype=torch.int64)
        self._step = torch.as_tensor(step, dtype=torch.int64)
        self._next_id = 0
        self._guards = [_Guard()] if guard else []
        self._tokens: list[Any] = []

    def __enter__(self) -> RandomMode:
        self._next_id = 0
        self._tokens.append(_active.set(self))
        for guard in self._guards:
            guard.__enter__()
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for guard in self._guards:
            guard.__exit__(*exception)
        _active.reset(self._tokens.pop())

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if recurrent.is_recurrent(function):
            return self._recurrent(function, args, kwargs)
        replacement = _REPLACEMENTS.get(function)
        if replacement is None:
            return function(*args, **kwargs)
        if kwargs.get("generator") is not None:
            raise _refuse(
                f"{_name(function)} with a generator", "Leave the generator out: numbers come from the run's seed."
            )
        if kwargs.get("out") is not None:
            raise _refuse(f"{_name(function)} with out=", "Use its result instead.")
        kwargs.pop("generator", None)
        kwargs.pop("out", None)
        return replacement(self, *args, **kwargs)

    def _id(self) -> int:
        if torch._C._current_graph_task_id() != -1:
            raise _refuse(
                "Randomness in a forward pass that is recomputed by the backward pass (activation checkpointing)",
                "Leave dropout out of the checkpointed part.",
            )
        self._next_id += 1
        return self._next_id - 1

    # Operators

    def dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        """F.dropout with this mode's numbers."""
        return self._drop(x, p, training, inplace, None)

    def _drop(self, x: Tensor, p: float, training: bool, inplace: bool, channels: int | None) -> Tensor:
        _check_probability(p)
        if not training or p == 0:
            return x
        if channels is None:
            result = torch.ops.tesser.dropout(x, float(p), self._seed, self._step, self._id())
        else:
            result = torch.ops.tesser.dropout.channels(x, float(p), self._seed, self._step, self._id(), channels)
        return x.copy_(result) if inplace else result

    def _uniform(self, size: Sequence[int], low: float = 0.0, high: float = 1.0) -> Tensor:
        return torch.ops.tesser.uniform(list(size), float(low), float(high), self._seed, self._step, self._id())

    def _normal(self, size: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Tensor:
        return torch.ops.tesser.normal(list(size), float(mean), float(std), self._seed, self._step, self._id())

    def _randint(self, size: Sequence[int], low: int, high: int) -> Tensor:
        return torch.ops.tesser.randint(list(size), int(low), int(high), self._seed, self._step, self._id())

    def _bernoulli(self, p: Tensor) -> Tensor:
        return torch.ops.tesser.bernoulli(p, self._seed, self._step, self._id())

    # Replacements of PyTorch's functions

    def _dropout1d(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if x.dim() not in (2, 3):
            raise ValueError(f"dropout1d takes an input of 2 or 3 dimensions, not {x.dim()}")
        return self._drop(x, p, training, inplace, x.dim() - 1)

    def _dropout2d(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        # Three dimensions are [N, C, L] here, as in PyTorch, not one unbatched image.
        return self._drop(x, p, training, inplace, 2)

    def _dropout3d(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if x.dim() not in (4, 5):
            raise ValueError(f"dropout3d takes an input of 4 or 5 dimensions, not {x.dim()}")
        return self._drop(x, p, training, inplace, x.dim() - 3)

    def _feature_dropout(self, x: Tensor, p: float, train: bool) -> Tensor:
        return self._drop(x, p, train, False, 2)

    def _native_dropout(self, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        raise _refuse("torch.native_dropout, which returns its mask,", "Use torch.nn.functional.dropout.")

    def _alpha_dropout(self, x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
        return self._alpha_drop(x, p, training, inplace, x.shape)

    def _feature_alpha_dropout(
        self, x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
    ) -> Tensor:
        return self._alpha_drop(x, p, training, inplace, (*x.shape[:2], *(1 for _ in x.shape[2:])))

    def _alpha_drop(self, x: Tensor, p: float, training: bool, inplace: bool, mask_shape: Sequence[int]) -> Tensor:
        _check_probability(p)
        if not training or p == 0:
            return x
        if p == 1:
            result = x * 0.0
        else:
            alpha = 1.7580993408473766
            scale = 1.0 / math.sqrt((alpha * alpha * p + 1) * (1 - p))
            keep = self._bernoulli(torch.full(tuple(mask_shape), 1 - p, dtype=x.dtype, device=x.device))
            result = x * (keep * scale) + ((keep - 1) * (alpha * scale) + alpha * scale * p)
        return x.copy_(result) if inplace else result

    def _rrelu(
        self, x: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
    ) -> Tensor:
        slope = self._uniform(x.shape, lower, upper).to(x.dtype) if training else (lower + upper) / 2
        result = torch.where(x <= 0, x * slope, x)
        return x.copy_(result) if inplace else result

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if dropout_p == 0:
            # By its operator: F's function may be replaced by this one, see _multi_head_attention.
            options = {"scale": scale, "enable_gqa": enable_gqa}
            return torch.ops.aten.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, **options)
        if enable_gqa:
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
            value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
        scores = torch.matmul(query, key.transpose(-2, -1)) * (
            1 / math.sqrt(query.shape[-1]) if scale is None else scale
        )
        softmax = torch.softmax
        if is_causal:
            if attn_mask is not None:
                raise ValueError("scaled_dot_product_attention: give attn_mask or is_causal, not both")
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        elif attn_mask is not None:
            # Zeros, not nan, in a row that is masked altogether.
            softmax = torch._safe_softmax
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        return torch.matmul(self.dropout(softmax(scores, -1), dropout_p), value)

    def _multi_head_attention(self, *args: Any, **kwargs: Any) -> Any:
        # Its body runs with this mode switched off and finds these two as globals of its module.
        with _replaced(F, dropout=self.dropout, scaled_dot_product_attention=self._attention):
            return F.multi_head_attention_forward(*args, **kwargs)

    def _recurrent(self, function: Any, args: tuple, kwargs: dict) -> Any:
        mode = recurrent.active_mode()
        if mode is not None:
            return mode.run(function, args, kwargs)
        if len(args) == 9 and args[5] > 0 and args[6] and args[4] > 1:
            return recurrent.run_layers(function, args, kwargs, recurrent.default_name(function))
        return function(*args, **kwargs)

    def _rand(self, *size: Any, names: None = None, **options: Any) -> Tensor:
        return _finish(self._uniform(_size_of(size or (options.pop("size"),))), **options)

    def _randn(self, *size: Any, names: None = None, **options: Any) -> Tensor:
        return _finish(self._normal(_size_of(size or (options.pop("size"),))), **options)

    def _rand_like(self, x: Tensor, **options: Any) -> Tensor:
        return _finish(self._uniform(x.shape), **{"dtype": x.dtype, **options})

    def _randn_like(self, x: Tensor, **options: Any) -> Tensor:
        return _finish(self._normal(x.shape), **{"dtype": x.dtype, **options})

    def _randint_function(
        self, *args: Any, size: Any = None, low: int = 0, high: int | None = None, **options: Any
    ) -> Tensor:
        positional = list(args)
        if size is None:
            size = positional.pop()
        if len(positional) == 2:
            low, high = positional
        elif len(positional) == 1:
            # randint(high, size) and randint(low, high=..., size=...)
            low, high = (positional[0], high) if high is not None else (low, positional[0])
        return _finish(self._randint(_size_of((size,)), low, high), **{"dtype": torch.int64, **options})

    def _randint_like(self, x: Tensor, low: int = 0, high: int | None = None, **options: Any) -> Tensor:
        low, high = (0, low) if high is None else (low, high)
        return _finish(self._randint(x.shape, low, high), **{"dtype": x.dtype, **options})

    def _bernoulli_function(self, x: Tensor, p: float | None = None) -> Tensor:
        return self._bernoulli(x if p is None else torch.full_like(x, p))

    def _normal_function(
        self, mean: Tensor | float = 0.0, std: Tensor | float = 1.0, size: Any = None, **options: Any
    ) -> Tensor:
        if isinstance(mean, Tensor) or isinstance(std, Tensor):
            shape = torch.broadcast_shapes(*(t.shape for t in (mean, std) if isinstance(t, Tensor)))
            dtype = mean.dtype if isinstance(mean, Tensor) else std.dtype
            return self._normal(shape).to(dtype) * std + mean
        return _finish(self._normal(_size_of((size,)), mean, std), **options)

    def _bernoulli_(self, x: Tensor, p: Tensor | float = 0.5) -> Tensor:
        dtype = x.dtype if x.is_floating_point() else torch.float32
        probability = (
            p.expand(x.shape) if isinstance(p, Tensor) else torch.full(x.shape, float(p), dtype=dtype, device=x.device)
        )
        return x.copy_(self._bernoulli(probability))

    def _normal_(self, x: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
        return x.copy_(self._normal(x.shape, mean, std))

    def _uniform_(self, x: Tensor, from_: float = 0.0, to: float = 1.0, **keywords: float) -> Tensor:
        return x.copy_(self._uniform(x.shape, keywords.get("from", from_), to))

    def _random_(self, x: Tensor, *bounds: int, **keywords: int) -> Tensor:
        high = keywords.get("to", bounds[-1] if bounds else None)
        low = keywords.get("from", bounds[0] if len(bounds) == 2 else 0)
        if high is None:
            raise _refuse("Tensor.random_ without a bound", "Give it one: random_(low, high).")
        return x.copy_(self._randint(x.shape, low, high))


def _fractional_pooling(function: Callable[..., Any], dimensions: int) -> Callable[..., Any]:
    """The function with the beginnings of its regions from this mode, where it would draw them itself."""

    def pool(mode: RandomMode, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("_random_samples") is None:
            batch = x.shape[0] if x.dim() == dimensions + 2 else 1
            kwargs["_random_samples"] = mode._uniform((batch, x.shape[-dimensions - 1], dimensions)).to(x.dtype)
        return function(x, *args, **kwargs)

    return pool


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _finish(
    values: Tensor,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device: Any = None,
    layout: Any = None,
    pin_memory: bool | None = None,
    memory_format: Any = None,
) -> Tensor:
    """The options of PyTorch's factory functions on values that are there already; the device stays the seed's."""
    dtype = dtype or (torch.get_default_dtype() if values.is_floating_point() else values.dtype)
    values = values.to(dtype)
    return values.requires_grad_() if requires_grad else values


@contextmanager
def _replaced(module: Any, **functions: Callable[..., Any]) -> Iterator[None]:
    before = {name: getattr(module, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(module, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _name(function: Any) -> str:
    return f"torch.{getattr(function, '__name__', function)}"


_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    F.dropout: RandomMode.dropout,
    torch.dropout: RandomMode.dropout,
    torch.dropout_: lambda mode, x, p, train: mode.dropout(x, p, train, True),
    F.dropout1d: RandomMode._dropout1d,
    F.dropout2d: RandomMode._dropout2d,
    F.dropout3d: RandomMode._dropout3d,
    torch.feature_dropout: RandomMode._feature_dropout,
    torch.native_dropout: RandomMode._native_dropout,
    F.alpha_dropout: RandomMode._alpha_dropout,
    torch.alpha_dropout: RandomMode._alpha_dropout,
    F.feature_alpha_dropout: RandomMode._feature_alpha_dropout,
    torch.feature_alpha_dropout: RandomMode._feature_alpha_dropout,
    F.rrelu: RandomMode._rrelu,
    torch.rrelu: RandomMode._rrelu,
    F.scaled_dot_product_attention: RandomMode._attention,
    F.multi_head_attention_forward: RandomMode._multi_head_attention,
    # PyTorch's own code passes the last argument, _random_samples, by keyword.
    F.fractional_max_pool2d: _fractional_pooling(F.fractional_max_pool2d, 2),
    F.fractional_max_pool2d_with_indices: _fractional_pooling(F.fractional_max_pool2d_with_indices, 2),
    F.fractional_max_pool3d: _fractional_pooling(F.fractional_max_pool3d, 3),
    F.fractional_max_pool3d_with_indices: _fractional_pooling(F.fractional_max_pool3d_with_indices, 3),
    torch.rand: RandomMode._rand,
    torch.randn: RandomMode._randn,
    torch.rand_like: RandomMode._rand_like,
    torch.randn_like: RandomMode._randn_like,
    torch.randint: RandomMode._randint_function,
    torch.randint_like: RandomMode._randint_like,
    torch.bernoulli: RandomMode._bernoulli_function,
    Tensor.bernoulli: RandomMode._bernoulli_function,
    torch.normal: RandomMode._normal_function,
    Tensor.bernoulli_: RandomMode._bernoulli_,
    Tensor.normal_: RandomMode._normal_,
    Tensor.uniform_: RandomMode._uniform_,
    Tensor.random_: RandomMode._random_,
}
