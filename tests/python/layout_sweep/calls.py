"""Calls of operators as programs hold them: their samples are PyTorch's tests of operators and modules, and the models
of this tree, captured and interpreted."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

LARGEST = 300_000  # elements of one tensor
CALLS_OF_ONE_KIND = 3  # with as many dimensions and equal dtypes
CALLS_OF_ONE_OPERATOR = 36
# Their results are arbitrary, drawn or memory; or the runtime has a way of its own to run them.
LEFT_OUT = (
    "aten::empty", "aten::new_empty", "aten::view", "aten::_unsafe_view", "aten::reshape", "aten::resize",
    "aten::set_",    "aten::_reshape_alias", "aten::item", "aten::_local_scalar_dense", "aten::equal", "aten::lift",
    "aten::is_same_size",
    "aten::contiguous", "aten::_fused", "aten::_foreach", "aten::_sparse", "aten::sparse", "aten::_to_sparse",
    "aten::_assert", "aten::_nested", "aten::nonzero", "aten::unique", "aten::_unique", "aten::masked_select",
    "aten::is_", "aten::_is_", "aten::view_as_complex", "aten::_conj", "aten::_neg_view", "aten::_efficientzerotensor",
)  # fmt: skip


@dataclass
class Call:
    """One call; `args` has one entry per argument of the schema, tensors row-major."""

    operator: str
    args: list[Any]
    source: str = ""

    @property
    def function(self) -> Any:
        return function_of(self.operator)

    @property
    def tensors(self) -> list[tuple[str, Tensor]]:
        """Every tensor with the name of its argument."""
        found: list[tuple[str, Tensor]] = []
        for spec, argument in zip(self.function._schema.arguments, self.args):
            entries = argument if isinstance(argument, list) else [argument]
            found += [(spec.name, entry) for entry in entries if isinstance(entry, Tensor)]
        return found

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Results of the call with other tensors in the place of its own; dtype arguments follow a floating type."""
        remaining = iter(tensors)

        def replaced(argument: Any) -> Any:
            if isinstance(argument, Tensor):
                return next(remaining)
            if isinstance(argument, list):
                return [replaced(entry) for entry in argument]
            return argument

        args = [replaced(argument) for argument in self.args]
        specs = self.function._schema.arguments
        positional = sum(not spec.kwarg_only for spec in specs)
        keywords = {spec.name: argument for spec, argument in zip(specs[positional:], args[positional:])}
        out = self.function(*args[:positional], **keywords)
        flat = itertools.chain.from_iterable(
            entry if isinstance(entry, (list, tuple)) else [entry]
            for entry in (out if isinstance(out, (list, tuple)) else [out])
        )
        return [entry for entry in flat if isinstance(entry, Tensor)]

    def with_tensors(self, tensors: Sequence[Tensor], source: str) -> Call:
        remaining = iter(tensors)

        def replaced(argument: Any) -> Any:
            if isinstance(argument, Tensor):
                return next(remaining)
            return [replaced(entry) for entry in argument] if isinstance(argument, list) else argument

        return Call(self.operator, [replaced(argument) for argument in self.args], source)

    @property
    def signature(self) -> str:
        def text(argument: Any) -> str:
            if isinstance(argument, Tensor):
                return f"{argument.dtype}{list(argument.shape)}"
            return f"[{','.join(map(text, argument))}]" if isinstance(argument, list) else repr(argument)

        return f"{self.operator}({', '.join(map(text, self.args))})"


def function_of(operator: str) -> Any:
    packet, _, overload = operator.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def tensor_arguments(operator: str) -> list[Any]:
    return [argument for argument in function_of(operator)._schema.arguments if "Tensor" in str(argument.type)]


def is_view(function: Any) -> bool:
    returns = function._schema.returns
    return any(value.alias_info is not None and not value.alias_info.is_write for value in returns)


def functional(function: Any) -> Any | None:
    """The operator that a program has in the place of this one."""
    schema = function._schema
    if not schema.is_mutable:
        return function
    packet = schema.name.removeprefix("aten::")
    if not packet.endswith("_"):
        return None
    with suppress(AttributeError):
        return getattr(getattr(torch.ops.aten, packet[:-1]), schema.overload_name or "default")
    return None


@dataclass
class Calls:
    """Different calls of each operator, a bounded number of each kind."""

    by_operator: dict[str, dict[str, Call]] = field(default_factory=lambda: defaultdict(dict))
    _kinds: Counter[Any] = field(default_factory=Counter)

    def add(self, function: Any, args: Sequence[Any], keywords: dict[str, Any], source: str) -> None:
        if function.namespace != "aten":
            return
        if torch.Tag.nondeterministic_seeded in function.tags and "scaled_dot_product" not in function.name():
            return
        function = functional(function)
        if function is None or function.name().startswith(LEFT_OUT):
            return
        specs = function._schema.arguments
        full = list(args)
        for spec in specs[len(full) :]:
            full.append(keywords.get(spec.name, spec.default_value if spec.has_default_value() else None))
        if any(spec.name == "memory_format" and given is not None for spec, given in zip(specs, full)):
            return  # the result's layout is what the argument says; the table has what it is without
        full = [list(argument) if isinstance(argument, (tuple, torch.Size)) else argument for argument in full]
        tensors = [
            entry
            for argument in full
            for entry in (argument if isinstance(argument, list) else [argument])
            if isinstance(entry, Tensor)
        ]
        if not tensors or any(not _plain(tensor) for tensor in tensors):
            return
        operator = function.name()
        kind = (operator, tuple((tensor.dim(), tensor.dtype) for tensor in tensors[:8]))
        if self._kinds[kind] >= CALLS_OF_ONE_KIND:
            return
        call = Call(operator, full, source)
        known, signature = self.by_operator[operator], call.signature
        if signature in known or len(known) >= CALLS_OF_ONE_OPERATOR:
            return
        if all(math.prod(tensor.shape) == max(tensor.shape, default=1) for tensor in tensors) and len(known) > 3:
            return  # no dimension but one: its layouts are few
        self._kinds[kind] += 1
        rows = [tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in tensors]
        known[signature] = call.with_tensors(rows, source)

    def lift(self) -> None:
        """Adds calls of four and five dimensions where an operator has none and takes leading ones."""
        for operator, known in list(self.by_operator.items()):
            if is_view(function_of(operator)):
                continue
            for dims in (4, 5):
                if any(tensor.dim() == dims for call in known.values() for _, tensor in call.tensors):
                    continue
                for call in list(known.values())[:4]:
                    lifted = _lifted(call, dims)
                    if lifted is not None:
                        known[lifted.signature] = lifted
                        break


