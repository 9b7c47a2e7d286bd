"""Arguments of operators as a program writes them."""

from __future__ import annotations

from typing import Any

import torch

from tesser.capture_error import CaptureError
from tesser.capture_values import Value, values_in
from tesser.program import Enumerator


def on_processor(argument: Any) -> Any:
    """A step built under torch.device("meta") asks for that device; the program has only the processor."""
    if isinstance(argument, torch.device) and argument.type == "meta":
        return torch.device("cpu")
    return argument


def with_scalars(name: str, args: list[Any], schema: torch.FunctionSchema, source: str | None) -> str:
    """Chooses the overload that takes a number where one stands for a tensor."""
    for position, (argument, spec) in enumerate(zip(args, schema.arguments)):
        if str(spec.type) == "Tensor" and isinstance(argument, (bool, int, float)):
            packet = name.removeprefix("aten::").partition(".")[0]
            for overload in getattr(torch.ops.aten, packet).overloads():
                if _takes_a_number(_schema_of(f"aten::{packet}.{overload}"), schema, position):
                    return f"aten::{packet}.{overload}"
            raise CaptureError(f"{name} with the number {argument}: write torch.tensor({argument}) for it", source)
    return name


def _takes_a_number(candidate: torch.FunctionSchema, schema: torch.FunctionSchema, position: int) -> bool:
    """Whether an overload has the same arguments but for a number at this position."""
    kinds = [str(spec.type) for spec in schema.arguments]
    kinds[position] = "number"
    return kinds == [str(spec.type) for spec in candidate.arguments]


def make_dtype_explicit(schema: torch.FunctionSchema, args: list[Any], outputs: list[Value | None]) -> None:
    """Operators that make a tensor from nothing name its dtype, so that no default of the process matters."""
    if any(values_in(argument) for argument in args):
        return
    for position, spec in enumerate(schema.arguments):
        if spec.name == "dtype" and args[position] is None and outputs[0] is not None:
            args[position] = Enumerator("dtype", outputs[0].dtype)


def _schema_of(op: str) -> torch.FunctionSchema:
    namespace, _, rest = op.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")._schema


def without_defaults(op: str, args: list[Any]) -> list[Any]:
    """Leaves out the trailing arguments that equal their default."""
    specs = _schema_of(op).arguments
    count = len(args)
    while count > 0 and specs[count - 1].has_default_value():
        default, argument = specs[count - 1].default_value, args[count - 1]
        same = argument is None if default is None else type(argument) is type(default) and argument == default
        if specs[count - 1].name in ("pin_memory", "non_blocking") and not argument:
            same = True
        if not same:
            break
        count -= 1
    # pin_memory and its like mean nothing to a program, wherever they stand
    return [None if specs[i].name == "pin_memory" else argument for i, argument in enumerate(args[:count])]
