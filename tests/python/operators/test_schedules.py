"""Schedules as data give the learning rates of PyTorch's schedulers."""

import json
import math
import warnings

import pytest
import torch
from torch.optim import lr_scheduler

from tesser import schedules
from tesser.schedules import Constant, Cosine, Linear, OneCycle, Sequence, StepDecay

STEPS = 60


def two_groups():
    return torch.optim.SGD(
        [
            {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.1},
            {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.003},
        ]
    )


def one_cycle(optimizer, **options):
    return lr_scheduler.OneCycleLR(optimizer, max_lr=[0.2, 0.05], total_steps=STEPS, cycle_momentum=False, **options)


SCHEDULERS = {
    "step": lambda o: lr_scheduler.StepLR(o, 7, gamma=0.3),
    "multi_step": lambda o: lr_scheduler.MultiStepLR(o, [5, 20, 20, 40], gamma=0.5),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.97),
    "constant": lambda o: lr_scheduler.ConstantLR(o, factor=0.25, total_iters=9),
    "linear": lambda o: lr_scheduler.LinearLR(o, start_factor=0.1, end_factor=0.8, total_iters=17),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=STEPS, eta_min=1e-4),
    "one_cycle": one_cycle,
    "one_cycle_linear": lambda o: one_cycle(
        o, anneal_strategy="linear", pct_start=0.1, div_factor=10, final_div_factor=100
    ),
    "one_cycle_without_rise": lambda o: one_cycle(o, pct_start=0.0),
    "warmup_cosine": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.01, 1.0, 10), lr_scheduler.CosineAnnealingLR(o, STEPS - 10)], [10]
    ),
    "three_parts": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.ConstantLR(o, 0.1, 100), lr_scheduler.StepLR(o, 4, 0.5), lr_scheduler.MultiStepLR(o, [6], 0.1)],
        [8, 30],
    ),
}


def rates_of_torch(make):
    optimizer = two_groups()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = make(optimizer)
        converted = schedules.from_torch(scheduler)
        rates = []
        for step in range(STEPS):
            rates.append([group["lr"] for group in optimizer.param_groups])
            optimizer.step()
            if step < STEPS - 1:
                scheduler.step()
    return rates, converted


@pytest.mark.parametrize("name", SCHEDULERS)
def test_equals_torch_at_every_step(name):
    rates, converted = rates_of_torch(SCHEDULERS[name])
    assert len(converted) == 2
    for step, expected in enumerate(rates):
        for schedule, rate in zip(converted, expected, strict=True):
            assert schedule.at(step) == pytest.approx(rate, rel=1e-11, abs=1e-17), f"step {step}"


@pytest.mark.parametrize("name", SCHEDULERS)
def test_json_round_trip(name):
    for schedule in rates_of_torch(SCHEDULERS[name])[1]:
        assert schedules.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule


def test_values_by_hand():
    assert StepDecay(8.0, 3, 0.5).at(7) == 2.0
    assert Linear(2.0, 0.5, 1.0, 4).at(2) == 1.5
    assert Linear(2.0, 0.5, 1.0, 4).at(9) == 2.0
    assert Cosine(1.0, 0.2, 10).at(5) == pytest.approx(0.6)
    assert Cosine(1.0, 0.2, 10).at(25) == pytest.approx(0.2)
    cycle = OneCycle(maximum=1.0, initial=0.1, final=0.01, steps=11, rise=5 / 11, anneal="linear")
    assert [cycle.at(0), cycle.at(4), cycle.at(10), cycle.at(99)] == pytest.approx([0.1, 1.0, 0.01, 0.01])
    assert Sequence((Constant(1.0), StepDecay(4.0, 2, 0.5)), (3,)).at(5) == 2.0


def test_warmup_cosine():
    schedule = schedules.warmup_cosine(0.4, 4, 104, 0.1)
    assert [schedule.at(step) for step in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])
    assert schedule.at(54) == pytest.approx(0.25)
    assert schedule.at(104) == pytest.approx(0.1)
    assert schedules.warmup_cosine(0.4, 0, 10).at(0) == 0.4
    assert schedules.warmup_cosine(0.4, 1, 10).at(0) == 0.4


def test_refusals_say_what_to_do():
    optimizer = two_groups()
    with pytest.raises(ValueError, match="cycle_momentum=False"):
        schedules.from_torch(
            lr_scheduler.OneCycleLR(
                torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], momentum=0.9), 0.1, total_steps=9
            )
        )
    with pytest.raises(ValueError, match="three_phase=False"):
        schedules.from_torch(one_cycle(optimizer, three_phase=True))
    with pytest.raises(ValueError, match="LambdaLR has no form as data"):
        schedules.from_torch(lr_scheduler.LambdaLR(optimizer, lambda step: 1.0))
    with pytest.raises(ValueError, match="every"):
        StepDecay(0.1, 0, 0.5)
    with pytest.raises(ValueError, match="milestones"):
        Sequence((Constant(1.0), Constant(1.0), Constant(1.0)), (5, 5))
    with pytest.raises(ValueError, match="keys are"):
        schedules.from_json({"kind": "constant", "speed": 1.0})
    with pytest.raises(ValueError, match="kind 'wave'"):
        schedules.from_json({"kind": "wave"})


def test_for_groups():
    optimizer = two_groups()
    assert schedules.for_groups(None, optimizer) == [Constant(0.1), Constant(0.003)]
    assert schedules.for_groups(Constant(0.5), optimizer) == [Constant(0.5)] * 2
    with pytest.raises(ValueError, match="1 schedules for 2 parameter groups"):
        schedules.for_groups([Constant(0.5)], optimizer)
    with pytest.raises(ValueError, match="another optimizer"):
        schedules.for_groups(lr_scheduler.StepLR(two_groups(), 3), optimizer)
    assert math.isclose(schedules.for_groups(lr_scheduler.StepLR(optimizer, 3, 0.5), optimizer)[1].at(3), 0.0015)
