"""What a captured program looks like: the promises of docs/formats/program.md that later stages rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from capture_steps import STEPS, language_model, lstm
from safetensors.torch import load_file
from torch import Tensor, nn

import tesser
from tesser.program import Node, Program, Ref, refs_in


@pytest.fixture(scope="module")
def programs() -> dict[str, tesser.Captured]:
    torch.manual_seed(5)
    return {name: tesser.capture(make()) for name, make in STEPS.items()}


def _program(model: nn.Module, loss: object, batch: dict[str, Tensor], **options: object) -> Program:
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1)
    return tesser.capture(tesser.Step(model, loss, batch, optimizer, **options)).program


def _node(program: Program, op: str, phase: str = "forward") -> Node:
    (node,) = [node for node in program.nodes if node.op == op and node.phase == phase]
    return node


@pytest.mark.parametrize("name", STEPS)
def test_two_captures_are_identical(name: str, programs: dict[str, tesser.Captured]) -> None:
    torch.manual_seed(5)
    for tensor_free in (True, False):
        again = tesser.capture(STEPS[name](), state=tensor_free)
        assert again.program.to_text() == programs[name].program.to_text()


@pytest.mark.parametrize("name", STEPS)
def test_text_is_read_back_exactly(name: str, programs: dict[str, tesser.Captured]) -> None:
    text = programs[name].program.to_text()
    assert Program.from_text(text).to_text() == text
    document = json.loads(text)
    assert len(text.splitlines()) > len(document["nodes"]) + len(document["inputs"])


@pytest.mark.parametrize("name", STEPS)
def test_program_is_in_single_assignment_form(name: str, programs: dict[str, tesser.Captured]) -> None:
    program = programs[name].program
    defined = [value.name for value in program.inputs]
    node_names: list[str] = []
    used: set[str] = set()
    for node in program.nodes:
        for argument in node.args:
            assert set(refs_in(argument)) <= set(defined), node
            used |= set(refs_in(argument))
        if node.forward is not None:
            assert node.forward in node_names and node.phase == "backward"
        defined += [result.name for result in node.out if result is not None]
        node_names.append(node.name)
        namespace = node.op.partition("::")[0]
        assert namespace in ("aten", "tesser")
        assert "as_strided" not in node.op and not node.op.split(".")[0].endswith("_")
    assert len(defined) == len(set(defined)) and len(node_names) == len(set(node_names))
    outputs = {output.value for output in program.outputs}
    assert outputs <= set(defined)
    for node in program.nodes:  # nothing is left that nobody needs
        assert any(result is not None and (result.name in used or result.name in outputs) for result in node.out), node
    phases = [node.phase for node in program.nodes]
    assert phases.index("update") == len(phases) - phases.count("update")


@pytest.mark.parametrize("name", STEPS)
def test_state_outputs_have_the_form_of_their_state(name: str, programs: dict[str, tesser.Captured]) -> None:
    program = programs[name].program
    inputs = {value.name: value for value in program.inputs}
    results = {result.name: result for node in program.nodes for result in node.out if result is not None}
    changed = [output for output in program.outputs if output.role == "state"]
    assert {value.name for value in program.inputs_of("optimizer_state")} <= {output.name for output in changed}
    for output in changed:
        assert (results[output.value].dtype, results[output.value].shape) == (
            inputs[output.name].dtype,
            inputs[output.name].shape,
        )
    assert [output.role for output in program.outputs].count("loss") == 1


@pytest.mark.parametrize("name", STEPS)
def test_backward_nodes_name_their_forward_nodes(name: str, programs: dict[str, tesser.Captured]) -> None:
    program = programs[name].program
    by_name = {node.name: node for node in program.nodes}
    backward = [node for node in program.nodes if node.phase == "backward"]
    unpaired = [node for node in backward if node.forward is None]
    allowed = ("aten::ones_like", "aten::add.Tensor")  # the loss's seed, and sums of gradients
    assert {node.op for node in unpaired} <= set(allowed)
    for node in backward:
        if node.forward is not None:
            forward = by_name[node.forward]
            assert forward.phase == "forward"
            assert (node.module, node.timestep, node.micro_batch) == (
                forward.module,
                forward.timestep,
                forward.micro_batch,
            )
    pairs = {
        "aten::convolution_backward": "aten::convolution",
        "aten::native_batch_norm_backward": "aten::_native_batch_norm_legit_functional",
        "aten::native_layer_norm_backward": "aten::native_layer_norm",
        "aten::native_group_norm_backward": "aten::native_group_norm",
        "aten::_log_softmax_backward_data": "aten::_log_softmax",
        "aten::_softmax_backward_data": "aten::_softmax",
        "aten::embedding_dense_backward": "aten::embedding",
        "aten::nll_loss_backward": "aten::nll_loss_forward",
        "aten::max_pool2d_with_indices_backward": "aten::max_pool2d_with_indices",
        "tesser::lstm_cell_backward": "tesser::lstm_cell",
        "tesser::gru_cell_backward": "tesser::gru_cell",
    }
    for node in backward:
        if node.op in pairs:
            assert by_name[node.forward].op.replace("_safe_softmax", "_softmax") == pairs[node.op]


def test_whole_operators_are_kept(programs: dict[str, tesser.Captured]) -> None:
    def operators(name: str, phase: str) -> list[str]:
        return [node.op for node in programs[name].program.nodes if node.phase == phase]

    attention = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert operators("language_model", "forward").count(attention) == 2
    assert operators("language_model", "backward").count(attention + "_backward") == 2
    assert operators("language_model", "backward").count("aten::native_layer_norm_backward") == 5
    assert operators("convolution", "backward").count("aten::convolution_backward") == 2
    assert operators("convolution", "backward").count("aten::native_group_norm_backward") == 1
    assert attention in [node.op for node in programs["encoder"].forward.nodes]  # with a mask
    assert operators("lstm", "forward").count("tesser::lstm_cell") == 2 * 2 * 5  # micro-batches, layers, timesteps


def test_modules_and_sources_are_the_users(programs: dict[str, tesser.Captured]) -> None:
    program = programs["language_model"].program
    attention = [node for node in program.nodes if "flash" in node.op and node.phase == "forward"]
    assert [node.module for node in attention] == ["blocks.0", "blocks.1"]
    assert {node.module for node in program.nodes if node.op == "aten::gelu"} == {"blocks.0.mlp.1", "blocks.1.mlp.1"}
    file, line = attention[0].source.rsplit(":", 1)
    assert file.endswith("capture_steps.py")
    text = (Path(__file__).parent / "capture_steps.py").read_text().splitlines()[int(line) - 1]
    assert "scaled_dot_product_attention" in text
    assert all(node.source for node in program.nodes if node.phase == "forward")


def test_timesteps_are_marked_forward_and_backward(programs: dict[str, tesser.Captured]) -> None:
    program = programs["lstm"].program
    cells = [node for node in program.nodes if node.op == "tesser::lstm_cell" and node.micro_batch == 0]
    assert [(node.recurrence, node.timestep) for node in cells] == [
        (f"layer/{layer}", t) for layer in range(2) for t in range(5)
    ]
    back = [node for node in program.nodes if node.op == "tesser::lstm_cell_backward" and node.micro_batch == 1]
    assert [(node.recurrence, node.timestep) for node in back] == [  # the layer's second call is a loop of its own
        (f"layer.1/{layer}", t) for layer in (1, 0) for t in reversed(range(5))
    ]


def test_micro_batches_run_one_after_the_other_and_chain_batch_norm(programs: dict[str, tesser.Captured]) -> None:
    program = programs["in_place"].program
    order = [(node.micro_batch, node.phase) for node in program.nodes if node.micro_batch is not None]
    assert [key for index, key in enumerate(order) if index == 0 or key != order[index - 1]] == [
        (micro, phase) for micro in range(3) for phase in ("forward", "backward")
    ]
    norms = [node for node in program.nodes if node.op == "aten::_native_batch_norm_legit_functional"]
    assert norms[0].args[3] == Ref("norm.running_mean")
    assert norms[1].args[3] == Ref(norms[0].out[3].name)
    (running_mean,) = [output for output in program.outputs if output.name == "norm.running_mean"]
    assert running_mean.value == norms[2].out[3].name


def test_roles_and_attributes_of_inputs(programs: dict[str, tesser.Captured]) -> None:
    inputs = {value.name: value for value in programs["in_place"].program.inputs}
    assert inputs["frozen.weight"].trainable is False and inputs["first.weight"].trainable is True
    assert inputs["average"].persistent is True and inputs["scale"].persistent is False
    assert inputs["norm.num_batches_tracked"].dtype == "int64"
    assert inputs["keep"].role == "batch" and inputs["keep"].dtype == "bool"
    assert {value.shape[0] for value in inputs.values() if value.role == "constant"} == {6}
    outputs = {output.name for output in programs["in_place"].program.outputs if output.role == "state"}
    assert {"average", "norm.running_var", "norm.num_batches_tracked", "second.bias"} <= outputs
    assert outputs.isdisjoint({"scale", "frozen.weight", "unused.weight"})
    assert programs["in_place"].without_gradient == ["unused.weight", "unused.bias"]
    assert "seed" not in inputs  # nothing random in it
    assert {output.name for output in programs["in_place"].program.outputs if output.role == "metric"} == {
        "kept",
        "largest",
    }

    inputs = {value.name: value for value in programs["language_model"].program.inputs}
    assert inputs["embedding.weight"].aliases == ["head.weight"] and "head.weight" not in inputs
    assert (
        inputs["embedding.weight/exp_avg"].of == "embedding.weight"
        and inputs["embedding.weight/exp_avg"].initial == "zeros"
    )
    assert [inputs[f"learning_rate/{group}"].schedule for group in range(2)] == [0, 1]
    roles = [value.role for value in inputs.values()]
    order = ("parameter", "optimizer_state", "buffer", "batch", "step", "learning_rate", "seed", "constant")
    assert roles == sorted(roles, key=order.index)


def test_parameter_groups_keep_their_settings(programs: dict[str, tesser.Captured]) -> None:
    updates = {node.name: node for node in programs["language_model"].program.nodes if node.phase == "update"}
    decayed, plain = updates["embedding.weight/update"], updates["norm.weight/update"]
    assert decayed.op == "tesser::adam"
    assert decayed.args[5] == Ref("learning_rate/0") and plain.args[5] == Ref("learning_rate/1")
    assert decayed.args[10] == 0.01 and plain.args[10] == 0.0
    assert decayed.out[0].name == "embedding.weight.new" and decayed.out[3] is None


def test_state_file_has_the_stored_values_and_no_others(tmp_path: Path) -> None:
    step = language_model()
    captured = tesser.capture(step, tmp_path / "step.tesser")
    stored = load_file(tmp_path / "step.tesser" / "state.safetensors")
    needed = {
        value.name
        for program in (captured.program, captured.forward)
        for value in program.inputs
        if value.has_stored_value
    }
    assert set(stored) == needed
    assert torch.equal(stored["embedding.weight"], step.model.embedding.weight)


def test_forward_program_shares_parameters_and_has_results_only(programs: dict[str, tesser.Captured]) -> None:
    forward = programs["convolution"].forward
    assert forward.kind == "forward" and not forward.schedules
    assert [(output.role, output.name) for output in forward.outputs] == [("result", "logits")]
    assert {node.phase for node in forward.nodes} == {"forward"}
    assert not any(node.op.startswith("tesser::dropout") for node in forward.nodes)
    assert {value.name for value in forward.inputs_of("parameter")} == {
        value.name for value in programs["convolution"].program.inputs_of("parameter")
    }


def test_arguments_follow_the_schema() -> None:
    model = nn.Linear(4, 4)

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        y = model(batch["x"]).add(batch["x"], alpha=2)
        y = torch.clamp(y, max=float("inf")) + torch.arange(4) + torch.full((4,), 2)
        y = y.index_select(1, torch.tensor([0, 2])).double().std(0, correction=0)
        return torch.cat([y, y]).sum().float()

    program = _program(model, loss, {"x": torch.randn(2, 4)})
    assert [node.args[2] for node in program.nodes if node.op == "aten::add.Tensor" and len(node.args) == 3] == [2]
    clamp = _node(program, "aten::clamp")
    assert clamp.args[1:] == [None, float("inf")] and '{"float":"inf"}' in program.to_text()
    text = program.to_text()
    assert '"op":"aten::arange","args":[4,{"dtype":"int64"}]' in text
    assert '"op":"aten::full","args":[[4],2,{"dtype":"int64"}]' in text
    assert '"op":"aten::_to_copy","args":["%index_select",{"dtype":"float64"}]' in text
    assert '"op":"aten::cat","args":[["%std' in text or '"op":"aten::cat","args":[["%sqrt' in text


@pytest.mark.parametrize(
    ("model", "size", "op"),
    [
        (nn.Conv2d(2, 3, 3), (1, 2, 5, 5), "convolution"),
        (nn.BatchNorm2d(4), (3, 4, 2, 2), "native_batch_norm"),
        (nn.BatchNorm1d(4).eval(), (3, 4), "native_batch_norm"),
        (nn.GroupNorm(2, 4), (3, 4, 5), "native_group_norm"),
        (nn.LayerNorm(4), (3, 4), "native_layer_norm"),
    ],
    ids=["convolution", "batch_norm", "batch_norm-evaluated", "group_norm", "layer_norm"],
)
def test_a_result_that_was_not_asked_for_is_null(
    model: nn.Module, size: tuple[int, ...], op: str, tmp_path: Path
) -> None:
    """The gradient of the batch; fake kernels of some operators give it all the same."""
    batch = {"x": torch.randn(size)}
    step = tesser.Step(model, lambda m, b: m(b["x"]).sin().mean(), batch, torch.optim.SGD(model.parameters(), lr=0.1))
    program = tesser.capture(step, tmp_path / "step.tesser").program
    backward = _node(program, f"aten::{op}_backward", "backward")
    assert backward.args[-1] == [False, True, True]
    assert backward.out[0] is None and backward.out[1].shape == list(next(model.parameters()).shape)
    tesser.interpret(tmp_path / "step.tesser", 1, [batch])  # which checks all results


def test_numbers_in_tensor_places_become_scalar_operators() -> None:
    model = nn.Linear(3, 3)

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        y = model(batch["x"])
        y = (y + 1) * 2.5 - 1
        y = torch.div(y, 2, rounding_mode="floor") + (1 - y) + y / 3 + batch["x"] // 2
        y = torch.where(batch["x"] > 0, y, -1.0).masked_fill(batch["x"] > 1, 0.0)
        y[:, 0] = 2
        return (y**2 + 2**y).mean()

    program = _program(model, loss, {"x": torch.randn(2, 3)})
    for node in program.nodes:
        for argument, spec in zip(node.args, _schema(node.op).arguments):
            if str(spec.type) == "Tensor":
                assert isinstance(argument, Ref), node


def _schema(op: str) -> torch.FunctionSchema:
    namespace, _, rest = op.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")._schema


def test_equal_constants_are_stored_once() -> None:
    model = nn.Linear(3, 3)

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return (model(batch["x"]) * torch.tensor([1.0, 2.0, 3.0]) + torch.tensor([1.0, 2.0, 3.0])).sum()

    captured = tesser.capture(
        tesser.Step(model, loss, {"x": torch.randn(2, 3)}, torch.optim.SGD(model.parameters(), lr=0.1))
    )
    assert [value.name for value in captured.program.inputs_of("constant")] == ["constant/0"]
    assert captured.state["constant/0"].tolist() == [1.0, 2.0, 3.0]


def test_names_avoid_the_models_own() -> None:
    model = nn.ModuleDict({"addmm": nn.Linear(3, 3, bias=False), "mean_1": nn.Linear(3, 3)})
    program = _program(
        model,
        lambda m, b: m["addmm"](b["mm"]).mean() + m["mean_1"](b["mean"]).mean(),
        {"mm": torch.randn(2, 3), "mean": torch.randn(2, 3)},
    )
    names = [value.name for value in program.inputs] + [
        result.name for node in program.nodes for result in node.out if result
    ]
    assert len(names) == len(set(names))


def test_a_model_on_the_meta_device_is_never_allocated() -> None:
    with torch.device("meta"):
        huge = nn.Sequential(nn.Linear(1 << 20, 1 << 20), nn.BatchNorm1d(1 << 20))
        step = tesser.Step(
            huge, lambda m, b: m(b["x"]).mean(), {"x": torch.empty(4, 1 << 20)}, torch.optim.Adam(huge.parameters())
        )
    captured = tesser.capture(step)
    assert captured.state is None
    assert captured.program.inputs[0].shape == [1 << 20, 1 << 20]


def test_a_custom_autograd_function_is_recorded_by_its_operators() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return 3 * ctx.saved_tensors[0] * gradient  # not the derivative, so that it shows

    model = nn.Linear(2, 2)
    program = _program(model, lambda m, b: Square.apply(m(b["x"])).sum(), {"x": torch.randn(2, 2)})
    (tripled,) = [node for node in program.nodes if node.op == "aten::mul.Scalar" and node.args[1] == 3]
    assert tripled.phase == "backward" and tripled.forward == _node(program, "aten::mul.Tensor").name


def test_checkpointed_parts_without_randomness_are_recomputed() -> None:
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    program = _program(model, lambda m, b: checkpoint(m, b["x"], use_reentrant=False).sum(), {"x": torch.randn(2, 3)})
    tanhs = [node.phase for node in program.nodes if node.op == "aten::tanh"]
    assert tanhs == ["forward", "backward"]


def test_attention_with_grouped_queries_is_captured() -> None:
    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.kv = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            q = self.q(x).view(2, 5, 4, 2).transpose(1, 2)
            k = v = self.kv(x).view(2, 5, 2, 2).transpose(1, 2)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    program = _program(Grouped(), lambda m, b: m(b["x"]).square().mean(), {"x": torch.randn(2, 5, 8)})
    assert any("attention" in node.op for node in program.nodes)


def test_lstm_step_is_captured_with_the_layers_own_weights() -> None:
    captured = tesser.capture(lstm())
    read = {name for node in captured.program.nodes for argument in node.args for name in refs_in(argument)}
    assert {"layer.weight_ih_l0", "layer.weight_hh_l1", "layer.bias_hh_l0"} <= read


def test_libraries_learn_that_a_tracer_is_at_work() -> None:
    """As transformers asks, before it reads a mask's values or keeps a tensor in a cache."""
    asked = []

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        asked.append(torch.compiler.is_compiling())
        if not torch.compiler.is_compiling() and batch["mask"].all():
            return model(batch["x"]).mean()
        return (model(batch["x"]) * batch["mask"]).mean()

    batch = {"x": torch.randn(3, 2), "mask": torch.ones(3, 1, dtype=torch.bool)}
    program = _program(nn.Linear(2, 2), loss, batch)
    assert asked == [True] and not torch.compiler.is_compiling()
    assert _node(program, "aten::mul.Tensor")


