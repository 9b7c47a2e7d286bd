"""Runs a step or forward pass under the recorder: micro-batches, gradients, clipping and update in a loop's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tesser import optimizers, recurrent
from tesser.capture_error import CaptureError, SourceLines
from tesser.capture_functions import CapturableForms
from tesser.capture_model import StateTensor, check_name, sharing_buffer, stand_ins, storage_of
from tesser.capture_recorder import Recorder
from tesser.capture_refusals import WHY_NO_VALUES
from tesser.capture_values import Value
from tesser.program import Output
from tesser.random import RandomMode
from tesser.step import Step

# What an input is, which tells the program's own scalars from tensors of the model that have their names: "state" or
# "batch" and the name there, "optimizer_state" and parameter and slot, "learning_rate" and the group, "step", "seed".
InputKey = tuple[str, ...]


NO_GRADIENT = (
    "the loss does not depend on any parameter that is trained; compute it from the model's result, without detach(), "
    "no_grad() or argmax() between them"
)


@dataclass
class StateChange:
    """A state value and its content after the step."""

    state: Value
    value: Value


@dataclass
class Trace:
    """What running a step or forward pass recorded."""

    recorder: Recorder
    inputs: dict[InputKey, Value] = field(default_factory=dict)
    outputs: list[tuple[Output, Value]] = field(
        default_factory=list
    )  # loss, metrics or results; Output.value is still empty
    changes: list[StateChange] = field(default_factory=list)
    updates: list[optimizers.ParameterUpdate] = field(default_factory=list)
    without_gradient: list[str] = field(default_factory=list)  # trainable parameters the loss does not depend on


class RebuiltBuffersError(Exception):
    """The step puts other content of another shape in place of buffers, from shapes alone, as a model does that builds
    a table in its first pass. Trace the step again from that content.
    """

    def __init__(self, contents: dict[StateTensor, Tensor]) -> None:
        super().__init__(", ".join(state.name for state in contents))
        self.contents = contents


def trace_step(
    step: Step, states: list[StateTensor], updates: list[optimizers.ParameterUpdate], root: Path | None
) -> Trace:
    with _tracing(step.model, states, step.batch, root) as run:
        _trace_step(run, step, states, updates)
        return run.trace


def trace_forward(step: Step, states: list[StateTensor], root: Path | None) -> Trace:
    modes = {module: module.training for module in step.model.modules()}
    step.model.eval()
    try:
        with _tracing(step.model, states, step.forward_batch or step.batch, root) as run, torch.no_grad():
            _trace_forward(run, step)
            return run.trace
    finally:
        for module, training in modes.items():
            module.training = training


@dataclass
class _Run:
    """A trace under way, inside its modes."""

    trace: Trace
    recorder: Recorder
    tensors: dict[InputKey, Tensor]  # stand-ins of state and scalars
    model: nn.Module
    attributes: dict[tuple[nn.Module, str], Tensor]  # the modules' plain tensors before the step

    def replaced_attributes(self) -> list[Tensor]:
        """Plain tensors of modules in whose place the step has put another tensor."""
        return [tensor for (module, name), tensor in self.attributes.items() if module.__dict__.get(name) is not tensor]

    def user(self, function: Callable[..., Any], *args: Any) -> Any:
        result = _call_user(self.recorder.sources, function, *args)
        self.recorder.other_generators.refuse_draws(None)
        return result

    def input(self, key: InputKey, shape: Sequence[int], dtype: torch.dtype, trainable: bool = False) -> Tensor:
        made = self.recorder.input("/".join(key[1:] or key), shape, dtype, trainable=trainable)
        self.trace.inputs[key] = self.recorder.value_of(made)
        return made

    def scalar(self, key: InputKey, dtype: torch.dtype) -> Tensor:
        if key not in self.tensors:
            self.tensors[key] = self.input(key, (), dtype)
        return self.tensors[key]


def _call_user(sources: SourceLines, function: Callable[..., Any], *args: Any) -> Any:
    """Calls the user's code; whatever it raises becomes a CaptureError with the user's line."""
    try:
        return function(*args)
    except CaptureError as error:
        if error.source is None:
            raise CaptureError(error.message, sources.of_traceback(error.__traceback__)) from error
        raise
    except Exception as error:
        text = str(error).strip()
        if "data-dependent" in text or "DataDependent" in type(error).__name__ or ".numpy()" in text:
            text = f"{text.splitlines()[0] if text else type(error).__name__}; {WHY_NO_VALUES}"
        raise CaptureError(f"{type(error).__name__}: {text}", sources.of_traceback(error.__traceback__)) from error


def _at(source: str | None, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a check; its refusal gets this line where it has none."""
    try:
        return function(*args)
    except CaptureError as error:
        raise CaptureError(error.message, error.source or source) from error


