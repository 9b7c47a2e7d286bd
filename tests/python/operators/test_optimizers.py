"""Optimizers described as calls of the update operators train to the same parameters as torch.optim."""

import copy
import warnings

import pytest
import torch
from torch.optim import lr_scheduler

from tesser import optimizers, schedules

SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
STEPS = 12

OPTIMIZERS = {
    "sgd": (SGD, {"lr": 0.1}),
    "sgd_decay_maximize": (SGD, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    "momentum": (SGD, {"lr": 0.1, "momentum": 0.9}),
    "dampening": (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.4, "weight_decay": 0.01}),
    "nesterov": (SGD, {"lr": 0.1, "momentum": 0.8, "nesterov": True}),
    "adam": (ADAM, {"lr": 0.01}),
    "adam_decay": (ADAM, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-5}),
    "adam_decoupled": (ADAM, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "amsgrad": (ADAM, {"lr": 0.01, "amsgrad": True}),
    "adamw": (ADAMW, {"lr": 0.01}),
    "adamw_amsgrad_maximize": (ADAMW, {"lr": 0.01, "amsgrad": True, "maximize": True, "weight_decay": 0.2}),
    "adamw_tensor_rate": (ADAMW, {"lr": torch.tensor(0.01)}),
}


def make_model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))


def gradients(model, step):
    generator = torch.Generator().manual_seed(1000 + step)
    return {name: torch.randn(p.shape, generator=generator) for name, p in model.named_parameters()}


def train_with_torch(model, optimizer, first, scheduler=None):
    for step in range(first, first + STEPS):
        for name, gradient in gradients(model, step).items():
            model.get_parameter(name).grad = gradient
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def train_with_operators(model, updates, group_schedules, first):
    """Runs the described updates and writes the parameters back."""
    state = {
        update.parameter: [
            slot and (torch.zeros(slot.shape, dtype=slot.dtype) if slot.initial is None else slot.initial.clone())
            for slot in update.slots
        ]
        for update in updates
    }
    for step in range(first, first + STEPS):
        given = gradients(model, step)
        for update in updates:
            name = update.parameter
            rate = torch.tensor(group_schedules[update.group].at(step), dtype=torch.float64)
            parameter = model.get_parameter(name).detach()
            new, *state[name] = update.apply(parameter, given[name], state[name], rate, torch.tensor(step))
            model.get_parameter(name).data = new
    return state


