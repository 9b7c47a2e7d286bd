"""Tries one network in several ways: right, refused by name, or wrong."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.python.random_networks import source
from tests.python.random_networks.judge import STEPS, Reference
from tests.python.random_networks.network import DoesNotFit, Network
from tests.python.random_networks.runs import INTERPRETER, Captured, Refused, Way, Wrong, drawn_ways

REDRAWS = 5
# What PyTorch or Python says, where tesser should have said something itself.
INTERNAL = re.compile(r"\b(Assertion|Runtime|Key|Type|Index|Attribute|NotImplemented|Value|Name)Error:")


class Useless(Exception):
    """A network whose numbers say nothing."""

    def __init__(self, towers: dict[int, str]) -> None:
        super().__init__(", ".join(f"tower {tower}: {why}" for tower, why in towers.items()))
        self.towers = towers


@dataclass(frozen=True)
class Finding:
    """Something that is not right: of which kind, in which way, in which tower (-1 where that is not known)."""

    kind: str  # "refused", "wrong number", or what went wrong without names and numbers
    way: Way
    tower: int
    message: str

    @property
    def is_refusal(self) -> bool:
        return self.kind == "refused"

    @property
    def reason(self) -> str:
        return plain(self.message)


@dataclass(frozen=True)
class Case:
    """A finding, with the network that has it: one tower where that suffices."""

    network: Network
    finding: Finding


@dataclass
class Tried:
    """What came of a network: the ways that it went, and what was found, by tower."""

    towers: int
    ways: list[Way] = field(default_factory=list)
    refused_ways: list[Finding] = field(default_factory=list)
    cases: dict[int, list[Case]] = field(default_factory=dict)

    def add(self, tower: int, case: Case) -> None:
        self.cases.setdefault(tower, []).append(case)


def plain(message: str) -> str:
    """A message without what differs from network to network."""
    message = re.sub(r"^\S+\.py:\d+: ", "", message)
    message = re.sub(r"\S*/tmp\S*|'[^']*'|\[[^\]]*\]|\b\S*\.py:\d+\b", "…", message)
    return re.sub(r"\d[\d.e+-]*", "N", message)[:160]


class Trial:
    """A network's step file, reference and program in a directory of its own, which goes when it is closed. Raises
    DoesNotFit for blocks that do not fit each other, and Useless for numbers that say nothing."""

    def __init__(self, network: Network, steps: int = STEPS) -> None:
        self.network = network
        self.steps = steps
        self._captured: Captured | None = None
        self._directory = Path(tempfile.mkdtemp(prefix="tesser-random-"))
        path = self._directory / "network.py"
        try:
            self._text = source.source(self.network)
            path.write_text(self._text, encoding="utf-8")
            self.reference = Reference(path, self.steps)
            try:
                useless = self.reference.useless_towers()
            except Exception as error:  # PyTorch itself cannot train it
                raise Useless({-1: f"{type(error).__name__}: {error}"}) from error
            if useless:
                raise Useless(useless)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def capture(self) -> list[Finding]:
        try:
            self._captured = Captured(self.reference.step(), self.reference.batches(source.BATCHES), self._directory)
        except (Refused, Wrong) as error:
            return [_finding(error, INTERPRETER)]
        return []

    def run(self, way: Way) -> list[Finding]:
        try:
            run = self._captured.run(way, self.steps)
        except (Refused, Wrong) as error:
            return [_finding(error, way)]
        found = self.reference.differences(run, way)
        return [Finding("wrong number", way, tower, message) for tower, message in found.items()]

    def tower_named(self, message: str) -> int | None:
        """The tower whose module or source line a message has, if it is one."""
        if found := re.search(r"'towers\.(\d+)", message):
            return int(found[1])
        if found := re.search(r"network\.py:(\d+)", message):
            before = "\n".join(self._text.splitlines()[: int(found[1])])
            numbers = re.findall(r"^class Tower(\d+)", before, re.MULTILINE)
            return int(numbers[-1]) if numbers and "class Network" not in before else None
        return None


def _finding(error: Exception, way: Way) -> Finding:
    message = str(error)
    is_refusal = isinstance(error, Refused) and not INTERNAL.search(message)
    return Finding("refused" if is_refusal else plain(message), way, -1, message)


def findings_of(network: Network, ways: Sequence[Way], steps: int = STEPS) -> list[Finding]:
    """What is found in a network that is as it is; raises Useless and DoesNotFit."""
    with Trial(network, steps) as trial:
        found = trial.capture()
        for way in ways:
            found += [] if found else trial.run(way)
        return found


def useful(seed: int, towers: int) -> Trial | None:
    """A drawn network in which towers that tell nothing are drawn again; None where that does not help."""
    network = source.drawn(seed, towers)
    for again in range(REDRAWS):
        try:
            return Trial(network)
        except Useless as error:
            for tower in error.towers if -1 not in error.towers else range(len(network.towers)):
                source.redrawn(network, tower, again)
        except DoesNotFit:
            return None
    return None


def alone(network: Network, tower: int) -> Network:
    one = network.copy()
    one.towers = [one.towers[tower]]
    return one


def tried(seed: int, towers: int, ways: int) -> Tried | None:
    """Draws a network and tries it. A finding that names no tower is looked for in each by itself, and the others go
    on without those that have it. None where no network could be drawn whose numbers say something."""
    trial = useful(seed, towers)
    if trial is None:
        return None
    done = Tried(len(trial.network.towers))
    numbers = list(range(done.towers))  # of the towers that are left
    waiting = [INTERPRETER, *drawn_ways(seed, ways)]
    while True:
        with trial:
            network = trial.network
            finding = _next_finding(trial, numbers, waiting, done)
        if finding is None:
            return done
        left = _pass_over(network, numbers, finding, trial.tower_named(finding.message), done)
        if len(left) == len(numbers):  # only all of them together have it
            done.add(numbers[0], Case(network, finding))
            waiting.pop(0)
        if not left or not waiting:
            return done
        smaller = network.copy()
        smaller.towers = [network.towers[numbers.index(number)] for number in left]
        numbers = left
        try:
            trial = Trial(smaller)
        except (Useless, DoesNotFit):  # what is left has other numbers now
            return done


def _next_finding(trial: Trial, numbers: list[int], waiting: list[Way], done: Tried) -> Finding | None:
    """Goes the ways that wait, until one ends with something that says not of which tower it is."""
    found = trial.capture()
    while waiting and not found:
        way = waiting[0]
        found = trial.run(way)
        if found and found[0].is_refusal and way.is_divided:
            # Not of a tower: say, nothing in the network can be cut as the preset wants it.
            done.refused_ways += found
        elif all(finding.tower >= 0 for finding in found):
            done.ways.append(way)
            for finding in found:
                done.add(numbers[finding.tower], Case(alone(trial.network, finding.tower), finding))
        else:
            break
        waiting.pop(0)
        found = []
    return found[0] if found else None


def _pass_over(network: Network, numbers: list[int], finding: Finding, named: int | None, done: Tried) -> list[int]:
    """The numbers of the towers that by themselves do not have what was found; of the others it is written down. Only
    the one that the message names is looked at, if it has it."""
    places = [*([named] if named is not None else []), *(place for place in range(len(numbers)) if place != named)]
    left = list(numbers)
    for place in places:
        one = alone(network, place)
        try:
            found = findings_of(one, [finding.way])
        except (Useless, DoesNotFit):
            found = []
        if found:
            done.add(numbers[place], Case(one, found[0]))
            left.remove(numbers[place])
            if place == named and found[0].kind == finding.kind:
                break
    return left