@contextmanager
def _tracing(
    model: nn.Module, states: list[StateTensor], batch: Mapping[str, Tensor], root: Path | None
) -> Iterator[_Run]:
    recorder = Recorder(
        sources=SourceLines(root, driver=__file__),
        owners={storage_of(tensor): f"batch[{name!r}]" for name, tensor in batch.items()}
        | {storage_of(state.tensor): f"{state.name!r} of the model" for state in states if state.is_parameter},
        current_timestep=recurrent.current_timestep,
    )
    trace = Trace(recorder)
    with ExitStack() as stack:
        enter = stack.enter_context
        fast_path = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
        torch.backends.mha.set_fastpath_enabled(False)
        enter(_causal_masks())
        enter(torch.autograd._force_original_view_tracking(True))
        enter(torch.enable_grad())
        # Libraries ask whether a tracer is at work before they read a tensor's value or keep one in a cache.
        enter(torch.compiler._compile_session_context())
        enter(_module_paths(model, recorder))
        enter(recorder.fake_mode)
        enter(recorder.dispatch_mode)
        enter(recorder.functional_mode)
        known = {id(state.tensor) for state in states}
        attributes = {
            (module, name): entry
            for module in model.modules()
            for name, entry in module.__dict__.items()
            if isinstance(entry, Tensor) and id(entry) not in known
        }
        run = _Run(trace, recorder, {}, model, attributes)
        for state in states:
            stand_in = run.input(
                ("state", state.name), state.content.shape, state.content.dtype, trainable=state.trainable
            )
            stand_in._is_param = state.is_parameter
            run.tensors["state", state.name] = stand_in
        enter(CapturableForms())
        enter(stand_ins(model, {id(state.tensor): run.tensors["state", state.name] for state in states}))
        enter(RandomMode(run.scalar(("seed",), torch.int64), run.scalar(("step",), torch.int64), guard=False))
        enter(recurrent.RecurrentMode(lambda: recorder.module_stack[-1]))
        yield run


