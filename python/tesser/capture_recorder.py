"""Records every operator a traced step runs, in functional form, with the module, source line and phase it belongs to.

Three dispatch modes lie under autograd, as in PyTorch's own AOTAutograd: functionalization (`FunctionalMode`) turns
in-place operators and writes through views into functional ones, `Recorder` notes each of those, and fake tensors give
its result's shape without computing it. Modes with an infrastructure key are always below ordinary ones and ordered
FUNCTIONAL, PROXY, FAKE, so the recorder takes the place of make_fx's proxy mode.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tesser.capture_arguments import make_dtype_explicit, on_processor, with_scalars, without_defaults
from tesser.capture_error import CaptureError, SourceLines
from tesser.capture_known import KnownValues
from tesser.capture_model import storage_of
from tesser.capture_refusals import WHY_NO_SIZES, OtherGenerators, needs_values, refuse_unsupported
from tesser.capture_values import RecordedNode, Value, dtype_name, values_in
from tesser.program import Enumerator

IDENTITIES = {"aten::detach", "aten::alias", "aten::lift", "aten::lift_fresh", "aten::lift_fresh_copy"}


@dataclass(eq=False)
class Constant:
    """A tensor the step uses that is none of the model's, the batch's or a node's."""

    value: Value
    content: Tensor
    source: str | None
    functional: FunctionalTensor | None = None


