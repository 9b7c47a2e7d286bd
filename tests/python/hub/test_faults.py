"""Whoever dies or stops, worker or hub, is noticed within five seconds and named; the others stop, go on without it, or
wait until it is started again, and then end with the weights of a run that lost nobody, to the bit.

TESSER_FAULT_SEEDS is how many random schedules are run (`./x test --faults` runs fifty).
"""

from __future__ import annotations

import os
import random
import signal
import time
from multiprocessing.connection import Connection, wait

import pytest
import torch

import tesser.hub
from tests.python.hub.processes import HubProcess, Replicas, context
from tests.python.hub.training import NONCE, TRAININGS, new_job

SEEDS = int(os.environ.get("TESSER_FAULT_SEEDS", "5"))
TRAINING = TRAININGS["momentum in groups, one cycle"]
STEPS = 18
PAUSE = 0.03  # between steps, so that there is a middle
# What the design allows for a loss to be known, and for reading it on a machine that does other things.
NOTICE_SECONDS, SLACK = 5.0, 1.0
START_SECONDS = 5.0  # for a process that is started again
END_SECONDS = 60.0
# The first seeds are one of each kind; then chance has it.
KINDS = [
    ("stop", "worker", signal.SIGKILL),
    ("wait", "worker", signal.SIGKILL),
    ("continue", "worker", signal.SIGKILL),
    ("stop", "hub", signal.SIGSTOP),
    ("wait", "worker", signal.SIGSTOP),
]

Weights = dict[str, torch.Tensor]


def made() -> tuple[torch.nn.Module, torch.optim.Optimizer, object]:
    torch.manual_seed(0)
    model = TRAINING.model()
    optimizer = TRAINING.optimizer(model)
    return model, optimizer, TRAINING.schedule(optimizer)


def train(
    rank: int, replicas: int, hub: str, job: str, on_loss: str, network: bool, report: Connection | None
) -> Weights:
    model, optimizer, schedule = made()
    model, optimizer = tesser.hub.wrap(
        model, optimizer, hub=hub, job=job, nonce=NONCE, rank=rank, replicas=replicas, on_loss=on_loss, network=network
    )
    for _ in range(optimizer.steps_done):
        schedule.step()
    for step in range(optimizer.steps_done, STEPS):
        optimizer.zero_grad()
        TRAINING.loss(model, step, rank).backward()
        optimizer.step()
        schedule.step()
        if report is not None:
            report.send(("step", step + 1))
            time.sleep(PAUSE)
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    optimizer.close()
    return weights


def alone(rank: int, replicas: int, count: int, lost: int, steps_of_lost: int) -> Weights:
    """The training of `count` replicas, one of which takes part in its first steps only, in one process."""
    model, optimizer, schedule = made()
    for step in range(STEPS):
        ranks = [each for each in range(count) if each != lost or step < steps_of_lost]
        optimizer.zero_grad()
        for each in ranks:
            (TRAINING.loss(model, step, each) / len(ranks)).backward()
        optimizer.step()
        schedule.step()
    return model.state_dict()


def _work(report: Connection, *arguments: object) -> None:
    torch.set_num_threads(1)
    try:
        # Not tensors, which would be gone with the process.
        report.send(("end", {name: each.numpy() for name, each in train(*arguments, report).items()}))
    except tesser.hub.HubError as error:
        report.send(("error", str(error)))


class Worker:
    """One rank in a process that may be killed."""

    def __init__(self, rank: int, *arguments: object) -> None:
        self.rank = rank
        self.report, there = context.Pipe()
        self.process = context.Process(target=_work, args=(there, rank, *arguments), daemon=True)
        self.process.start()
        there.close()
        self.steps = 0
        self.weights: Weights | None = None
        self.error: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.weights is not None or self.error is not None

    def read(self) -> None:
        try:
            kind, value = self.report.recv()
        except EOFError:
            self.error = self.error or "died"
            return
        if kind == "step":
            self.steps = value
        elif kind == "end":
            self.weights = {name: torch.from_numpy(each) for name, each in value.items()}
        else:
            self.error = value

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.report.close()