@contextmanager
def _module_paths(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Keeps the recorder's module stack: the path of the model's innermost module that is running."""
    paths = {module: name for name, module in model.named_modules()}
    stack = recorder.module_stack
    running: list[nn.Module] = []

    def before(module: nn.Module, args: Any) -> None:
        running.append(module)
        stack.append(paths.get(module, stack[-1]))

    def after(module: nn.Module, args: Any, result: Any) -> None:
        # A module that raised has not come here, and whoever called it may have gone on.
        while running.pop() is not module:
            stack.pop()
        stack.pop()

    entered = nn.modules.module.register_module_forward_pre_hook(before)
    left = nn.modules.module.register_module_forward_hook(after)
    try:
        yield
    finally:
        entered.remove()
        left.remove()


@contextmanager
def _causal_masks() -> Iterator[None]:
    """nn.TransformerEncoder looks into its mask for whether a faster kernel may take its place. Where the mask's values
    are not known, the mask itself is used, with the same numbers.
    """
    module = nn.modules.transformer
    is_causal = module._detect_is_causal_mask

    def detect(mask: Tensor | None, hint: bool | None = None, size: int | None = None) -> bool:
        try:
            return is_causal(mask, hint, size)
        except CaptureError:
            return False

    module._detect_is_causal_mask = detect
    try:
        yield
    finally:
        module._detect_is_causal_mask = is_causal


# The step


def _trace_step(run: _Run, step: Step, states: list[StateTensor], updates: list[optimizers.ParameterUpdate]) -> None:
    recorder, trace = run.recorder, run.trace
    batch = {name: run.input(("batch", name), tensor.shape, tensor.dtype) for name, tensor in step.batch.items()}
    trained = [state for state in states if state.trainable]
    leaves = [run.tensors["state", state.name] for state in trained]
    gradients: list[Tensor | None] = [None] * len(leaves)
    total: Tensor | None = None
    totals: dict[str, Tensor] = {}
    for index in range(step.accumulate):
        recorder.phase = "forward"
        recorder.checks.clear()  # those of the backward pass are of the same factorisations
        recorder.micro_batch = index if step.accumulate > 1 else None
        result = run.user(step.loss, step.model, _micro_batch(batch, index, step.accumulate))
        loss, metrics = _at(recorder.sources.of_function(step.loss), _checked_loss, result)
        reported = _where_right(recorder, loss.detach())
        if step.accumulate > 1:
            loss, reported = loss / step.accumulate, reported / step.accumulate
        total = _plus(total, reported)
        if index > 0 and metrics.keys() != totals.keys():
            raise CaptureError(
                f"the metrics of micro-batch {index} are {sorted(metrics)}, those of the first {sorted(totals)}; "
                "return the same names always",
                recorder.sources.of_function(step.loss),
            )
        for name, metric in metrics.items():
            totals[name] = _plus(
                totals.get(name), metric.detach() / step.accumulate if step.accumulate > 1 else metric.detach()
            )
        recorder.phase = "backward"
        for position, gradient in enumerate(_gradients(run, loss, leaves)):
            if gradient is not None:
                gradients[position] = _plus(gradients[position], gradient)
    recorder.micro_batch = None
    if all(gradient is None for gradient in gradients):
        raise CaptureError(NO_GRADIENT, recorder.sources.of_function(step.loss))
    trace.without_gradient = [state.name for state, gradient in zip(trained, gradients) if gradient is None]
    trace.outputs.append((Output("loss", ""), recorder.value_of(total)))
    trace.outputs += [(Output("metric", "", name), recorder.value_of(metric)) for name, metric in totals.items()]
    recorder.phase = "clip"
    with torch.no_grad():
        gradients = _clipped(step, gradients)
    recorder.phase = "update"
    current = _contents_after_forward(run, states)
    by_name = {state.name: gradient for state, gradient in zip(trained, gradients)}
    for update in updates:
        if by_name[update.parameter] is not None:
            _record_update(run, update, recorder.value_of(by_name[update.parameter]), current)
    for state in states:
        before = trace.inputs["state", state.name]
        if current[state.name] is not before:
            trace.changes.append(StateChange(before, current[state.name]))
    recorder.check_constants(run.replaced_attributes())


def _where_right(recorder: Recorder, result: Tensor) -> Tensor:
    """NaN in place of a result where a factorisation has failed, for which PyTorch raises: a run ends there too."""
    if result.is_floating_point():
        for errors in recorder.checks:
            result = result.masked_fill((errors != 0).any(), float("nan"))
    return result


def _plus(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total + term


def _micro_batch(batch: Mapping[str, Tensor], index: int, count: int) -> dict[str, Tensor]:
    if count == 1:
        return dict(batch)
    parts = {}
    for name, tensor in batch.items():
        size = tensor.shape[0] // count if tensor.dim() else 0
        parts[name] = tensor[index * size : (index + 1) * size] if tensor.dim() else tensor
    return parts


def _checked_loss(result: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
    loss, metrics = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if not isinstance(loss, Tensor):
        raise CaptureError(
            f"loss(model, batch) returned {type(loss).__name__}; return a scalar tensor, or (scalar tensor, metrics "
            f"by name)"
        )
    if loss.dim() != 0 or not loss.is_floating_point():
        raise CaptureError(
            f"the loss is no scalar of a floating type but {loss.dtype} of shape {list(loss.shape)}; reduce it, "
            f"with mean() or sum() for example"
        )
    if not loss.requires_grad:
        raise CaptureError(NO_GRADIENT)
    if not isinstance(metrics, Mapping):
        raise CaptureError(f"metrics are a mapping of names to scalar tensors, not {type(metrics).__name__}")
    for name, metric in metrics.items():
        check_name(name, "metric")
        if not isinstance(metric, Tensor) or metric.dim() != 0:
            got = f"of shape {list(metric.shape)}" if isinstance(metric, Tensor) else type(metric).__name__
            raise CaptureError(
                f"metric {name!r} is {got}; return a scalar tensor (mean() of it, or torch.tensor(number))"
            )
    return loss, metrics


def _gradients(run: _Run, loss: Tensor, leaves: list[Tensor]) -> tuple[Tensor | None, ...]:
    run.recorder.watch_backward(loss)
    try:
        # torch.autograd.grad without its dispatch over function modes, which would switch those off for what the
        # backward pass itself calls: recomputation of checkpoints, and backward functions of the user's own.
        return torch.autograd.graph._engine_run_backward(
            (loss,),
            (torch.ones_like(loss),),
            False,
            False,
            tuple(leaves),
            allow_unreachable=True,
            accumulate_grad=False,
        )
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(
            f"the backward pass fails: {error}", run.recorder.sources.of_traceback(error.__traceback__)
        ) from error


def _clipped(step: Step, gradients: list[Tensor | None]) -> list[Tensor | None]:
    """By value first, then by norm, as torch.nn.utils does either with foreach off."""
    if step.clip_value is not None:
        limit = float(step.clip_value)
        gradients = [None if gradient is None else gradient.clamp(-limit, limit) for gradient in gradients]
    if step.clip_norm is not None:
        kind = float(step.clip_norm_type)
        norms = [torch.linalg.vector_norm(gradient, kind) for gradient in gradients if gradient is not None]
        # The norms of other dtypes than the first's are converted by stack's rule in PyTorch too.
        norm = torch.linalg.vector_norm(torch.stack(norms), kind)
        factor = torch.clamp(float(step.clip_norm) / (norm + 1e-6), max=1.0)
        gradients = [None if gradient is None else (gradient * factor).to(gradient.dtype) for gradient in gradients]
    return gradients


def _contents_after_forward(run: _Run, states: list[StateTensor]) -> dict[str, Value]:
    """The value of each state tensor now: what the forward passes wrote into it, or a module put in its place."""
    modules = dict(run.model.named_modules(remove_duplicate=False))
    contents, rebuilt = {}, {}
    for state in states:
        prefix, _, own_name = state.name.rpartition(".")
        owner = modules[prefix]
        tensor = run.tensors["state", state.name] if state.is_parameter else owner._buffers.get(own_name)
        if not isinstance(tensor, Tensor):
            raise CaptureError(
                f"buffer {state.name!r} is removed or replaced by {type(tensor).__name__} in the step; keep it a tensor"
            )
        value = run.recorder.value_of(tensor)
        if tuple(tensor.shape) != tuple(state.content.shape) or tensor.dtype != state.content.dtype:
            known = None if state.replacement is not None else run.recorder.known.content(value)
            if known is None:
                raise CaptureError(
                    f"buffer {state.name!r} changes in the step from {state.content.dtype} of shape "
                    f"{list(state.content.shape)} to {tensor.dtype} of shape {list(tensor.shape)}, and a program's "
                    "shapes are fixed. Give the buffer its final size where the model is made, and write into a part "
                    "of it",
                    None if value.producer is None else value.producer.source,
                )
            rebuilt[state] = known
            continue
        contents[state.name] = value
        if value is not run.trace.inputs["state", state.name]:
            other = sharing_buffer(state, states)
            if other is not None:
                raise CaptureError(
                    f"{state.name!r} changes in the step and shares its memory with {other.name!r}; make one of "
                    f"them a clone()"
                )
    if rebuilt:
        raise RebuiltBuffersError(rebuilt)
    return contents


def _record_update(run: _Run, update: optimizers.ParameterUpdate, gradient: Value, current: dict[str, Value]) -> None:
    recorder, trace = run.recorder, run.trace
    name = update.parameter
    parameter = trace.inputs["state", name]
    old: list[Value | None] = []
    for slot in update.slots:
        if slot is None:
            old.append(None)
            continue
        key = ("optimizer_state", name, slot.name)
        run.input(key, slot.shape, slot.dtype)
        old.append(trace.inputs[key])
    rate = ("learning_rate", str(update.group))
    run.scalar(rate, torch.float64)
    arguments = [
        current[name],
        gradient,
        *old,
        trace.inputs[rate],
        trace.inputs["step",],
        *update.arguments,
    ]
    new_parameter = Value(parameter.dtype, parameter.shape, name=f"{name}.new")
    new = [None if value is None else Value(value.dtype, value.shape, name=f"{value.name}.new") for value in old]
    recorder.add(update.operator, arguments, [new_parameter, *new], label=f"{name}/update")
    current[name] = new_parameter
    trace.changes += [StateChange(value, made) for value, made in zip(old, new) if value is not None]
    trace.updates.append(update)


# The forward program


def _trace_forward(run: _Run, step: Step) -> None:
    given = step.forward_batch if step.forward_batch is not None else step.batch
    batch = {name: run.input(("batch", name), tensor.shape, tensor.dtype) for name, tensor in given.items()}
    result = run.user(step.forward, step.model, batch)
    source = run.recorder.sources.of_function(step.forward)
    results = result if isinstance(result, Mapping) else {"result": result}
    for name, tensor in results.items():
        _at(source, check_name, name, "result")
        if not isinstance(tensor, Tensor):
            raise CaptureError(
                f"forward(model, batch) returned {type(tensor).__name__} for {name!r}; return a tensor, or tensors "
                "by name",
                source,
            )
        checked = _where_right(run.recorder, tensor)
        run.trace.outputs.append((Output("result", "", name), run.recorder.value_of(checked)))
    if not results:
        raise CaptureError("forward(model, batch) returned no tensor; return at least one by name", source)
    run.recorder.check_constants(run.replaced_attributes())
