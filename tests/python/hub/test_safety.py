"""What a script does behind the hub's back is refused by name, before anything is trained by it."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Callable

import pytest
import torch
from torch import nn

import tesser.hub
from tesser.hub.error import HubError, HubInputError
from tests.python.hub.processes import Replicas
from tests.python.hub.test_wrap import sgd, wrapped
from tests.python.hub.training import NONCE, new_job


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def backward(model: nn.Module) -> None:
    model(torch.ones(3, 4)).square().sum().backward()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def under_no_grad(change: Callable[[nn.Parameter], object]) -> Callable[[nn.Module], object]:
    def changed(model: nn.Module) -> None:
        with torch.no_grad():
            change(model[2].weight)

    return changed


BY_HAND: dict[str, Callable[[nn.Module], object]] = {
    "added to": under_no_grad(lambda weight: weight.add_(1)),
    "initialised": lambda model: nn.init.zeros_(model[2].weight),
    "through data": lambda model: model[2].weight.data.clamp_(-0.01, 0.01),
    "detached": lambda model: model[2].weight.detach().mul_(2),
    "of the state": lambda model: model.state_dict()["2.weight"].zero_(),
    "many at once": under_no_grad(lambda weight: torch._foreach_mul_([weight], 2.0)),
    "many through data": lambda model: torch._foreach_mul_([model[2].weight.data], 2.0),
}
ELSEWHERE: dict[str, Callable[[nn.Module], object]] = {
    "replaced": lambda model: setattr(model[2].weight, "data", torch.ones(2, 6)),
    "of a vector": lambda model: nn.utils.vector_to_parameters(torch.zeros(14), model[2].parameters()),
    "converted": lambda model: model[2].double(),
}


@pytest.mark.parametrize("how", [*BY_HAND, *ELSEWHERE])
def test_weights_changed_by_hand(hub: str, how: str) -> None:
    message = "2.weight was changed by hand" if how in BY_HAND else "2.weight is no longer in the hub's memory"
    change = (BY_HAND | ELSEWHERE)[how]
    for place in ("forward", "step", "close", "load"):
        model = layers()
        model, optimizer = wrapped(hub, model, sgd(model))
        step(model, optimizer)
        if place == "step":
            backward(model)
        change(model)
        with pytest.raises(HubInputError, match=message):
            match place:
                case "forward":
                    with torch.no_grad():
                        model[2](torch.ones(3, 6))
                case "step":
                    optimizer.step()
                case "close":
                    optimizer.close()
                case "load":
                    model.load_state_dict(layers().state_dict())
        if place != "close":
            with pytest.raises(HubError, match=f"the job has failed: .*{message}"):
                optimizer.step()
            optimizer.close()


def test_weights_changed_between_forward_and_backward(hub: str) -> None:
    model = layers()
    model, optimizer = wrapped(hub, model, sgd(model))
    result = model(torch.ones(3, 4)).sum()
    model[0].bias.data.zero_()  # which autograd does not need
    with pytest.raises(HubInputError, match=r"0.bias was changed by hand"):
        result.backward()
    optimizer.close()


def test_a_graph_of_before_a_step_is_refused_after_it(hub: str) -> None:
    model = layers()
    model, optimizer = wrapped(hub, model, sgd(model))
    old = model(torch.ones(3, 4)).sum()
    step(model, optimizer)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        old.backward()
    optimizer.close()


def scale(model: nn.Module) -> None:
    for each in model.parameters():
        each.grad.data.mul_(0.5)


CHANGES_OF_GRADIENTS: dict[str, Callable[[nn.Module], object]] = {
    "clipped": lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1e9),
    "clipped together": lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1e9, foreach=True),
    "values clipped": lambda model: nn.utils.clip_grad_value_(model.parameters(), 0.1),
    "through data": scale,
    "replaced": lambda model: setattr(model[0].weight, "grad", model[0].weight.grad * 2),
    "before another pass": lambda model: (model[0].weight.grad.mul_(2), backward(model)),
}


@pytest.mark.parametrize("how", CHANGES_OF_GRADIENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_changed_before_the_step(hub: str, how: str, dtype: torch.dtype) -> None:
    model = layers()
    model, optimizer = wrapped(hub, model, sgd(model), gradient_dtype=dtype)
    backward(model)
    with pytest.raises(HubInputError, match=r"gradient of 0.weight was changed after it had gone.*\n.*clip_norm= of"):
        CHANGES_OF_GRADIENTS[how](model)
        optimizer.step()
    optimizer.close()


def test_gradients_changed_while_the_hub_reads_them(hub: str) -> None:
    model = layers()
    model, optimizer = wrapped(hub, model, sgd(model))
    backward(model)
    kept = [each.grad for each in model.parameters()]
    optimizer.step()
    kept[1].zero_()
    with pytest.raises(HubInputError, match=r"gradient of 0.bias was changed while the hub read it"):
        model(torch.ones(3, 4))
    optimizer.close()


def test_scaled_gradients(hub: str) -> None:
    model = layers()
    model, optimizer = wrapped(hub, model, sgd(model))
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(model(torch.ones(3, 4)).sum()).backward()
    scaler.step(optimizer)
    scaler = torch.amp.GradScaler("cpu")
    optimizer.zero_grad()
    scaler.scale(model(torch.ones(3, 4)).sum()).backward()
    with pytest.raises(HubInputError, match="GradScaler scales gradients that the hub has already"):
        scaler.step(optimizer)
    optimizer.close()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=["", "foreach", "fused"])
def test_another_optimizer_over_the_same_weights(hub: str, kind: type, options: dict) -> None:
    if kind is torch.optim.RMSprop and "fused" in options:
        pytest.skip("it has none")
    model = layers()
    other = kind(model.parameters(), lr=0.1, **options)
    first = sgd(model)
    model, optimizer = wrapped(hub, model, first)
    backward(model)
    before = copy.deepcopy(model.state_dict())
    for each in (other, first):
        with pytest.raises(HubInputError, match="would change parameter 0 of its group 0, which a hub updates"):
            each.step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    optimizer.step()
    optimizer.close()
    other.step()  # the model is a plain one again


def test_checkpoints_go_into_the_optimizer_that_wrap_gave_back(hub: str) -> None:
    model = layers()
    first = sgd(model, momentum=0.9)
    state = first.state_dict()
    model, optimizer = wrapped(hub, model, first)
    first.load_state_dict(state)
    backward(model)
    with pytest.raises(HubInputError, match=r"optimizer that was given to tesser.hub.wrap was used"):
        optimizer.step()
    optimizer.close()


def test_a_model_at_a_hub_is_not_wrapped_again(hub: str) -> None:
    model = layers()
    model, optimizer = wrapped(hub, model, sgd(model))
    with pytest.raises(HubInputError, match=r"0.weight is at a hub already"):
        wrapped(hub, model, sgd(model))
    optimizer.close()
    _, optimizer = wrapped(hub, model, sgd(model))
    optimizer.close()


def add_group(first: torch.optim.Optimizer, model: nn.Module) -> None:
    first.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})


@pytest.mark.parametrize(
    "change",
    [
        add_group,
        lambda first, model: first.param_groups[0]["params"].append(nn.Parameter(torch.zeros(2))),
        lambda first, model: first.param_groups[0]["params"].pop(),
    ],
    ids=["group", "parameter", "less"],
)
def test_groups_with_other_parameters(hub: str, change: Callable) -> None:
    model = layers()
    first = sgd(model)
    model, optimizer = wrapped(hub, model, first)
    backward(model)
    change(first, model)
    with pytest.raises(HubInputError, match=r"parameter groups have other parameters than at tesser.hub.wrap"):
        optimizer.step()
    optimizer.close()


def test_parameters_that_need_a_gradient_later(hub: str) -> None:
    model = layers()
    model[0].requires_grad_(False)
    model, optimizer = wrapped(hub, model, torch.optim.AdamW(model.parameters(), lr=0.1))
    step(model, optimizer)
    model[0].bias.requires_grad_(True)
    backward(model)
    with pytest.raises(HubInputError, match=r"0.bias needs a gradient now.*\n.*wrap both again"):
        optimizer.step()
    # As the message says.
    kept = copy.deepcopy(optimizer.state_dict())
    optimizer.close()
    alone, again = copy.deepcopy(model), torch.optim.AdamW(model.parameters(), lr=0.1)
    again.load_state_dict(kept)
    expected = torch.optim.AdamW(alone.parameters(), lr=0.1)
    expected.load_state_dict(kept)
    model, again = wrapped(hub, model, again)
    for _ in range(3):
        step(model, again)
        step(alone, expected)
    torch.testing.assert_close(model.state_dict(), alone.state_dict())
    again.close()


class Halves(nn.Module):
    """One module with parameters of two optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (self.first * inputs).sum() * (self.second + inputs).sum()


