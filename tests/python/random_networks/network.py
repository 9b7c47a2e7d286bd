"""A random network as data, and the step file that it is written as.

A network is towers side by side, each a chain of blocks from an input of its own to a loss of its own; the step's loss
is their sum and each tower's loss a metric, so that many small networks train in one program and are told apart. The
step file stands alone: what is tested is what is printed.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from tests.python.random_networks.draw import Options

Shape = tuple[int, ...]


@dataclass
class Block:
    """One block of a tower. One with `inner` blocks joins their result with what they began from."""

    kind: str
    options: Options = field(default_factory=dict)
    inner: list[Block] = field(default_factory=list)


@dataclass
class Tower:
    input: Options
    blocks: list[Block]
    loss: Block


@dataclass
class Network:
    towers: list[Tower]
    training: Options
    seed: int

    def copy(self) -> Network:
        return deepcopy(self)


@dataclass
class Code:
    """What a block adds to the module: lines of __init__, lines of forward that turn `x` into a new `x`, and what it
    needs in the batch (an expression by name, with the whole batch as its first dimension)."""

    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    batch: dict[str, str] = field(default_factory=dict)


@dataclass
class Module:
    """A module that later blocks of the tower may use again."""

    name: str
    kind: str
    before: Shape
    after: Shape


@dataclass
class Context:
    """Where a block stands: the tower's number, what `batch` holds so far, and the modules before it."""

    tower: int
    samples: int  # of a micro-batch
    accumulate: int
    modules: list[Module] = field(default_factory=list)
    blocks: int = 0
    entries: int = 0

    def name(self, kind: str) -> str:
        self.blocks += 1
        return f"{kind}{self.blocks}"

    def entry(self, name: str) -> str:
        """A new name in the batch for something that this tower needs."""
        self.entries += 1
        return f"{name}{self.entries}_{self.tower}"

    @property
    def whole(self) -> int:
        return self.samples * self.accumulate


class DoesNotFit(Exception):
    """A block cannot take what stands before it."""
