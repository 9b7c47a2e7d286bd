"""Faults that are known and not mended yet: what random networks find of them is told and does not count as wrong.

An entry goes when its fault is mended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.python.random_networks import source
from tests.python.random_networks.check import Case


@dataclass(frozen=True)
class Known:
    what: str
    message: str  # found in the finding's message
    network: str = ""  # found in the step file


KNOWN: tuple[Known, ...] = (
    Known("GroupNorm whose input needs no gradient, cut along its groups", "gamma.numel|Expected !gamma"),
    Known("a fused expression whose part is empty", "takes an expression"),
)


def known(case: Case) -> Known | None:
    text = source.source(case.network)
    for entry in KNOWN:
        if re.search(entry.message, case.finding.message) and re.search(entry.network, text):
            return entry
    return None
