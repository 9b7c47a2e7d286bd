"""What the sweep stands on would notice a fault: its comparison, its bundles and its list of refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tesser
from tests.python.operator_sweep import refusals
from tests.python.operator_sweep.bundles import Failure, train_each
from tests.python.operator_sweep.comparison import tensor_difference
from tests.python.operator_sweep.samples import Numbers, run_eagerly, samples_of, step_of, variants
from tests.python.operator_sweep.sweep import REFUSED, RIGHT, WRONG, Result


def _sample(name: str, index: int = 0) -> tesser.Step:
    variant = next(each for each in variants() if each.name == name)
    return step_of(samples_of(variant)[index])


class TestComparison:
    BEFORE = torch.zeros(5)
    EAGER = torch.tensor([1.0, -2.0, 1e-3, float("nan"), float("inf")])

    def test_equal_numbers(self) -> None:
        assert tensor_difference(self.EAGER.clone(), self.EAGER, None, self.BEFORE) is None

    @pytest.mark.parametrize("element", range(5))
    def test_one_element(self, element: int) -> None:
        ours = self.EAGER.clone()
        ours[element] = 1.01 * ours[element] if ours[element].isfinite() else 5.0
        found = tensor_difference(ours, self.EAGER, None, self.BEFORE)
        assert found is not None
        assert f"1 of 5 elements differ, most the {element}th" in found

    def test_a_difference_as_large_as_that_of_float64_is_rounding(self) -> None:
        ours = self.EAGER.clone()
        ours[1] += 3e-3
        exact = self.EAGER.double()
        exact[0] += 1e-3
        assert tensor_difference(ours, self.EAGER, exact, self.BEFORE) is None
        ours[1] += 3e-3
        assert tensor_difference(ours, self.EAGER, exact, self.BEFORE) is not None

    def test_another_shape_or_type(self) -> None:
        assert "float64" in tensor_difference(self.EAGER.double(), self.EAGER, None, self.BEFORE)
        assert "[1, 5]" in tensor_difference(self.EAGER[None], self.EAGER, None, self.BEFORE)


class TestBundles:
    @pytest.fixture(scope="class")
    def parts(self) -> dict[int, tuple[tesser.Step, Numbers]]:
        steps = [_sample("mul"), _sample("nn.functional.linear"), _sample("sin in place")]
        return {number: (step, run_eagerly(step)) for number, step in enumerate(steps)}

    def test_each_part_has_its_own_numbers(self, parts: dict, tmp_path: Path) -> None:
        captured = {number: tesser.capture(step) for number, (step, _) in parts.items()}
        for words in ((), ("--workers", 2, "--preset", "tofu")):
            done = train_each(captured, tmp_path / str(len(words)), *words)
            for number, (_, eager) in parts.items():
                assert done[number].loss == pytest.approx(eager.loss, rel=1e-5)
                for name, tensor in eager.state.items():
                    torch.testing.assert_close(done[number].state[name], tensor)

    def test_a_part_that_fails_is_found(self, parts: dict, tmp_path: Path) -> None:
        captured = {number: tesser.capture(step) for number, (step, _) in parts.items()}
        node = captured[1].program.nodes[0]
        node.op = "aten::no_such_operator"
        done = train_each(captured, tmp_path / "bundle")
        assert isinstance(done[0], Numbers)
        assert isinstance(done[1], Failure)
        assert "no_such_operator" in done[1].message
        assert isinstance(done[2], Numbers)


class TestRefusals:
    def test_the_list_is_read_as_it_is_written(self) -> None:
        listed = {("inv", 0): "reads a value", ("inv", 1): "reads a value", ("inv", 2): "complex", ("mm", 5): "x: y"}
        text = refusals.to_text(listed)
        assert "inv: 0-1: reads a value\ninv: 2: complex\nmm: 5: x: y\n" in text
        assert refusals.from_text(text) == listed

    def test_changes(self) -> None:
        listed = {("a", 0): "why", ("b", 0): "why", ("c", 0): "why", ("d", 0): "why", ("gone", 0): "why"}
        results = [
            Result("a", 0, REFUSED, "why; what to do"),
            Result("b", 0, RIGHT),
            Result("c", 0, WRONG, "other numbers"),
            Result("d", 0, REFUSED, "another reason"),
            Result("e", 0, REFUSED, "new"),
            Result("f", 0, RIGHT),
        ]
        changes = refusals.changes(results, listed, whole=True)
        assert changes == [
            "b #0 is right and listed as refused: why",
            "c #0 is wrong and listed as refused: why",
            "d #0 is refused for another reason: another reason; listed: why",
            "e #0 is newly refused: new",
            "gone #0 is listed and does not exist",
        ]
        assert refusals.changes(results, listed, whole=False) == changes[:-1]
