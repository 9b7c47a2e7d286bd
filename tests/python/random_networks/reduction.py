"""Makes a network that fails as small as it can be, and writes it as a step file that stands alone."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.python.models.equality import SEED
from tests.python.random_networks import source
from tests.python.random_networks.check import Case, Finding, Useless, findings_of
from tests.python.random_networks.judge import STEPS
from tests.python.random_networks.network import Block, DoesNotFit, Network
from tests.python.random_networks.runs import Way

SECONDS = 120.0


def reduced(case: Case, seconds: float = SECONDS) -> tuple[Case, int]:
    """The smallest network and simplest way found within the time that fail in the same manner, and the number of
    steps that they need. Whatever is taken away stays away if the failure stays."""
    deadline = time.monotonic() + seconds
    steps = STEPS
    network, way = case.network, case.finding.way
    finding = _same(network, way, steps, case.finding)
    if finding is None:
        return case, steps
    while True:
        smaller = False
        for fewer in (1, 2):
            if fewer < steps and not way.resumed and (again := _same(network, way, fewer, finding)):
                steps, finding, smaller = fewer, again, True
        for simpler in way.simpler():
            if time.monotonic() < deadline and (again := _same(network, simpler, steps, finding)):
                way, finding, smaller = simpler, again, True
                break
        candidates = _smaller(network)
        while time.monotonic() < deadline and (candidate := next(candidates, None)) is not None:
            if again := _same(candidate, way, steps, finding):
                network, finding, smaller = candidate, again, True
                candidates = _smaller(network)
        if not smaller or time.monotonic() > deadline:
            return Case(network, finding), steps


def _same(network: Network, way: Way, steps: int, finding: Finding) -> Finding | None:
    """The finding of the same kind, where the network has one."""
    try:
        found = findings_of(network, [way], steps)
    except (Useless, DoesNotFit):
        return None
    return next((each for each in found if each.kind == finding.kind), None)


def _smaller(network: Network) -> Iterator[Network]:
    """Networks with one thing less: a tower, blocks (many first), a nesting, or an option."""
    for number in range(len(network.towers)):
        if len(network.towers) > 1:
            candidate = network.copy()
            del candidate.towers[number]
            yield candidate
    for number, tower in enumerate(network.towers):
        count = len(tower.blocks)
        length = count
        while length >= 1:
            for begin in range(0, count, length):
                candidate = network.copy()
                del candidate.towers[number].blocks[begin : begin + length]
                yield candidate
            length //= 2
        for place, block in enumerate(tower.blocks):
            if block.inner:
                candidate = network.copy()
                candidate.towers[number].blocks[place : place + 1] = block.inner
                yield candidate
            for inner in range(len(block.inner)):
                candidate = network.copy()
                del candidate.towers[number].blocks[place].inner[inner]
                yield candidate
        if tower.loss != Block("alone"):
            candidate = network.copy()
            candidate.towers[number].loss = Block("alone")
            yield candidate
    for name in network.training:
        candidate = network.copy()
        del candidate.training[name]
        yield candidate
    yield from _with_fewer_options(network)


def _with_fewer_options(network: Network) -> Iterator[Network]:
    for place, options in enumerate(_all_options(network)):
        for name in options:
            candidate = network.copy()
            del _all_options(candidate)[place][name]
            yield candidate


def _all_options(network: Network) -> list[dict]:
    found = []
    for tower in network.towers:
        found += [tower.input, tower.loss.options]
        for block in tower.blocks:
            found += [each.options for each in (block, *block.inner)]
    return found


def step_file(case: Case, steps: int) -> str:
    """The text of STEP.py, with what is wrong and how to see it."""
    finding = case.finding
    words = ["tesser capture STEP.py -o network.tesser", "python STEP.py data"]
    if finding.way.how == "train":
        words.append(_command(finding.way, steps))
    heading = [f"{finding.way}: {finding.message}".replace('"""', "'''").replace("\\", "/"), "", *words, ""]
    return source.source(case.network, "\n".join(heading))


def _command(way: Way, steps: int) -> str:
    begun = f"tesser train network.tesser --data data --no-shuffle --steps {steps} --seed {SEED}"
    return str(way).replace("tesser train", begun, 1)
