"""Values that are known at capture, since they depend on constants alone: Python may read them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from tesser.capture_values import RecordedNode, Value, values_in
from tesser.interpreter import Operator
from tesser.program import Node, Ref

LARGEST = 1 << 24  # elements of a value that is computed at capture
_WITHOUT_CONTENT = {
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
}


class KnownValues:
    """Contents of constants, and of what is computed from them, on demand."""

    def __init__(self) -> None:
        self._contents: dict[Value, Tensor | None] = {}

    def enter(self, value: Value, content: Tensor) -> None:
        with _disable_current_modes():
            self._contents[value] = None if content.device.type == "meta" else content.detach()

    def content(self, value: Value) -> Tensor | None:
        """None for what depends on the model's tensors, the batch, the step or the seed, or is large."""
        pending = [value]
        while pending:
            current = pending[-1]
            node = current.producer
            if current in self._contents:
                pending.pop()
            elif node is None or _is_unknown(node):
                self._contents[current] = None
            else:
                reads = _values_in(node.args)
                unseen = [read for read in reads if read not in self._contents]
                if unseen:
                    pending.extend(unseen)
                elif any(self._contents[read] is None for read in reads):
                    self._contents[current] = None
                else:
                    self._run(node)
        return self._contents[value]

    def _run(self, node: RecordedNode) -> None:
        values = {str(id(read)): self._contents[read] for read in _values_in(node.args)}
        operator = Operator(Node(node.op, node.op, [_named(argument) for argument in node.args], [], node.phase))
        with _disable_current_modes(), torch.no_grad():
            results = operator(values)
        for output, result in zip(node.outputs, results):
            if output is not None:
                self._contents[output] = result


def _is_unknown(node: RecordedNode) -> bool:
    sizes = [torch.Size(output.shape).numel() for output in node.outputs if output is not None]
    return node.op.partition(".")[0] in _WITHOUT_CONTENT or max(sizes) > LARGEST


def _values_in(arguments: list[Any]) -> list[Value]:
    return [value for argument in arguments for value in values_in(argument)]


def _named(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_named(entry) for entry in argument]
    return Ref(str(id(argument))) if isinstance(argument, Value) else argument