def test_containers_of_modules_hold_afterwards_what_they_held() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.cache, self.seen, self.names = nn.Linear(2, 2), {"kept": 1}, [7], {"a"}

        def forward(self, x: Tensor) -> Tensor:
            if not hasattr(self, "hook"):
                self.hook = self.layer.register_forward_hook(lambda module, args, result: result + 1)
            self.cache["mask"] = x > 0
            self.seen.append(x)
            self.names.add("b")
            return self.layer(x)

    model = Remembering()
    program = _program(model, lambda m, b: m(b["x"]).mean(), {"x": torch.randn(2, 2)})
    assert _node(program, "aten::add.Scalar").args[1] == 1
    assert not hasattr(model, "hook") and not model.layer._forward_hooks
    assert (model.cache, model.seen, model.names) == ({"kept": 1}, [7], {"a"})
    assert isinstance(model.layer.weight, nn.Parameter)


@pytest.mark.parametrize(
    ("pool", "sizes"),
    [
        (nn.AdaptiveAvgPool1d(1), (5,)),
        (nn.AdaptiveAvgPool2d(1), (5, 4)),
        (nn.AdaptiveAvgPool3d((1, 1, 1)), (5, 4, 2)),
    ],
)
def test_pooling_to_one_element_of_activations_whose_channels_lie_last(pool: nn.Module, sizes: tuple[int, ...]) -> None:
    """PyTorch sets the strides of its result, which a program cannot."""
    model = nn.Linear(3, 3)

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return pool(model(batch["x"]).movedim(-1, 1)).square().sum()

    program = _program(model, loss, {"x": torch.randn(2, *sizes, 3)})
    assert _node(program, "aten::mean.dim").out[0].shape == [2, 3, *(1 for _ in sizes)]


def test_modules_are_named_rightly_after_one_that_raised() -> None:
    class Trying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.good = nn.Linear(5, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            try:
                x = self.bad(x)
            except RuntimeError:
                x = x.tanh()
            return self.good(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trying, self.last = Trying(), nn.Softmax(-1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.trying(x).exp())

    program = _program(Outer(), lambda m, b: m(b["x"])[0, 0], {"x": torch.randn(2, 2)})
    assert _node(program, "aten::addmm").module == "trying.good"
    assert _node(program, "aten::exp").module == "" and _node(program, "aten::_softmax").module == "last"