class FunctionalMode(FunctionalTensorMode):
    """Functionalization that also lets the step use plain tensors: each becomes a constant of the recorder's."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def _sync_view_replay_annotations(self, args: Any, kwargs: Any) -> None:
        pass  # an annotation for make_fx's tracer, which is not here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name() if isinstance(func, OpOverload) else ""
        if name == "aten::_linalg_check_errors":
            self._recorder.checks.append(args[0])
            return None
        if name.startswith(("aten::", "tesser::")) and name not in IDENTITIES:
            args = tuple(self._functional(argument) for argument in args)
            kwargs = {key: self._functional(argument) for key, argument in (kwargs or {}).items()}
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _functional(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            if isinstance(argument, (FunctionalTensor, FakeTensor)):
                return argument
            return self._recorder.constant_for(argument, self)
        if isinstance(argument, (list, tuple)) and any(isinstance(entry, Tensor) for entry in argument):
            return [self._functional(entry) for entry in argument]
        return argument


@dataclass
class Recorder:
    """Everything recorded of one program. Set `phase` and `micro_batch` as the step goes on; not thread-safe."""

    sources: SourceLines
    owners: dict[
        int, str
    ]  # by storage: parameters and batch tensors, which have stand-ins and must not be used directly
    current_timestep: Callable[[], tuple[str, int] | None]
    phase: str = "forward"
    micro_batch: int | None = None
    nodes: list[RecordedNode] = field(default_factory=list)
    constants: dict[int, Constant] = field(default_factory=dict)  # by id of the plain tensor
    module_stack: list[str] = field(default_factory=lambda: [""])
    _forward_nodes: dict[int, list[RecordedNode]] = field(default_factory=dict)  # by autograd sequence number
    _views: dict[tuple[Any, ...], RecordedNode] = field(default_factory=dict)  # by operator and arguments
    _finished: int | None = None  # sequence number of the autograd node whose results are there

    def __post_init__(self) -> None:
        self.fake_mode = FakeTensorMode()
        self.dispatch_mode = _RecorderMode(self)
        self.functional_mode = FunctionalMode(self)
        self.other_generators = OtherGenerators()
        self.known = KnownValues()
        self.checks: list[Tensor] = []  # error codes of factorisations: 0 where it is right

    # Tensors in and out

    def fake(self, shape: Sequence[int], dtype: torch.dtype, value: Value) -> FakeTensor:
        with _disable_current_modes(), self.fake_mode:
            tensor = torch.empty(tuple(shape), dtype=dtype, device="cpu")
        tensor._tesser_value = value
        return tensor

    def input(
        self, name: str, shape: Sequence[int], dtype: torch.dtype, *, trainable: bool = False
    ) -> FunctionalTensor:
        """A tensor to run the step with, which is the program's input `name`. Call under the modes."""
        value = Value(dtype_name(dtype, f"tensor {name!r}"), list(shape), name=name, differentiable=trainable)
        functional = FunctionalTensor.to_functional(self.fake(shape, dtype, value))
        if trainable:
            functional.requires_grad_(True)
        return functional

    def value_of(self, tensor: Tensor) -> Value:
        """The value a tensor holds now, writes through its views included."""
        if isinstance(tensor, FunctionalTensor):
            torch._sync(tensor)
            tensor = torch._from_functional_tensor(tensor.elem)
        if isinstance(tensor, FakeTensor):
            return tensor._tesser_value
        return self.constant(tensor).value

    def running_source(self) -> str | None:
        return self.sources.running(sys._getframe(1))

    def constant(self, tensor: Tensor) -> Constant:
        known = self.constants.get(id(tensor))
        if known is not None:
            return known
        source = self.running_source()
        owner = self.owners.get(storage_of(tensor))
        if owner is not None:
            raise CaptureError(
                f"{owner} is used through a reference kept outside of the model's modules and the batch; "
                "read it from the model and the batch that the function is given",
                source,
            )
        if tensor.requires_grad:
            raise CaptureError(
                f"a tensor of shape {list(tensor.shape)} that needs a gradient is not a parameter of the model; "
                f"make it one "
                "(nn.Parameter in a module of the model) and give it to the optimizer, or call "
                "requires_grad_(False) on it",
                source,
            )
        if tensor.layout is not torch.strided:
            raise CaptureError(f"a tensor with layout {tensor.layout} is used; use a dense tensor", source)
        value = Value(dtype_name(tensor.dtype, "a constant tensor", source), list(tensor.shape))
        if tensor.dim() == 0 and tensor.device.type != "meta":
            with _disable_current_modes():
                value.scalar = tensor.item()
            self._append(
                "aten::scalar_tensor", [value.scalar, Enumerator("dtype", value.dtype)], [value], source, sequence=None
            )
        self.known.enter(value, tensor)
        constant = Constant(value, tensor, source)
        self.constants[id(tensor)] = constant
        return constant

    def constant_for(self, tensor: Tensor, mode: FunctionalMode) -> FunctionalTensor:
        constant = self.constant(tensor)
        if constant.functional is None:
            fake = self.fake(tensor.shape, tensor.dtype, constant.value)
            wrapper = torch._to_functional_tensor(fake)
            with mode:
                constant.functional = FunctionalTensor(wrapper, mode)
        return constant.functional

    def check_constants(self, replaced: Sequence[Tensor] = ()) -> None:
        """Refuses a step that writes into a tensor the program does not keep, or replaces it (`replaced`)."""
        for constant in self.constants.values():
            changed = constant.functional is not None and self.value_of(constant.functional) is not constant.value
            if changed or any(id(tensor) == id(constant.content) for tensor in replaced):
                raise CaptureError(
                    f"the step writes into a tensor of shape {list(constant.content.shape)} that is not part of the "
                    f"model, and the "
                    "change would be lost after the step; register it with register_buffer(name, tensor)",
                    constant.source,
                )

    # Recording

    def add(self, op: str, args: list[Any], outputs: list[Value | None], label: str = "") -> RecordedNode:
        """Appends a node that no tensor operation stands for, such as an update."""
        return self._append(op, args, outputs, None, sequence=None, label=label)

    def _append(
        self,
        op: str,
        args: list[Any],
        outputs: list[Value | None],
        source: str | None,
        sequence: int | None,
        label: str = "",
    ) -> RecordedNode:
        node = RecordedNode(op, args, outputs, self.phase, len(self.nodes), micro_batch=self.micro_batch, label=label)
        for output in outputs:
            if output is not None:
                output.producer = node
        timestep = self.current_timestep()
        if self.phase == "backward":
            if sequence is not None:
                node.forward = self._forward_node(sequence, op)
            if node.forward is not None:
                node.module = node.forward.module
                node.recurrence, node.timestep = node.forward.recurrence, node.forward.timestep
        elif self.phase == "forward":
            node.module = self.module_stack[-1]
            node.source = source
            if any(value.differentiable for argument in args for value in values_in(argument)):
                for output in outputs:
                    if output is not None and output.dtype in ("float32", "float64", "float16", "bfloat16"):
                        output.differentiable = True
                if sequence is not None:
                    self._forward_nodes.setdefault(sequence, []).append(node)
        if timestep is not None and node.timestep is None:
            node.recurrence, node.timestep = timestep
        self.nodes.append(node)
        return node

    def dispatch(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = func.name()
        if func.namespace == "prim":
            return func(*args, **kwargs)
        if name in IDENTITIES:
            return self._rename(args[0])
        if name == "aten::_efficientzerotensor":  # has no memory, which kernels do not expect
            func, kwargs = torch.ops.aten.zeros.default, {"dtype": kwargs.get("dtype")}
            name = func.name()
        source = self.running_source()
        if name == "aten::index.Tensor":
            args = (args[0], self._with_positions(args[1]))
        if needs_values(func, name, args, kwargs):
            contents = self._known_arguments(args)
            if contents is not None:
                return self._computed(func, contents, kwargs)
        refuse_unsupported(func, name, args, kwargs, source)
        if self.phase == "forward":
            self.other_generators.refuse_draws(source)
        schema = func._schema
        given = self._in_schema_order(func, args, kwargs)
        given = [on_processor(argument) for argument in given]
        positional = [value for value, spec in zip(given, schema.arguments) if not spec.kwarg_only]
        keywords = {spec.name: value for value, spec in zip(given, schema.arguments) if spec.kwarg_only}
        try:
            out = self._shaped(func, name, positional, keywords)
        except CaptureError:
            raise
        except Exception as error:
            if "DataDependent" in type(error).__name__ or "DynamicOutputShape" in type(error).__name__:
                raise CaptureError(f"{name}: {WHY_NO_SIZES}", source) from error
            raise
        if all(str(spec.type) not in ("Tensor", "List[Tensor]", "Optional[Tensor]") for spec in schema.returns):
            return out
        same = self._same_value(name, args, keywords, out)
        if same is not None:
            out._tesser_value = same
            return out
        recorded = [self._argument(value, str(spec.type)) for value, spec in zip(given, schema.arguments)]
        key = self._view_key(name, recorded) if any(spec.alias_info is not None for spec in schema.returns) else None
        if key is not None and self._seen_view(key, out):
            return out
        outputs = self._outputs(name, out, source)
        if outputs is None:
            return out
        for spec, value in zip(schema.arguments, given):
            if spec.name == "output_mask":  # results that are not asked for are none, whatever a fake kernel gives
                outputs = [output if wanted else None for output, wanted in zip(outputs, value, strict=True)]
        if name == "aten::native_batch_norm_backward" and recorded[7]:
            recorded[3] = recorded[4] = None  # in training the running statistics are not read
        if not self._rewrite(name, recorded, outputs, source):
            op = with_scalars(name, recorded, schema, source)
            make_dtype_explicit(schema, recorded, outputs)
            node = self._append(op, without_defaults(op, recorded), outputs, source, self._sequence())
            if key is not None:
                node.is_view = True
                self._views[key] = node
        return out

    def _known_arguments(self, args: Sequence[Any]) -> list[Any] | None:
        """The arguments with the contents of tensors, where all are known."""
        contents: list[Any] = []
        for argument in args:
            if isinstance(argument, Tensor):
                argument = self.known.content(self.value_of(argument))
                if argument is None:
                    return None
            elif isinstance(argument, (list, tuple)):
                argument = self._known_arguments(argument)
                if argument is None:
                    return None
            contents.append(argument)
        return contents

    def _computed(self, func: OpOverload, contents: list[Any], kwargs: dict[str, Any]) -> Any:
        """An operator's result as Python values and constants."""

        def entered(result: Any) -> Any:
            if isinstance(result, (list, tuple)):
                return [entered(entry) for entry in result]
            if not isinstance(result, Tensor):
                return result
            return self.fake(result.shape, result.dtype, self.constant(result).value)

        with _disable_current_modes(), torch.no_grad():
            result = func(*contents, **kwargs)
        return entered(result)

    def _shaped(self, func: OpOverload, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The operator's result on tensors that have a shape and no content."""
        if name == "aten::_ctc_loss":  # with lengths as numbers, which give the shape of what backward needs
            probabilities, lengths = args[0], args[3]
            frames, samples = (probabilities.shape[0], 1) if probabilities.dim() == 2 else probabilities.shape[:2]
            losses = probabilities.new_empty([samples] if probabilities.dim() == 3 else [])
            return losses, probabilities.new_empty([samples, frames, 2 * max(lengths, default=0) + 1])
        return func(*args, **kwargs)

    def _with_positions(self, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Indices with masks that are known as the positions they select."""
        found: list[Tensor | None] = []
        for index in indices:
            mask = index is not None and index.dtype in (torch.bool, torch.uint8)
            content = self.known.content(self.value_of(index)) if mask else None
            if content is None:
                found.append(index)
                continue
            with _disable_current_modes():
                positions = content.nonzero().unbind(1)
            found += [self.fake(each.shape, each.dtype, self.constant(each).value) for each in positions]
        return found

    def _view_key(self, name: str, args: list[Any]) -> tuple[Any, ...]:
        return (name, self.phase, self.micro_batch, *(tuple(arg) if isinstance(arg, list) else arg for arg in args))

    def _seen_view(self, key: tuple[Any, ...], out: Any) -> bool:
        """Functionalization makes views again after each write; where nothing has changed, the first ones stay."""
        node = self._views.get(key)
        if node is None:
            return False
        for tensor, value in zip(out if isinstance(out, (list, tuple)) else [out], node.outputs):
            tensor._tesser_value = value
        if self.phase == "forward" and any(value.differentiable for value in node.outputs):
            self._forward_nodes.setdefault(self._sequence(), []).append(node)
        return True

    def watch_backward(self, loss: Tensor) -> None:
        """Call before a backward pass: what runs between two of autograd's nodes is a sum of gradients of neither."""

        def finish(sequence: int) -> Callable[..., None]:
            def hook(*gradients: Any) -> None:
                self._finished = sequence

            return hook

        self._finished = None
        pending, seen = [loss.grad_fn], set()
        while pending:
            node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            pending.extend(following for following, _ in node.next_functions)
            if "AccumulateGrad" not in node.name():
                node.register_hook(finish(node._sequence_nr()))

    def _sequence(self) -> int | None:
        """The number that pairs an operator of the forward pass with those of its derivative."""
        if self.phase != "backward":
            # autograd has just taken this number for the operator's node
            return torch.autograd._get_sequence_nr() - 1
        node = torch._C._current_autograd_node()
        if node is None or node._sequence_nr() == self._finished:
            return None
        # The node that stands for a write into a view is made just after the one of the operator that wrote.
        return node._sequence_nr() - ("CopySlices" in node.name())

    def _forward_node(self, sequence: int, op: str) -> RecordedNode | None:
        candidates = self._forward_nodes.get(sequence, [])
        named_alike = [node for node in candidates if _base(node.op) in op]
        if not candidates:
            # An in-place operator that needs its argument later copies it first; the copy has taken the next number.
            named_alike = [node for node in self._forward_nodes.get(sequence + 1, []) if _base(node.op) in op]
        # Views made again come before the operator that needed them.
        computing = [node for node in candidates if not node.is_view]
        return next(iter(named_alike or computing or candidates), None)

    def _rename(self, tensor: Tensor) -> Tensor:
        value = self.value_of(tensor)
        if isinstance(tensor, FakeTensor):
            out = torch.ops.aten.detach.default(tensor)
            out._tesser_value = value
            return out
        return self.fake(tensor.shape, tensor.dtype, value)

    @staticmethod
    def _in_schema_order(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        given = list(args)
        for spec in func._schema.arguments[len(args) :]:
            given.append(
                kwargs[spec.name] if spec.name in kwargs else spec.default_value if spec.has_default_value() else None
            )
        return given

    def _argument(self, argument: Any, kind: str) -> Any:
        """A value of Python as the program writes it; `kind` is the schema's type."""
        if isinstance(argument, Tensor):
            return self.value_of(argument)
        if isinstance(argument, (list, tuple)):
            return [self._argument(entry, "float" if "float" in kind else "") for entry in argument]
        if isinstance(argument, torch.dtype):
            return Enumerator("dtype", str(argument).removeprefix("torch."))
        if isinstance(argument, torch.memory_format):
            return (
                None
                if argument is torch.preserve_format
                else Enumerator("memory_format", str(argument).removeprefix("torch."))
            )
        if isinstance(argument, (torch.device, torch.layout)):
            return None  # the processor, and strided memory, as the other devices and layouts are refused
        if isinstance(argument, int) and not isinstance(argument, bool) and kind in ("float", "Optional[float]"):
            return float(argument)
        return argument

    def _outputs(self, name: str, out: Any, source: str | None) -> list[Value | None] | None:
        """New values for an operator's results, or None when the result is an argument itself."""
        if isinstance(out, FakeTensor) and hasattr(out, "_tesser_value"):
            return None
        outputs: list[Value | None] = []
        for entry in out if isinstance(out, (list, tuple)) else [out]:
            for tensor in entry if isinstance(entry, (list, tuple)) else [entry]:
                if tensor is None:
                    outputs.append(None)
                elif isinstance(tensor, Tensor):
                    if tensor.layout is not torch.strided:
                        raise CaptureError(
                            f"{name} gives a tensor with layout {tensor.layout}; use dense tensors (sparse=False)",
                            source,
                        )
                    value = Value(dtype_name(tensor.dtype, f"the result of {name}", source), list(tensor.shape))
                    tensor._tesser_value = value
                    outputs.append(value)
        return outputs

    def _same_value(self, name: str, args: Sequence[Any], keywords: dict[str, Any], out: Any) -> Value | None:
        """The value an operator's result is equal to, where it is one that is there already."""
        if name == "aten::copy" and _same_kind(args[1], out):
            return self.value_of(args[1])
        if name == "aten::clone" and keywords.get("memory_format") in (None, torch.preserve_format):
            return self.value_of(args[0])
        if name in ("aten::view", "aten::_unsafe_view", "aten::expand") and _same_kind(args[0], out):
            return self.value_of(args[0])
        if name == "aten::_to_copy" and _same_kind(args[0], out):
            return self.value_of(args[0])
        if name == "aten::pow.Tensor_Scalar" and args[1] == 1 and _same_kind(args[0], out):
            return self.value_of(args[0])  # of every derivative of a square
        if name == "aten::t":
            producer = self.value_of(args[0]).producer
            if producer is not None and producer.op == "aten::t":
                return producer.args[0]
        return None

    def _rewrite(self, name: str, args: list[Any], outputs: list[Value | None], source: str | None) -> bool:
        """Simpler equals of what functionalization leaves of in-place operators: no reading of what is overwritten."""
        out = outputs[0]
        if name in ("aten::fill.Scalar", "aten::fill.Tensor", "aten::zero"):
            number = 0 if name == "aten::zero" else args[1].scalar if isinstance(args[1], Value) else args[1]
            if number is None:
                return False
            self._append(
                "aten::full", [out.shape, number, Enumerator("dtype", out.dtype)], outputs, source, self._sequence()
            )
            return True
        if name == "aten::copy":
            content = args[1]
            if content.dtype != out.dtype:
                converted = out if content.shape == out.shape else Value(out.dtype, content.shape)
                self._append(
                    "aten::_to_copy", [content, Enumerator("dtype", out.dtype)], [converted], source, self._sequence()
                )
                content = converted
            if content.shape != out.shape:
                self._append("aten::expand", [content, out.shape], outputs, source, self._sequence())
            return True
        return False


class _RecorderMode(TorchDispatchMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._mode_key = torch._C._TorchDispatchModeKey.PROXY
        self._recorder = recorder

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._recorder.dispatch(func, args, kwargs or {})


def _base(op: str) -> str:
    return op.partition("::")[2].partition(".")[0].strip("_")


def _same_kind(source: Tensor, target: Tensor) -> bool:
    return source.dtype == target.dtype and source.shape == target.shape
