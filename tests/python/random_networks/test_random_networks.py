"""Random networks train as PyTorch trains them, whichever way a program runs; `./x test --random` tries ten thousand.

A network that fails is made as small as it can be, and its step file is the failure's message.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import tesser
from tests.python.random_networks import source
from tests.python.random_networks.campaign import TOWERS, WAYS, settle
from tests.python.random_networks.check import Case, Useless, findings_of, tried
from tests.python.random_networks.judge import Reference
from tests.python.random_networks.known import known
from tests.python.random_networks.losses import LOSSES
from tests.python.random_networks.network import Block, Network, Tower
from tests.python.random_networks.reduction import reduced, step_file
from tests.python.random_networks.runs import INTERPRETER, PRESETS, drawn_ways

SEEDS = 12


@pytest.fixture(autouse=True)
def _settled() -> None:
    settle()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_networks_train_as_in_pytorch(seed: int) -> None:
    done = tried(seed, TOWERS, WAYS)
    assert done is not None, "no network of this seed says something"
    assert INTERPRETER in done.ways and len(done.ways) + len(done.refused_ways) > WAYS
    for cases in done.cases.values():
        for case in cases:
            if not case.finding.is_refusal and known(case) is None:
                small, steps = reduced(case)
                assert known(small) is not None, step_file(small, steps)


def test_all_kinds_and_ways_are_met() -> None:
    """In some hundred networks each kind of block and loss, and in as many programs each way."""
    missing = {*source.BLOCKS, *LOSSES, source.JOINED}
    for seed in range(600):
        for tower in source.drawn(seed, 1).towers if missing else ():
            missing -= {tower.loss.kind, *(inner.kind for block in tower.blocks for inner in (block, *block.inner))}
    assert not missing
    ways = [way for seed in range(200) for way in drawn_ways(seed, WAYS)]
    assert set(PRESETS) <= {way.plan for way in ways}
    assert {way.workers for way in ways} == {1, 2, 3, 4, 5} and {way.threads for way in ways} == {1, 2}
    assert {way.replicas for way in ways} == {1, 2, 3} and {way.resumed for way in ways} == {0, 1, 2}


def test_a_seed_draws_the_same_network() -> None:
    assert source.source(source.drawn(3, 2)) == source.source(source.drawn(3, 2))
    assert source.source(source.drawn(3, 2)) != source.source(source.drawn(4, 2))


def broken_network() -> Network:
    """Two towers, one of which has a softplus among other blocks."""
    blocks = ["linear", "layer_norm", "activation", "scale", "dropout"]
    tower = Tower({"rank": 3, "size0": 4}, [Block(kind) for kind in blocks], Block("regression"))
    other = Tower({}, [Block("linear", {"features": 5}), Block("tied")], Block("classes"))
    network = Network([other, tower], {"optimizer": "AdamW", "decay": 0.1}, 7)
    network.towers[1].blocks[2].options["function"] = "F.softplus(x)"
    network.towers[1].blocks.insert(3, Block(source.JOINED, {}, [Block("activation"), Block("roll")]))
    return network


def test_a_fault_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    network = broken_network()
    assert findings_of(network, [INTERPRETER]) == []
    right = tesser.interpreter.Operator.__call__

    def wrong(operator: tesser.interpreter.Operator, values: dict[str, Tensor]) -> list[Tensor | None]:
        results = right(operator, values)
        is_softplus = operator._function is torch.ops.aten.softplus.default
        return [result * 1.01 if is_softplus else result for result in results]

    monkeypatch.setattr(tesser.interpreter.Operator, "__call__", wrong)
    found = findings_of(network, [INTERPRETER])
    assert {(finding.kind, finding.tower) for finding in found} == {("wrong number", 1)}
    small, steps = reduced(Case(network, found[0]))
    assert steps == 1
    assert len(small.network.towers) == 1 and small.network.training == {}
    assert len(small.network.towers[0].blocks) == 2
    text = step_file(small, steps)
    assert "F.softplus(x)" in text and "instead of" in text


def test_a_step_file_stands_alone(tmp_path: Path) -> None:
    """Alone it gives what it gave as a network, and what it writes is the data."""
    path = tmp_path / "network.py"
    path.write_text(source.source(broken_network()), encoding="utf-8")
    reference = Reference(path)
    program = tmp_path / "network.tesser"
    tesser.capture(reference.step(), program)
    run = tesser.interpret(program, 4, reference.batches(4), seed=5)
    assert run.losses == pytest.approx([row[0] for row in reference.allowed().run.losses], rel=1e-4)


def test_numbers_that_say_nothing_are_told() -> None:
    """A tower that training does not change."""
    towers = [Tower({}, [Block(kind)], Block("alone")) for kind in ("linear", "activation")]
    with pytest.raises(Useless, match=r"^tower 1: training changes nothing$"):
        findings_of(Network(towers, {}, 1), [])
