"""From outcomes to the table's words: the weakest that cover only mixtures that a kernel takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.python.layout_sweep.calls import tensor_arguments
from tests.python.layout_sweep.layouts import WORDS, Layout
from tests.python.layout_sweep.results import predicts
from tests.python.layout_sweep.trial import Outcome


@dataclass(frozen=True)
class Line:
    """What the table says of one operator. `arguments` by name; those not named are `rows`."""

    operator: str
    arguments: tuple[tuple[str, str], ...]
    results: tuple[str, ...]

    def words(self, names: Sequence[str]) -> list[str]:
        return words_of(dict(self.arguments), names)

    def covers(self, outcome: Outcome) -> bool:
        return covers(dict(self.arguments), outcome.names, outcome.layouts)


def words_of(arguments: Mapping[str, str], names: Sequence[str]) -> list[str]:
    return [arguments.get(name, arguments.get("*", "rows")) for name in names]


def covers(arguments: Mapping[str, str], names: Sequence[str], layouts: Sequence[Layout]) -> bool:
    """Whether the mixture is one that the words allow."""
    for word, layout in zip(words_of(arguments, names), layouts):
        if word.startswith("like("):
            other = next((candidate for name, candidate in zip(names, layouts) if name == word[5:-1]), None)
            if not (layout.rows if other is None else layout.like(other)):
                return False
        elif not layout.takes(word):
            return False
    return True


def violations(line: Line, outcomes: Sequence[Outcome]) -> list[str]:
    """Mixtures that the line allows and the kernel does not take, and results that are not what it says."""
    found = []
    for outcome in filter(line.covers, outcomes):
        mixture = ", ".join(f"{name} {layout}" for name, layout in zip(outcome.names, outcome.layouts))
        if not outcome.taken:
            found.append(f"{line.operator} of {mixture}: {outcome.verdict}: {outcome.detail}")
            continue
        words = line.results if len(line.results) == len(outcome.results) else line.results[:1] * len(outcome.results)
        for word, result in zip(words, outcome.results):
            if word not in ("unknown", "view") and not predicts(word, result, outcome.names, outcome.layouts):
                found.append(f"{line.operator} of {mixture}: a result is {result}, not {word}")
    return found


def derive(operator: str, outcomes: Sequence[Outcome], held: Sequence[str] = ()) -> Line:
    """The operator's line; arguments named in `held`, or all for "*", are `rows` whatever was found."""
    names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.names))
    bad = [outcome for outcome in outcomes if not outcome.taken]
    right = [outcome for outcome in outcomes if outcome.taken]

    def holds(words: Mapping[str, str]) -> bool:
        allowed = all(word == "rows" for name, word in words.items() if name in held or "*" in held)
        return allowed and not any(covers(words, outcome.names, outcome.layouts) for outcome in bad)

    uniform = next((word for word in WORDS if holds(dict.fromkeys(names, word))), "rows")
    words = dict.fromkeys(names, uniform)
    if uniform != "any":
        for name in names:
            for word in WORDS[: WORDS.index(uniform)]:
                if holds(words | {name: word}):
                    words[name] = word
                    break
        together = _together(names, right, holds)
        if together is not None and _reach(together, right) > _reach(words, right):
            words = together
    for name in names:
        dims = max(
            len(layout.shape)
            for outcome in outcomes
            for other, layout in zip(outcome.names, outcome.layouts)
            if other == name
        )
        if dims <= 1 and words[name] != "any":
            words[name] = "rows"  # all words but `any` are one for a vector
    given = {argument.name for argument in tensor_arguments(operator)} - words.keys()
    return Line(operator, (*words.items(), *((name, "rows") for name in sorted(given))), _results(words, right))


def _together(names: Sequence[str], right: Sequence[Outcome], holds) -> dict[str, str] | None:
    """Words by which all follow one argument, where such hold."""
    for first in names:
        for word in ("dense", "image"):
            words = {name: f"like({first})" for name in names} | {first: word}
            if holds(words):
                for name in names:
                    if name != first:
                        for weaker in ("any", "dense"):
                            if holds(words | {name: weaker}):
                                words[name] = weaker
                                break
                return words
    return None


def _reach(words: Mapping[str, str], right: Sequence[Outcome]) -> int:
    return sum(covers(words, outcome.names, outcome.layouts) for outcome in right)


def _results(words: Mapping[str, str], right: Sequence[Outcome]) -> tuple[str, ...]:
    covered = [outcome for outcome in right if covers(words, outcome.names, outcome.layouts)]
    if not covered:
        return ("unknown",)
    counts = {len(outcome.results) for outcome in covered}
    if len(counts) > 1:  # a list: one word for all of it
        return (_word([(o, result) for o in covered for result in o.results]),)
    return tuple(_word([(o, o.results[i]) for o in covered if o.results[i].shape]) for i in range(counts.pop()))


def _word(pairs: Sequence[tuple[Outcome, Layout]]) -> str:
    """The first word that predicts every layout of a result."""
    names = list(dict.fromkeys(name for outcome, _ in pairs for name in outcome.names))
    candidates = ["rows", *(f"like({n})" for n in names[:1]), "iterator", *(f"like({n})" for n in names[1:])]
    candidates += [f"image({n})" for n in names]
    candidates += [f"images({n})" for n in names]
    if pairs and "convolution" in pairs[0][0].operator:
        candidates.append("convolution")
    for word in candidates:
        if all(predicts(word, result, outcome.names, outcome.layouts) for outcome, result in pairs):
            return word
    return "unknown"
