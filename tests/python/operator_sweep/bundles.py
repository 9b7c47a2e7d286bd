"""Many captured steps as one program, since each start of the command takes as long as hundreds of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file

from tesser.capture import Captured
from tesser.program import STATE_FILE, STEP_FILE, Enumerator, Node, Output, Program, Ref, Result
from tests.python.commands import Outcome, run_tesser, train
from tests.python.operator_sweep.samples import SEED, Numbers

SHARED = ("step", "seed", "learning_rate", "batch")  # inputs that all parts have in common
MEMBER = re.compile(r"\bm(\d+)/")


@dataclass
class Failure:
    """How the command ended on a program."""

    code: int
    message: str


def merged(parts: Mapping[int, Program]) -> Program:
    """One step that does what all parts do, each under names that begin with its number; their losses are metrics.

    The loss is a constant: one that is not finite would end the run, and some parts have such a loss rightly.
    """
    first = next(iter(parts.values()))
    whole = replace(first, name="bundle", inputs=[], nodes=[], outputs=[])
    shared = {}
    scalar = Node("loss", "aten::scalar_tensor", [0.0, Enumerator("dtype", "float32")], [], "forward")
    scalar.out = [Result("loss", "float32", [])]
    whole.nodes.append(scalar)
    metrics, states = [], []
    for number, part in parts.items():
        assert part.schedules == first.schedules
        keep = {value.name for value in part.inputs if value.role in SHARED}
        shared |= {value.name: value for value in part.inputs if value.name in keep}

        def renamed(name: str | None, number: int = number, keep: set[str] = keep) -> str | None:
            return name if name is None or name in keep else f"m{number}/{name}"

        def argument(entry: Any, renamed: Callable = renamed) -> Any:
            if isinstance(entry, Ref):
                return Ref(renamed(entry.name))
            if isinstance(entry, list):
                return [argument(each) for each in entry]
            return entry

        whole.inputs += [
            replace(value, name=renamed(value.name), of=renamed(value.of))
            for value in part.inputs
            if value.name not in keep
        ]
        whole.nodes += [
            replace(
                node,
                name=renamed(node.name),
                forward=renamed(node.forward),
                args=argument(node.args),
                out=[None if out is None else replace(out, name=renamed(out.name)) for out in node.out],
            )
            for node in part.nodes
        ]
        for output in part.outputs:
            if output.role == "loss":
                metrics.append(Output("metric", renamed(output.value), f"m{number}"))
            elif output.role == "state":
                states.append(Output("state", renamed(output.value), renamed(output.name)))
    whole.inputs += shared.values()
    order = ("parameter", "optimizer_state", "buffer", "batch", "constant", "step", "learning_rate", "seed")
    whole.inputs.sort(key=lambda value: order.index(value.role))
    whole.outputs = [Output("loss", "loss"), *metrics, *states]
    return whole


def write(directory: Path, parts: Mapping[int, Captured]) -> None:
    directory.mkdir()
    program = merged({number: part.program for number, part in parts.items()})
    state = {}
    for number, part in parts.items():
        state |= {f"m{number}/{name}": tensor.contiguous().clone() for name, tensor in part.state.items()}
    (directory / STEP_FILE).write_text(program.to_text(), encoding="utf-8")
    stored = {value.name for value in program.inputs if value.has_stored_value}
    save_file({name: tensor for name, tensor in state.items() if name in stored}, directory / STATE_FILE)


def train_once(directory: Path, parts: Mapping[int, Captured], *words: object) -> dict[int, Numbers] | Failure:
    """One step of all parts by the command; `directory` does not exist yet."""
    directory.mkdir(parents=True)
    write(directory / "bundle.tesser", parts)
    (directory / "data").mkdir()
    np.save(directory / "data" / "unused.npy", np.zeros(1, dtype=np.float32))
    outcome = train(
        directory / "bundle.tesser", directory / "data", "--steps", 1, "--no-shuffle", "--seed", SEED,
        "--checkpoint", directory / "checkpoint", "--every", 1, *words,
    )  # fmt: skip
    if outcome.code != 0:
        return _failure(outcome)
    exported = run_tesser("export", directory / "checkpoint", "-o", directory / "after.safetensors")
    if exported.code != 0:
        return _failure(exported)
    metrics = outcome.of("step")[0]["metrics"]
    losses = {number: metrics[f"m{number}"] for number in parts}
    # Events say null for what is not finite.
    numbers = {number: Numbers(math.nan if loss is None else loss, {}) for number, loss in losses.items()}
    for name, tensor in load_file(directory / "after.safetensors").items():
        number, _, own_name = name.removeprefix("m").partition("/")
        numbers[int(number)].state[own_name] = tensor
    return numbers


def _failure(outcome: Outcome) -> Failure:
    lines = [line for line in outcome.errors.splitlines() if "warning" not in line]
    return Failure(outcome.code, "\n".join(lines[-12:]))


def train_each(parts: Mapping[int, Captured], directory: Path, *words: object) -> dict[int, Numbers | Failure]:
    """What each part gives. A bundle that fails is run again without the part that its message names, or in halves."""
    done: dict[int, Numbers | Failure] = {}
    pending: list[Sequence[int]] = [list(parts)]
    runs = 0
    while pending:
        numbers = pending.pop()
        if not numbers:
            continue
        runs += 1
        result = train_once(directory / str(runs), {number: parts[number] for number in numbers}, *words)
        if not isinstance(result, Failure):
            done |= result
        elif len(numbers) == 1:
            done[numbers[0]] = result
        else:
            named = {int(number) for number in MEMBER.findall(result.message)} & set(numbers)
            if len(named) == 1:
                done[min(named)] = result
                pending.append([number for number in numbers if number not in named])
            else:
                half = len(numbers) // 2
                pending += [numbers[:half], numbers[half:]]
    return done
