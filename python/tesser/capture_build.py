"""From a recording to a program: drops what nothing needs, names what is left, deterministically."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tesser.capture_values import RecordedNode, Value, values_in
from tesser.program import Node, Ref, Result


def live_nodes(nodes: list[RecordedNode], roots: Iterable[Value]) -> list[RecordedNode]:
    """Nodes whose results the roots depend on, in their order."""
    needed: set[RecordedNode] = set()
    pending = [value.producer for value in roots if value.producer is not None]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending.extend(
                value.producer for argument in node.args for value in values_in(argument) if value.producer is not None
            )
    return [node for node in nodes if node in needed]


def used_values(nodes: list[RecordedNode], roots: Iterable[Value]) -> set[Value]:
    return {value for node in nodes for argument in node.args for value in values_in(argument)} | set(roots)


def place_gradient_sums(nodes: list[RecordedNode]) -> None:
    """Gives sums of gradients, which have no forward node, the module and timestep they belong to.

    A sum belongs to the backward node that reads it, whose gradient it completes; where no such node is, as for the
    gradient of a parameter, to the later of its operands.
    """
    readers: dict[Value, RecordedNode] = {}
    for node in nodes:
        for argument in node.args:
            for value in values_in(argument):
                readers.setdefault(value, node)
    for node in nodes:
        if node.phase != "backward" or node.forward is not None or not node.op.startswith("aten::add"):
            continue
        reader = readers.get(node.outputs[0])
        operands = [
            value.producer for argument in node.args for value in values_in(argument) if value.producer is not None
        ]
        owner = (
            reader
            if reader is not None and reader.forward is not None
            else max(operands, key=lambda n: n.index, default=None)
        )
        if owner is not None and owner.phase == "backward":
            node.module = owner.module
            node.recurrence, node.timestep = owner.recurrence, owner.timestep


def pair_with_live_forward_nodes(nodes: list[RecordedNode]) -> None:
    """Pairs the derivatives of forward nodes that nothing reads with the nearest node of the same source line.

    Writes through views leave such nodes: the view that was written to is made again from the new content.
    """
    live = set(nodes)
    by_line: dict[tuple[str | None, str | None, int | None], list[RecordedNode]] = {}
    for node in nodes:
        if node.phase == "forward":
            by_line.setdefault((node.source, node.module, node.micro_batch), []).append(node)
    for node in nodes:
        forward = node.forward
        if forward is not None and forward not in live:
            near = by_line.get((forward.source, forward.module, forward.micro_batch), [])
            node.forward = min(near, key=lambda candidate: abs(candidate.index - forward.index), default=None)


class Names:
    """Names that are unique and depend only on the order of asking."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def new(self, base: str, parts: int = 1) -> str:
        """A name that is free, as are its `parts` numbered parts NAME.0, NAME.1 and so on."""
        number = self._next.get(base, 0)
        while True:
            name = base if number == 0 else f"{base}_{number}"
            number += 1
            asked = [name] if parts == 1 else [name, *(f"{name}.{index}" for index in range(parts))]
            if self._taken.isdisjoint(asked):
                break
        self._next[base] = number
        self._taken.update(asked)
        return name


def named_nodes(nodes: list[RecordedNode], names: Names) -> list[Node]:
    """Nodes as the program holds them: named after their operator and numbered, results after their node."""
    node_names: dict[RecordedNode, str] = {}
    built = []
    for node in nodes:
        if node.label:
            node_names[node] = node.label
        else:
            operator = node.op.partition("::")[2].partition(".")[0].lstrip("_")
            node_names[node] = names.new(operator, len(node.outputs))
        for index, output in enumerate(node.outputs):
            if output is not None and not output.name:
                output.name = node_names[node] if len(node.outputs) == 1 else f"{node_names[node]}.{index}"
        built.append(
            Node(
                name=node_names[node],
                op=node.op,
                args=[_named(argument) for argument in node.args],
                out=[None if value is None else Result(value.name, value.dtype, value.shape) for value in node.outputs],
                phase=node.phase,
                forward=None if node.forward is None else node_names[node.forward],
                module=node.module,
                source=node.source,
                recurrence=node.recurrence,
                timestep=node.timestep,
                micro_batch=node.micro_batch,
            )
        )
    return built


def _named(argument: Any) -> Any:
    if isinstance(argument, Value):
        return Ref(argument.name)
    if isinstance(argument, list):
        return [_named(entry) for entry in argument]
    return argument