def read_until(workers: list[Worker], condition, seconds: float) -> float:
    """How long it took."""
    began = time.monotonic()
    while not condition():
        left = began + seconds - time.monotonic()
        assert left > 0, f"still waiting; workers: {[(each.rank, each.steps, each.error) for each in workers]}"
        going = {each.report: each for each in workers if not each.has_ended}
        for report in wait(list(going), left):
            going[report].read()
    return time.monotonic() - began


@pytest.fixture(scope="module")
def undisturbed(replicas: Replicas, hub: str) -> dict[int, Weights]:
    return {count: replicas.run(train, count, hub, new_job(), "stop", False, None)[0] for count in (2, 3)}


def schedule_of(seed: int) -> tuple[str, str, signal.Signals, random.Random]:
    chance = random.Random(seed)
    if seed < len(KINDS):
        return *KINDS[seed], chance
    whom = "hub" if chance.random() < 0.2 else "worker"
    return chance.choice(["stop", "continue", "wait"]), whom, chance.choice([signal.SIGKILL, signal.SIGSTOP]), chance


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_faults(replicas: Replicas, undisturbed: dict[int, Weights], seed: int) -> None:
    on_loss, whom, how, chance = schedule_of(seed)
    count = chance.choice([2, 3])
    lost = chance.randrange(count)
    network = chance.random() < 0.3
    print(f"{how.name} of {whom} {lost} among {count} workers, on_loss {on_loss}, network {network}")
    with HubProcess() as hub:
        arguments = (count, hub.url, new_job(), on_loss, network)
        workers = [Worker(rank, *arguments) for rank in range(count)]
        try:
            read_until(workers, lambda: all(each.steps >= 1 or each.has_ended for each in workers), END_SECONDS)
            time.sleep(chance.uniform(0, PAUSE * STEPS / 2))
            victim = workers[lost].process if whom == "worker" else hub.process
            os.kill(victim.pid, how)
            if whom == "hub":
                check_loss(workers, hub.url)
            else:
                check_worker(replicas, workers, lost, on_loss, arguments, undisturbed[count])
        finally:
            for each in workers:
                each.kill()


def check_loss(others: list[Worker], name: str) -> None:
    seconds = read_until(others, lambda: all(each.has_ended for each in others), END_SECONDS)
    assert seconds < NOTICE_SECONDS + SLACK
    for each in others:
        assert each.error is not None and name in each.error, f"rank {each.rank}: {each.error}"


def check_worker(
    replicas: Replicas, workers: list[Worker], lost: int, on_loss: str, arguments: tuple, undisturbed: Weights
) -> None:
    victim = workers[lost]
    others = [each for each in workers if each is not victim]
    if on_loss == "stop":
        return check_loss(others, f"rank {lost} ({os.uname().nodename}, process {victim.process.pid}) is lost")
    again = Worker(lost, *arguments) if on_loss == "wait" else None
    running = others + ([again] if again else [])
    began = {each.rank: each.steps for each in others}
    # The next step but one of anybody is one that the lost worker took no part in, or took again.
    seconds = read_until(
        running, lambda: all(each.has_ended or each.steps > began[each.rank] + 2 for each in others), END_SECONDS
    )
    assert seconds < NOTICE_SECONDS + SLACK + (START_SECONDS if again else 0)
    read_until(running, lambda: all(each.has_ended for each in running), END_SECONDS)
    for each in running:
        assert each.error is None, f"rank {each.rank}: {each.error}"
        assert all(torch.equal(value, others[0].weights[name]) for name, value in each.weights.items())
    if on_loss == "wait":
        assert all(torch.equal(value, undisturbed[name]) for name, value in again.weights.items())
    else:
        while not victim.has_ended and victim.report.poll(0):
            victim.read()
        # Its last step may be one that it did not report any more.
        candidates = [
            replicas.run(alone, 1, len(workers), lost, steps)[0] for steps in (victim.steps, victim.steps + 1)
        ]
        assert any(
            all(
                torch.allclose(value, candidate[name], rtol=1e-4, atol=1e-5)
                for name, value in others[0].weights.items()
            )
            for candidate in candidates
        )
    if not victim.has_ended and victim.process.is_alive():
        # Who was only stopped finds out that the others have gone on.
        os.kill(victim.process.pid, signal.SIGCONT)
        read_until([victim], lambda: victim.has_ended, END_SECONDS)
        assert victim.error is not None