def assert_same_parameters(expected, found):
    for (name, a), (_, b) in zip(expected.named_parameters(), found.named_parameters(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-7, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("history", [0, 3])
def test_trains_like_torch(name, history):
    optimizer_class, options = OPTIMIZERS[name]
    expected = make_model()
    optimizer = optimizer_class(expected.parameters(), foreach=False, **options)
    for step in range(history):
        for parameter, gradient in gradients(expected, step).items():
            expected.get_parameter(parameter).grad = gradient
        optimizer.step()
    # Described and trained by itself before PyTorch goes on from the same state.
    updates = optimizers.describe(optimizer, dict(expected.named_parameters()))
    first = optimizers.steps_done(optimizer)
    # SGD does not count its steps: only whether there were any matters, for the first momentum.
    assert first == history or (optimizer_class is SGD and first == (1 if history and "momentum" in options else 0))
    found = copy.deepcopy(expected)
    group_schedules = schedules.for_groups(None, optimizer)
    updates = [copy.deepcopy(update) for update in updates]
    train_with_operators(found, updates, group_schedules, first)
    train_with_torch(expected, optimizer, first)
    assert_same_parameters(expected, found)


def test_groups_and_schedulers():
    expected = make_model()
    groups = [
        {"params": expected[0].parameters(), "lr": 0.05, "momentum": 0.9},
        {"params": expected[2].parameters(), "weight_decay": 0.1},
    ]
    optimizer = SGD(groups, lr=0.1)
    scheduler = lr_scheduler.StepLR(optimizer, 4, 0.5)
    updates = optimizers.describe(optimizer, expected.named_parameters(), scheduler)
    assert [(u.parameter, u.group) for u in updates] == [("0.weight", 0), ("0.bias", 0), ("2.weight", 1), ("2.bias", 1)]
    assert [slot and slot.name for u in updates for slot in u.slots] == [
        "momentum_buffer",
        "momentum_buffer",
        None,
        None,
    ]
    assert updates[0].operator == "tesser::sgd"
    assert updates[0].slots[0].shape == (6, 4) and updates[0].slots[0].initial is None
    assert updates[2].arguments == (0.0, 0.0, 0.1, False, False)
    found = copy.deepcopy(expected)
    train_with_operators(found, updates, schedules.for_groups(scheduler, optimizer), 0)
    train_with_torch(expected, optimizer, 0, scheduler)
    assert_same_parameters(expected, found)


def test_order_and_frozen_parameters():
    model = make_model()
    model[0].bias.requires_grad_(False)
    optimizer = ADAMW(reversed(list(model.parameters())))
    updates = optimizers.describe(optimizer, model.named_parameters())
    assert [u.parameter for u in updates] == ["2.bias", "2.weight", "0.weight"]
    assert [slot.name for slot in updates[0].slots if slot] == ["exp_avg", "exp_avg_sq"]
    assert updates[0].slots[2] is None
    assert updates[0].arguments == (0.9, 0.999, 1e-8, 0.01, True, False, False)


def test_tied_parameters_have_their_first_name():
    model = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(5, 3), "head": torch.nn.Linear(3, 5, bias=False)})
    model["head"].weight = model["embedding"].weight
    updates = optimizers.describe(SGD(model.parameters(), lr=0.1), model.named_parameters(remove_duplicate=False))
    assert [u.parameter for u in updates] == ["embedding.weight"]


def test_meta_parameters_need_no_memory():
    with torch.device("meta"):
        model = torch.nn.Linear(1 << 20, 1 << 20)
    updates = optimizers.describe(ADAM(model.parameters()), model.named_parameters())
    assert updates[0].slots[0].shape == (1 << 20, 1 << 20)


class OwnAdam(ADAM):
    pass


def test_refusals_name_the_nearest():
    model = make_model()

    def describe(optimizer, schedule=None):
        return optimizers.describe(optimizer, model.named_parameters(), schedule)

    with pytest.raises(ValueError, match=r"RMSprop is not supported.*nearest.*Adam"):
        describe(torch.optim.RMSprop(model.parameters()))
    with pytest.raises(ValueError, match=r"OwnAdam is not supported.*nearest.*Adam"):
        describe(OwnAdam(model.parameters()))
    with pytest.raises(ValueError, match="differentiable=True"):
        describe(SGD(model.parameters(), lr=0.1, differentiable=True))
    with pytest.raises(ValueError, match=r"parameter 0 of group 0.*no parameter of the model"):
        describe(SGD(make_model().parameters(), lr=0.1))
    with pytest.raises(ValueError, match="2 schedules for 1 parameter groups"):
        describe(SGD(model.parameters(), lr=0.1), [schedules.Constant(0.1)] * 2)


def test_histories_that_cannot_be_continued():
    model = make_model()
    optimizer = ADAM(model.parameters())
    scheduler = lr_scheduler.StepLR(optimizer, 5)
    train_with_torch(model, optimizer, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler.step()
    with pytest.raises(ValueError, match=r"12 steps and its scheduler 1.*not epochs"):
        optimizers.steps_done(optimizer, scheduler)
    optimizer.state[model[0].weight]["step"] += 1
    with pytest.raises(ValueError, match="different numbers of steps"):
        optimizers.steps_done(optimizer)

    momentum = SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    momentum.state[model[0].weight]["momentum_buffer"] = torch.zeros(6, 4)
    with pytest.raises(ValueError, match=r"0\.bias has no momentum buffer"):
        optimizers.describe(momentum, model.named_parameters())
