"""Runs programs in PyTorch, node by node: the reference that later stages are compared with.

    result = tesser.interpret("mnist.tesser", steps=20, batches=batches, seed=0)
    result.losses, result.state["conv1.weight"]

Every node is one call of its operator through ``torch.ops`` on real tensors; ``tesser::`` operators run their reference
implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

import tesser.operators  # noqa: F401  (registers the operators)
from tesser import schedules
from tesser.program import DTYPES, STATE_FILE, STEP_FILE, Enumerator, Node, Program, ProgramError, Ref, refs_in

_LAYOUTS = {"strided": torch.strided}
_MEMORY_FORMATS = {
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}


@dataclass
class Interpretation:
    """What a run gave: by step, the loss and metrics; at its end, all state by name (tied tensors under one name)."""

    losses: list[float] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)


class Interpreter:
    """A program with its state. Not thread-safe.

    `state` holds every parameter, optimizer state, buffer and constant by name and may be changed between steps; the
    tensors it is made with are not written to. `observe` is called with each node and its results as they are made.
    """

    def __init__(
        self,
        program: Program,
        state: Mapping[str, Tensor],
        *,
        seed: int = 0,
        observe: Callable[[Node, list[Tensor | None]], None] | None = None,
    ) -> None:
        self.program = program
        self.step_index = program.first_step
        self.seed = seed
        self.state: dict[str, Tensor] = {}
        self._observe = observe
        self._schedules = [schedules.from_json(entry) for entry in program.schedules]
        self._operators = [Operator(node) for node in program.nodes]
        self._last_reads = last_reads(program)
        for value in program.inputs:
            if value.is_state or value.role == "constant":
                self.state[value.name] = _initial(value.name, DTYPES[value.dtype], value.shape, value.initial, state)

    @staticmethod
    def open(directory: Path | str, file: str = STEP_FILE, **options: Any) -> Interpreter:
        """The program of a ``.tesser`` directory with its stored state; `file` may be ``forward.json``."""
        directory = Path(directory)
        program = Program.read(directory / file)
        return Interpreter(program, read_state(directory, program), **options)

    def step(self, batch: Mapping[str, Tensor]) -> tuple[float, dict[str, float]]:
        """Runs one training step; returns the loss and the metrics, and keeps the new state."""
        values = self._run(batch)
        loss, metrics, changed = outputs_of_step(self.program, values)
        self.state.update(changed)
        self.step_index += 1
        return loss, metrics

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Runs a forward program; returns its results by name."""
        values = self._run(batch)
        return {output.name: values[output.value] for output in self.program.outputs if output.role == "result"}

    @torch.no_grad()
    def _run(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        values = self._inputs(batch)
        for index, (node, operator) in enumerate(zip(self.program.nodes, self._operators)):
            results = operator(values)
            check_results(node, results)
            if self._observe is not None:
                self._observe(node, results)
            for result, tensor in zip(node.out, results):
                if result is not None:
                    values[result.name] = tensor
            for name in self._last_reads.get(index, ()):
                values.pop(name, None)
        return values

    def _inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        values = dict(self.state)
        for value in self.program.inputs:
            if value.role == "batch":
                if value.name not in batch:
                    raise ProgramError(f"the batch has no {value.name!r}; it has {sorted(batch)}")
                tensor = batch[value.name]
                if tensor.dtype != DTYPES[value.dtype] or list(tensor.shape) != value.shape:
                    raise ProgramError(
                        f"batch {value.name!r} is {tensor.dtype} of shape {list(tensor.shape)}; the program takes "
                        f"{value.dtype} of shape {value.shape}"
                    )
                values[value.name] = tensor
        return values | scalars_of_step(self.program, self._schedules, self.step_index, self.seed)


def interpret(
    program_dir: Path | str, steps: int, batches: Iterable[Mapping[str, Tensor]], *, seed: int = 0
) -> Interpretation:
    """Trains a program for `steps` steps on the first of `batches`, from its stored state."""
    interpreter = Interpreter.open(program_dir, seed=seed)
    result = Interpretation()
    remaining = iter(batches)
    for index in range(steps):
        batch = next(remaining, None)
        if batch is None:
            raise ProgramError(f"{steps} steps need as many batches; there are {index}")
        loss, metrics = interpreter.step(batch)
        result.losses.append(loss)
        result.metrics.append(metrics)
    result.state = interpreter.state
    return result


def read_state(directory: Path | str, program: Program) -> dict[str, Tensor]:
    """The stored values that a program of this directory needs."""
    names = [value.name for value in program.inputs if value.has_stored_value]
    if not names:
        return {}
    path = Path(directory) / STATE_FILE
    if not path.is_file():
        raise ProgramError(f"{path} does not exist: the program was captured without state, to be planned only")
    with safe_open(path, framework="pt") as file:
        missing = sorted(set(names) - set(file.keys()))
        if missing:
            raise ProgramError(f"{path} has no value for {', '.join(missing[:5])}")
        return {name: file.get_tensor(name) for name in names}


def scalars_of_step(program: Program, rates: Sequence[schedules.Schedule], step: int, seed: int) -> dict[str, Tensor]:
    """The inputs of roles step, seed and learning rate; `rates` by number of the program's schedule."""
    values = {}
    for value in program.inputs:
        if value.role == "step":
            values[value.name] = torch.tensor(step, dtype=torch.int64)
        elif value.role == "seed":
            values[value.name] = torch.tensor(seed, dtype=torch.int64)
        elif value.role == "learning_rate":
            values[value.name] = torch.tensor(rates[value.schedule].at(step), dtype=torch.float64)
    return values


def outputs_of_step(
    program: Program, values: Mapping[str, Tensor]
) -> tuple[float, dict[str, float], dict[str, Tensor]]:
    """The loss, the metrics, and the new content of the state that changes, by name."""
    loss, metrics, changed = float("nan"), {}, {}
    for output in program.outputs:
        value = values[output.value]
        if output.role == "loss":
            loss = value.item()
        elif output.role == "metric":
            metrics[output.name] = float(value.item())
        elif output.role == "state":
            changed[output.name] = value
    return loss, metrics, changed


class Operator:
    """A node's operator with its arguments made ready; called with the values by name."""

    def __init__(self, node: Node) -> None:
        namespace, _, rest = node.op.partition("::")
        packet, _, overload = rest.partition(".")
        try:
            self._function = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        except AttributeError:
            raise ProgramError(f"node {node.name!r}: no operator {node.op}") from None
        specs = self._function._schema.arguments
        if len(node.args) > len(specs):
            raise ProgramError(f"node {node.name!r}: {node.op} takes {len(specs)} arguments, not {len(node.args)}")
        if node.op in ("aten::view", "aten::_unsafe_view"):
            self._function = torch.ops.aten.reshape.default  # a program's views are of shapes, not of memory
        # Kernels that read memory as it lies do not say so: whatever makes memory of its own gets rows.
        self._takes_rows = all(result.alias_info is None for result in self._function._schema.returns)
        positional = sum(not spec.kwarg_only for spec in specs)
        self._positional = [_prepared(argument) for argument in node.args[:positional]]
        self._keywords = {
            spec.name: _prepared(argument) for spec, argument in zip(specs[positional:], node.args[positional:])
        }

    def __call__(self, values: Mapping[str, Tensor]) -> list[Tensor | None]:
        if self._takes_rows:
            values = _Rows(values)
        positional = [_resolved(argument, values) for argument in self._positional]
        keywords = {name: _resolved(argument, values) for name, argument in self._keywords.items()}
        out = self._function(*positional, **keywords)
        results: list[Tensor | None] = []
        for entry in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(entry, (tuple, list)):
                results.extend(entry)
            elif entry is None or isinstance(entry, Tensor):
                results.append(entry)
        return results


class _Rows(Mapping[str, Tensor]):
    """Tensors by name, brought into row-major memory when they are read."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name].contiguous()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _prepared(argument: Any) -> Any:
    if isinstance(argument, Enumerator):
        if argument.kind == "device":
            return torch.device(argument.name)
        return {"dtype": DTYPES, "layout": _LAYOUTS, "memory_format": _MEMORY_FORMATS}[argument.kind][argument.name]
    return argument


def _resolved(argument: Any, values: Mapping[str, Tensor]) -> Any:
    if isinstance(argument, Ref):
        return values[argument.name]
    if isinstance(argument, list) and any(isinstance(entry, Ref) for entry in argument):
        return [values[entry.name] if isinstance(entry, Ref) else entry for entry in argument]
    return argument


def check_results(node: Node, results: list[Tensor | None]) -> None:
    """The program's shapes and dtypes are what the operators really give."""
    if len(results) != len(node.out):
        raise ProgramError(
            f"node {node.name!r}: {node.op} gave {len(results)} results; the program says {len(node.out)}"
        )
    for expected, tensor in zip(node.out, results):
        if expected is None:
            continue
        if tensor is None or tensor.dtype != DTYPES[expected.dtype] or list(tensor.shape) != expected.shape:
            got = "nothing" if tensor is None else f"{tensor.dtype} of shape {list(tensor.shape)}"
            raise ProgramError(
                f"node {node.name!r}: {node.op} gave {got} for {expected.name!r}; the program says {expected.dtype} "
                f"of shape {expected.shape}"
            )


def _initial(
    name: str, dtype: torch.dtype, shape: list[int], initial: str | None, state: Mapping[str, Tensor]
) -> Tensor:
    if name not in state:
        if initial == "zeros":
            return torch.zeros(shape, dtype=dtype)
        raise ProgramError(f"no initial value for {name!r}")
    tensor = state[name].detach()
    if tensor.dtype != dtype or list(tensor.shape) != shape:
        raise ProgramError(
            f"{name!r} is {tensor.dtype} of shape {list(tensor.shape)}; the program says {dtype} of shape {shape}"
        )
    return tensor


def last_reads(program: Program) -> dict[int, list[str]]:
    """Names of intermediates by the node after which nothing reads them."""
    kept = {output.value for output in program.outputs} | {value.name for value in program.inputs}
    last: dict[str, int] = {}
    for index, node in enumerate(program.nodes):
        for result in node.out:
            if result is not None:
                last[result.name] = index
        for argument in node.args:
            for name in refs_in(argument):
                last[name] = index
    by_node: dict[int, list[str]] = {}
    for name, index in last.items():
        if name not in kept:
            by_node.setdefault(index, []).append(name)
    return by_node
