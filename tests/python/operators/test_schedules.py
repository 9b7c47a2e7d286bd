"""Schedules as data give the learning rates of PyTorch's schedulers."""

import itertools
import json
import math
import warnings

import pytest
import torch
from torch.optim import lr_scheduler

from tesser import schedules
from tesser.schedules import Constant, Cosine, CosineWave, End, Linear, OneCycle, Sequence, StepDecay

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


# Settings at their edges: each is either converted, with every rate of PyTorch's, or refused.
PARTS = {
    "linear": lambda o: lr_scheduler.LinearLR(o, 0.1, 1.0, 3),
    "linear_0": lambda o: lr_scheduler.LinearLR(o, 0.1, 1.0, 0),
    "constant": lambda o: lr_scheduler.ConstantLR(o, 0.5, 4),
    "constant_0": lambda o: lr_scheduler.ConstantLR(o, 0.5, 0),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 3, 1e-3),
    "multi_step": lambda o: lr_scheduler.MultiStepLR(o, [0, 2], 0.5),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.8),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, [0.1, 0.02], total_steps=9, cycle_momentum=False),
    "nested": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 2), lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
}


def edges():
    for count in (1, 2, 7, 0, -1, 2.5, 3.0):
        yield f"step {count}", lambda o, n=count: lr_scheduler.StepLR(o, n, 0.3)
        yield f"constant {count}", lambda o, n=count: lr_scheduler.ConstantLR(o, 0.25, n)
        yield f"linear {count}", lambda o, n=count: lr_scheduler.LinearLR(o, 0.1, 1.0, n)
        yield f"linear to 0 {count}", lambda o, n=count: lr_scheduler.LinearLR(o, 1.0, 0.0, n)
        yield f"cosine {count}", lambda o, n=count: lr_scheduler.CosineAnnealingLR(o, n, 0.01)
        yield f"polynomial {count}", lambda o, n=count: lr_scheduler.PolynomialLR(o, n, 2.0)
    yield "constant of factor 0", lambda o: lr_scheduler.ConstantLR(o, 0.0, 4)
    yield "exponential 0", lambda o: lr_scheduler.ExponentialLR(o, 0.0)
    for milestones in ([], [0], [0, 0, 3], [2, 2, 5], [-1, 4], [1.5], [5, 2]):
        yield f"milestones {milestones}", lambda o, m=milestones: lr_scheduler.MultiStepLR(o, m, 0.3)
    for steps, rise, anneal in itertools.product((1, 2, 9, 20), (0.0, 0.05, 0.4, 1.0), ("cos", "linear")):
        yield (
            f"one cycle {steps} {rise} {anneal}",
            lambda o, n=steps, p=rise, a=anneal: lr_scheduler.OneCycleLR(
                o, [0.1, 0.02], total_steps=n, pct_start=p, anneal_strategy=a, cycle_momentum=False
            ),
        )
    for first, second, milestone in itertools.product(PARTS, PARTS, (0, 1, 4, -1)):
        yield (
            f"{first} then {second} at {milestone}",
            lambda o, a=first, b=second, m=milestone: lr_scheduler.SequentialLR(o, [PARTS[a](o), PARTS[b](o)], [m]),
        )
    for milestones in ([3, 3], [0, 0], [0, 3], [5, 3], [2.5, 4]):
        yield (
            f"three parts {milestones}",
            lambda o, m=milestones: lr_scheduler.SequentialLR(
                o, [PARTS[name](o) for name in ("linear", "cosine", "exponential")], m
            ),
        )