def _plain(tensor: Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.dtype.is_complex
        and not tensor.is_quantized
        and 0 < tensor.numel() <= LARGEST
        and type(tensor) in (Tensor, torch.nn.Parameter)
    )


def _lifted(call: Call, dims: int) -> Call | None:
    tensors = [tensor for _, tensor in call.tensors]
    rank = max(tensor.dim() for tensor in tensors)
    if rank == 0 or rank >= dims:
        return None
    leading = (2, 3, 4, 2)[: dims - rank]
    count = math.prod(leading)

    def repeated(tensor: Tensor) -> Tensor:
        if tensor.dim() != rank:
            return tensor
        return torch.stack([tensor.flatten().roll(k) for k in range(count)]).reshape(*leading, *tensor.shape)

    lifted = call.with_tensors([repeated(tensor) for tensor in tensors], f"{call.source}, lifted")
    return lifted if _runs(lifted) else None


def _runs(call: Call) -> bool:
    """Whether a made-up call can be run, tried where a crash does no harm."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with suppress(Exception):
                for _ in range(3):
                    call.run([tensor.clone() for _, tensor in call.tensors])
                status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


class Recording(TorchDispatchMode):
    """Notes every call below autograd while the mode is on."""

    def __init__(self, calls: Calls, source: str) -> None:
        super().__init__()
        self._calls = calls
        self._source = source

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with suppress(AttributeError, RuntimeError):
            self._calls.add(func, args, kwargs or {}, self._source)
        return func(*args, **(kwargs or {}))


def differentiate(function: Callable[[], Any], inputs: Sequence[Tensor]) -> None:
    """Runs `function` and its derivative for the `inputs`."""
    out = function()
    flat = [
        entry for entry in torch.utils._pytree.tree_leaves(out) if isinstance(entry, Tensor) and entry.requires_grad
    ]
    wanted = [tensor for tensor in inputs if tensor.requires_grad and tensor.is_leaf]
    if flat and wanted:
        torch.autograd.grad(flat, wanted, [torch.randn_like(entry) for entry in flat], allow_unused=True)


def leaves(*values: Any) -> list[Tensor]:
    return [entry for entry in torch.utils._pytree.tree_leaves(values) if isinstance(entry, Tensor)]


def from_operators(calls: Calls, samples: int = 30, names: Sequence[str] | None = None) -> None:
    """From the samples of PyTorch's operator tests."""
    from torch.testing._internal.common_methods_invocations import op_db

    for entry in op_db:
        if names is not None and entry.name not in names:
            continue
        for dtype, count in ((torch.float32, samples), (torch.int64, 3), (torch.bool, 2)):
            if not entry.supports_dtype(dtype, "cpu"):
                continue
            for sample in _samples(entry, dtype, count):
                arguments = leaves(sample.input, sample.args, sample.kwargs)
                run = lambda entry=entry, sample=sample: entry.op(sample.input, *sample.args, **sample.kwargs)  # noqa: E731
                with suppress(Exception), Recording(calls, entry.name):
                    differentiate(run, arguments)


def _samples(entry: Any, dtype: torch.dtype, count: int) -> Iterator[Any]:
    torch.manual_seed(7)
    with suppress(Exception):
        gradient = dtype.is_floating_point and entry.supports_autograd
        yield from itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=gradient), count)


def from_modules(calls: Calls, samples: int = 20) -> None:
    """From the samples of PyTorch's module tests."""
    from torch.testing._internal.common_modules import module_db

    for entry in module_db:
        torch.manual_seed(7)
        with suppress(Exception):
            inputs = entry.module_inputs_func(
                entry, device="cpu", dtype=torch.float32, requires_grad=True, training=True
            )
            for sample in itertools.islice(inputs, samples):
                with suppress(Exception):
                    made = sample.constructor_input
                    module = entry.module_cls(*made.args, **made.kwargs)
                    given = sample.forward_input
                    arguments = leaves(given.args, given.kwargs, list(module.parameters()))
                    with Recording(calls, entry.name):
                        differentiate(lambda module=module, given=given: module(*given.args, **given.kwargs), arguments)


def from_models(calls: Calls, report: Callable[[str], None] = lambda text: None) -> None:
    """From the programs of models/ and of models/architectures, as the interpreter runs them."""
    import models
    from models import architectures
    from tesser.capture import capture
    from tesser.interpreter import Interpreter

    steps: list[tuple[str, Callable[[], Any]]] = [
        (name, lambda name=name: models.load(name)) for name in models.names()
    ]
    with suppress(ImportError):
        steps += [(name, lambda name=name: architectures.load(name)) for name in architectures.names()]
    for name, make in steps:
        try:
            step = make()
            captured = capture(step)
            with Recording(calls, name):
                Interpreter(captured.program, captured.state).step(step.batch)
        except Exception as error:
            report(f"{name}: no calls: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
