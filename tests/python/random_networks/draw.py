"""Choices that are drawn once, written down by name, and made again from what was written.

A choice lists its simplest value first. Only other values are written down, so a network is made simpler by taking an
option away, and one whose shape has changed takes the simplest value where the old one does not fit any more.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

Options = dict[str, Any]


class Draw:
    """Options of one part of a network: drawn where there is a `random`, else read."""

    def __init__(self, options: Options, random: Random | None = None, plain: float = 0.45) -> None:
        self.options = options
        self._random = random
        self._plain = plain  # share of choices that take the simplest value
        self.used: set[str] = set()

    def of(self, name: str, *values: T) -> T:
        """One of the values, the first of which is the simplest."""
        self.used.add(name)
        if self._random is not None:
            value = values[0] if self._random.random() < self._plain else self._random.choice(values)
            if value != values[0]:
                self.options[name] = value
            return value
        value = self.options.get(name, values[0])
        if value not in values:
            del self.options[name]
            return values[0]
        return value

    def flag(self, name: str, simplest: bool = False) -> bool:
        return self.of(name, simplest, not simplest)

    def size(self, name: str, low: int, high: int, simplest: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        first = low if simplest is None else simplest
        return self.of(name, first, *(value for value in range(low, high + 1) if value != first))

    def each(self, name: str, count: int, *values: T) -> list[T]:
        """One of the values for each of `count` dimensions, often the same for all."""
        shared = self.of(name, *values)
        if count > 1 and self.flag(f"{name}_differ"):
            return [shared] + [self.of(f"{name}{index}", *values) for index in range(1, count)]
        return [shared] * count

    def drop_unused(self) -> None:
        for name in set(self.options) - self.used:
            del self.options[name]


def divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0]