def follow(make, steps_done, count=200):
    """The first step at which a conversion differs from the scheduler; "right", "refused", or "no such scheduler"."""
    optimizer = two_groups()
    try:
        scheduler = make(optimizer)
        for _ in range(steps_done):
            scheduler.step()
    except (ValueError, ArithmeticError, NotImplementedError):
        return "no such scheduler"
    try:
        converted = schedules.from_torch(scheduler)
    except ValueError as error:
        assert len(str(error)) > 20
        return "refused"
    for step in range(scheduler.last_epoch, scheduler.last_epoch + count):
        for group, schedule in zip(optimizer.param_groups, converted, strict=True):
            if not math.isclose(group["lr"], schedule.at(step), rel_tol=1e-9, abs_tol=1e-15):
                return f"step {step}: {group['lr']} is {schedule.at(step)}"
        try:
            scheduler.step()
        except (ValueError, ZeroDivisionError):
            with pytest.raises(ValueError, match="has ended"):
                converted[0].at(step + 1)
            break
    return "right"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("steps_done", [0, 4, 11])
def test_rates_at_the_edges_are_pytorchs_or_refused(steps_done):
    outcomes = {name: follow(make, steps_done) for name, make in edges()}
    fine = ("right", "refused", "no such scheduler")
    assert not {name: outcome for name, outcome in outcomes.items() if outcome not in fine}
    assert sum(outcome == "right" for outcome in outcomes.values()) >= 150
    for name in ("cosine 1", "cosine 7", "linear then cosine at 0", "milestones [2, 2, 5]", "three parts [3, 3]"):
        assert outcomes[name] == "right", name


def test_a_one_cycle_ends_where_pytorch_refuses_to_go_on():
    optimizer = two_groups()
    scheduler = lr_scheduler.OneCycleLR(optimizer, [0.1, 0.02], total_steps=5, cycle_momentum=False)
    schedule = schedules.from_torch(scheduler)[0]
    assert schedule.milestones == (5, 6) and isinstance(schedule.parts[-1], End)
    with pytest.raises(ValueError, match="has ended"):
        schedule.at(6)


@pytest.mark.filterwarnings("ignore")
def test_rates_that_are_not_those_of_the_settings_are_refused():
    optimizer = two_groups()
    lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 3)  # forgotten, but it has set the first rate
    with pytest.raises(ValueError, match=r"CosineAnnealingLR sets 0.01 as the rate of group 0 in step 0"):
        schedules.from_torch(lr_scheduler.CosineAnnealingLR(optimizer, 5))
    optimizer = two_groups()
    scheduler = lr_scheduler.StepLR(optimizer, 3)
    optimizer.param_groups[1]["lr"] = 0.5
    with pytest.raises(ValueError, match=r"group 1 in step 0 .*changed by hand"):
        schedules.from_torch(scheduler)
    for make in (
        lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)]),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
        lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, cycle_momentum=False),
        lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
        lambda o: lr_scheduler.PolynomialLR(o),
        lambda o: lr_scheduler.ReduceLROnPlateau(o),
    ):
        with pytest.raises(ValueError, match=r"has no form as data. Use one of StepLR"):
            schedules.from_torch(make(two_groups()))


def test_numbers_that_a_program_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="rate is a finite number, not nan"):
        Constant(float("nan"))
    with pytest.raises(ValueError, match=r"every is 2.5, but schedules count whole steps"):
        StepDecay(0.1, 2.5, 0.5)
    assert json.dumps(StepDecay(torch.tensor(0.5), torch.tensor(3), 1).to_json()) == (
        '{"kind": "step", "rate": 0.5, "every": 3, "factor": 1.0}'
    )
    nested = Constant(1.0)
    for _ in range(schedules.DEEPEST):
        nested = Sequence((nested, Constant(2.0)), (3,))
    with pytest.raises(ValueError, match="at most 16"):
        Sequence((nested, Constant(2.0)), (3,))
    with pytest.raises(ValueError, match="first part is End"):
        Sequence((End(), Constant(1.0)), (3,))


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
    assert [CosineWave(1.0, 0.2, 10).at(step) for step in (10, 15, 20, 30)] == pytest.approx([0.2, 0.6, 1.0, 0.2])
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
