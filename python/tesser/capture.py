"""Capture: from a :class:`tesser.Step` to a program (docs/capture.md).

The model is never allocated or changed: the step runs once on tensors without memory and is written down.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tesser import optimizers, schedules
from tesser.capture_build import (
    Names,
    live_nodes,
    named_nodes,
    pair_with_live_forward_nodes,
    place_gradient_sums,
    used_values,
)
from tesser.capture_error import CaptureError, SourceLines
from tesser.capture_model import StateTensor, check_batch, check_name, check_optimizer, state_tensors
from tesser.capture_recorder import Constant
from tesser.capture_trace import RebuiltBuffersError, Trace, trace_forward, trace_step
from tesser.capture_values import Value
from tesser.program import FORWARD_FILE, STATE_FILE, STEP_FILE, Input, Output, Program
from tesser.step import Step

SUFFIX = ".tesser"


@dataclass
class Captured:
    """A captured step: its programs and the initial values of their state."""

    program: Program
    forward: Program | None
    state: dict[str, Tensor] | None  # None: planned only, nothing to start from
    without_gradient: list[str]  # trainable parameters that the loss does not depend on and that no step changes

    def save(self, path: Path | str) -> Path:
        """Writes the directory beside `path` and renames it when complete; replaces nothing but a program directory,
        and where `path` is a link, what it leads to."""
        place = output_place(path)
        try:
            self._save(place, place.parent)
        except OSError as error:
            raise CaptureError(f"{path}: cannot be written: {error.strerror or error}") from error
        return Path(path)

    def _save(self, path: Path, parent: Path) -> None:
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=parent))
        try:
            os.chmod(partial, 0o777 & ~_umask())
            self.program.write(partial / STEP_FILE)
            if self.forward is not None:
                self.forward.write(partial / FORWARD_FILE)
            if self.state is not None:
                save_file(_separate(self.state), partial / STATE_FILE, metadata={"format": "pt"})
            for file in partial.iterdir():
                _sync(file)
            _sync(partial)
            if path.exists():
                old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=parent))
                os.rename(path, old / "program")
                try:
                    os.rename(partial, path)
                except OSError:
                    os.rename(old / "program", path)
                    raise
                finally:
                    shutil.rmtree(old, ignore_errors=True)
            else:
                os.rename(partial, path)
            _sync(parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def output_place(path: Path | str) -> Path:
    """Where a program directory of this name is written, links followed; CaptureError where that cannot be."""
    place = Path(os.path.realpath(path))
    if os.path.lexists(place) and not (place / STEP_FILE).is_file():
        raise CaptureError(f"{path} exists and is no program directory; choose another output, or remove it")
    if not place.parent.is_dir():
        raise CaptureError(f"{place.parent}: no such directory")
    return place


def capture(
    step: Step,
    output: Path | str | None = None,
    *,
    state: bool = True,
    name: str | None = None,
    source_root: Path | None = None,
) -> Captured:
    """Captures a step, and its forward pass where it has one; writes it to `output` where that is given.

    Without `state` the program has no initial values and can be planned but not trained; that is also the case when any
    of the model's tensors is on the meta device. `source_root` is the folder that source lines are written relative to.
    CaptureError for a step that cannot become a program: it names the user's source line and what to do instead. That
    is the line that ran, or for what the step holds the one that made it.
    """
    try:
        captured = _captured(step, state, name, source_root)
    except CaptureError as error:
        made = getattr(step, "source", None)
        if error.source is not None or made is None:
            raise
        line = SourceLines(source_root, driver=__file__).of_place(*made)
        raise CaptureError(error.message, line) from error
    if output is not None:
        captured.save(output)
    return captured


def _captured(step: Step, state: bool, name: str | None, source_root: Path | None) -> Captured:
    _check_step(step)
    states = state_tensors(step.model)
    check_batch(step.batch, states, "batch")
    if step.forward is not None and step.forward_batch is not None:
        check_batch(step.forward_batch, states, "forward_batch")
    check_optimizer(step, states)
    try:
        updates = optimizers.describe(
            step.optimizer, [(s.name, s.tensor) for s in states if s.is_parameter], step.schedule
        )
        group_schedules = schedules.for_groups(step.schedule, step.optimizer)
        first_step = optimizers.steps_done(step.optimizer, step.schedule)
    except ValueError as error:
        raise CaptureError(str(error)) from error
    program_name = name or step.name or type(step.model).__name__
    check_name(program_name, "step")
    contents: dict[str, Tensor] | None = {} if state else None
    user_names = {name for tensor in states for name in (tensor.name, *tensor.aliases)}
    user_names |= step.batch.keys() | (step.forward_batch or {}).keys()

    try:
        trace = trace_step(step, states, updates, source_root)
    except RebuiltBuffersError as rebuilt:
        for tensor, content in rebuilt.contents.items():
            tensor.replacement = content
        trace = trace_step(step, states, updates, source_root)
    program = Program(
        program_name, "step", _producer(), first_step, [schedule.to_json() for schedule in group_schedules]
    )
    constants = _fill(
        program,
        trace,
        states,
        step.batch,
        updates,
        prefix="constant",
        contents=contents,
        keep_state=True,
        user_names=user_names,
    )
    forward = None
    if step.forward is not None:
        forward = Program(program_name, "forward", _producer())
        batch = step.forward_batch if step.forward_batch is not None else step.batch
        forward_trace = trace_forward(step, states, source_root)
        _fill(
            forward,
            forward_trace,
            states,
            batch,
            [],
            prefix="forward_constant",
            contents=contents,
            keep_state=False,
            user_names=user_names,
            known=constants,
        )
    if contents is not None and any(tensor.device.type == "meta" for tensor in contents.values()):
        contents = None
    return Captured(program, forward, contents, trace.without_gradient)


def _check_step(step: Step) -> None:
    if not isinstance(step, Step):
        raise CaptureError(
            f"expected a tesser.Step, not {type(step).__name__}; step() returns tesser.Step(model, loss, batch, "
            "optimizer)"
        )
    if not isinstance(step.model, torch.nn.Module):
        raise CaptureError(f"model of the step is of type {type(step.model).__name__}; it must be a torch.nn.Module")
    if not callable(step.loss):
        raise CaptureError("loss of the step must be a function, called as loss(model, batch)")
    if torch.get_default_dtype() is not torch.float32:
        raise CaptureError(
            f"the default dtype is {torch.get_default_dtype()}; leave it at float32 and give the tensors that "
            f"differ their dtype (model.double(), dtype=...)"
        )
    if not isinstance(step.accumulate, int) or step.accumulate < 1:
        raise CaptureError(f"accumulate is {step.accumulate!r}; it is the number of micro-batches, 1 or more")
    for setting in ("clip_norm", "clip_value"):
        limit = getattr(step, setting)
        if limit is not None and not limit > 0:
            raise CaptureError(f"{setting} is {limit!r}; it is a positive number, or None for no clipping")
    for batch_name, tensor in step.batch.items() if step.accumulate > 1 else ():
        if isinstance(tensor, Tensor) and tensor.dim() > 0 and tensor.shape[0] % step.accumulate:
            raise CaptureError(
                f"batch[{batch_name!r}] has {tensor.shape[0]} entries along dimension 0, which {step.accumulate} "
                f"micro-batches (accumulate) do not divide"
            )


def _fill(
    program: Program,
    trace: Trace,
    states: list[StateTensor],
    batch: Iterable[str],
    updates: list[optimizers.ParameterUpdate],
    prefix: str,
    contents: dict[str, Tensor] | None,
    keep_state: bool,
    user_names: set[str],
    known: dict[bytes, str] | None = None,
) -> dict[bytes, str]:
    """Writes a trace into the program and initial values into `contents`; returns the constants' names by content.

    `user_names` are those of the model and the batches of both programs: they stay, and the program's own give way.
    """
    names = Names(user_names)
    outputs = trace.outputs
    roots = [value for _, value in outputs] + [change.value for change in trace.changes]
    nodes = live_nodes(trace.recorder.nodes, roots)
    used = used_values(nodes, roots)
    pair_with_live_forward_nodes(nodes)
    place_gradient_sums(nodes)

    inputs = [_state_input(state) for state in states if keep_state or trace.inputs["state", state.name] in used]
    for state in states:
        if contents is not None and state.name not in contents:
            contents[state.name] = state.content.detach()
    for update in trace.updates:
        for slot in update.slots:
            if slot is not None:
                value = trace.inputs["optimizer_state", update.parameter, slot.name]
                value.name = names.new(value.name)
                inputs.append(_slot_input(update, slot, value.name))
                if slot.initial is not None and contents is not None:
                    contents[value.name] = slot.initial
    order = {"parameter": 0, "optimizer_state": 1, "buffer": 2}
    inputs.sort(key=lambda value: order[value.role])
    inputs += [_plain_input("batch", trace.inputs["batch", name]) for name in batch]
    for (role, *group), value in trace.inputs.items():
        if (value in used and role in ("step", "seed")) or role == "learning_rate":
            value.name = names.new("/".join([role, *group]))
            inputs.append(_plain_input(role, value))
            inputs[-1].schedule = int(group[0]) if group else None
    scalars = {"step": 3, "learning_rate": 4, "seed": 5}
    inputs.sort(
        key=lambda value: (scalars.get(value.role, 0), value.schedule or 0) if value.role in scalars else (0, 0)
    )

    constants = dict(known or {})
    for constant in trace.recorder.constants.values():
        if constant.value in used and constant.value.producer is None:
            key, content = _content(constant)
            if key not in constants:
                constants[key] = names.new(f"{prefix}/{len(constants)}")
            constant.value.name = name = constants[key]
            if not any(value.name == name for value in inputs):
                inputs.append(_plain_input("constant", constant.value))
            if contents is not None:
                contents.setdefault(name, content)

    for update in (node for node in nodes if node.phase == "update"):
        for result in update.outputs:
            if result is not None:
                result.name = names.new(result.name)
    program.inputs = inputs
    program.nodes = named_nodes(nodes, names)
    program.outputs = [Output(output.role, value.name, output.name) for output, value in outputs]
    state_order = {value.name: index for index, value in enumerate(inputs)}
    for change in sorted(trace.changes, key=lambda change: state_order[change.state.name]):
        program.outputs.append(Output("state", change.value.name, change.state.name))
    return constants


def _content(constant: Constant) -> tuple[bytes, Tensor]:
    """What tells constants of different content apart, and the content."""
    tensor = constant.content.detach()
    if tensor.device.type == "meta":
        return f"meta {id(constant.content)}".encode(), tensor
    tensor = tensor.contiguous()
    raw = tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return f"{tensor.dtype} {list(tensor.shape)} ".encode() + raw, tensor


def _state_input(state: StateTensor) -> Input:
    value = _tensor_input(state.name, "parameter" if state.is_parameter else "buffer", state.content)
    value.aliases = state.aliases or None
    if state.is_parameter:
        value.trainable = state.trainable
    else:
        value.persistent = state.persistent
    return value


def _tensor_input(name: str, role: str, tensor: Tensor) -> Input:
    return Input(name, role, str(tensor.dtype).removeprefix("torch."), list(tensor.shape))


def _slot_input(update: optimizers.ParameterUpdate, slot: optimizers.StateSlot, name: str) -> Input:
    dtype = str(slot.dtype).removeprefix("torch.")
    value = Input(
        name,
        "optimizer_state",
        dtype,
        list(slot.shape),
        of=update.parameter,
        slot=slot.name,
    )
    value.initial = "zeros" if slot.initial is None else None
    return value


def _plain_input(role: str, value: Value) -> Input:
    return Input(value.name, role, value.dtype, value.shape)


def _producer() -> str:
    from tesser import __version__

    return f"tesser {__version__}, torch {torch.__version__.partition('+')[0]}"


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in row-major order, each in memory of its own, as a safetensors file wants them."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        tensor = tensor.cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage._cdata in seen or storage.nbytes() != tensor.numel() * tensor.itemsize:
            tensor = tensor.clone()
        seen.add(storage._cdata)
        separate[name] = tensor
    return separate


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