def train_halves(rank: int, replicas: int, hub: str, job: str) -> dict[str, torch.Tensor]:
    model = Halves()
    optimizers = [torch.optim.SGD([each], lr=0.01) for each in model.parameters()]
    for number, each in enumerate(optimizers):
        model, optimizers[number] = tesser.hub.wrap(
            model, each, hub=hub, job=f"{job} {number}", nonce=NONCE, rank=rank, replicas=replicas
        )
    for number in range(4):
        for each in optimizers:
            each.zero_grad()
        with model.no_sync():
            model(torch.full((3,), 1.0)).backward()
        model(torch.full((3,), float(rank))).backward()
        optimizers[number % 2].step()
    optimizers[0].close()
    optimizers[1].close()
    assert type(model._parameters) is dict and type(model.first) is nn.Parameter and not hasattr(model, "no_sync")
    return model.state_dict()


def test_two_optimizers_over_one_model(replicas: Replicas, hub: str) -> None:
    model = Halves()
    for number in range(4):
        model.zero_grad()
        for value in (1.0, 1.0, 0.0, 1.0):
            (model(torch.full((3,), value)) / 2).backward()
        with torch.no_grad():
            each = list(model.parameters())[number % 2]
            each -= 0.01 * each.grad
    for seen in replicas.run(train_halves, 2, hub, new_job()):
        torch.testing.assert_close(seen, model.state_dict())


def test_copies_and_files_are_of_plain_parameters(hub: str) -> None:
    model = layers()
    model, optimizer = wrapped(hub, model, sgd(model))
    backward(model)
    file = io.BytesIO()
    torch.save((model, list(model.parameters()), model[0].weight.grad), file)
    file.seek(0)
    saved, parameters, gradient = torch.load(file, weights_only=False)
    for each in (saved, copy.deepcopy(model)):
        assert all(type(one) is nn.Parameter for one in each.parameters())
        with each.no_sync():
            each(torch.ones(1, 4)).sum().backward()
        sgd(each).step()
    assert all(type(one) is nn.Parameter for one in parameters)
    assert type(gradient) is type(copy.deepcopy(model[0].weight.grad)) is torch.Tensor
    assert torch.equal(gradient, model[0].weight.grad)
    optimizer.step()
    optimizer.close()
    assert all(type(each) is nn.Parameter for each in model.parameters())
    gc.collect()
