"""Trainings through a hub have the losses and weights of DistributedDataParallel over Gloo, within the tolerance of
float32 sums."""

from __future__ import annotations

import pytest
import torch

from tests.python.hub.processes import HubProcess, Replicas
from tests.python.hub.training import (
    TRAININGS,
    Result,
    by_distributed_data_parallel,
    by_hub,
    close_group,
    new_file,
    new_job,
    open_group,
)

STEPS = range(6)
# Of float32 sums in another order, after so many steps; Adam divides by small numbers.
RELATIVE, ABSOLUTE = 2e-5, 2e-6


@pytest.fixture(scope="module")
def expected(replicas: Replicas):
    """By DistributedDataParallel: results of a training and a number of replicas."""
    known: dict[tuple[str, int], list[Result]] = {}
    for count in (2, 3):
        replicas.run(open_group, count, new_file())
        for name in TRAININGS:
            if name != "rows" and (count == 2 or name in OF_THREE):  # torch's Adam takes none
                known[name, count] = replicas.run(by_distributed_data_parallel, count, name, STEPS)
        replicas.run(close_group, count)
    return known


OF_THREE = ("clipped", "unused", "language, tied")


def check(seen: list[Result], expected: list[Result], relative: float = RELATIVE, absolute: float = ABSOLUTE) -> None:
    for rank, (one, other) in enumerate(zip(seen, expected, strict=True)):
        assert one.losses == pytest.approx(other.losses, rel=relative, abs=absolute), f"losses of rank {rank}"
        assert one.model.keys() == other.model.keys()
        for name, value in one.model.items():
            torch.testing.assert_close(
                value, other.model[name], rtol=relative, atol=absolute, msg=lambda text, name=name: f"{name}: {text}"
            )
            assert value.stride() == other.model[name].stride()
        assert_same_form(one.optimizer, other.optimizer, relative, absolute)


def assert_same_form(one: dict, other: dict, relative: float, absolute: float) -> None:
    assert one["param_groups"] == other["param_groups"]
    assert one["state"].keys() == other["state"].keys()
    for index, state in one["state"].items():
        assert state.keys() == other["state"][index].keys()
        for name, value in state.items():
            torch.testing.assert_close(value, other["state"][index][name], rtol=10 * relative, atol=absolute)


@pytest.mark.parametrize("name", TRAININGS)
def test_two_replicas_in_shared_memory(replicas: Replicas, hub: str, expected: dict, name: str) -> None:
    of_torch = "no rows" if name == "rows" else name
    check(replicas.run(by_hub, 2, name, STEPS, new_job(), hub=hub), expected[of_torch, 2])


@pytest.mark.parametrize("name", OF_THREE)
def test_three_replicas(replicas: Replicas, hub: str, expected: dict, name: str) -> None:
    check(replicas.run(by_hub, 3, name, STEPS, new_job(), hub=hub), expected[name, 3])


@pytest.mark.parametrize("name", ["language, tied", "convolutions, channels last", "momentum in groups, one cycle"])
def test_over_the_network(replicas: Replicas, hub: str, expected: dict, name: str) -> None:
    check(replicas.run(by_hub, 2, name, STEPS, new_job(), hub=hub, network=True), expected[name, 2])


def test_small_chunks_without_overlap_on_two_hubs(replicas: Replicas, hub: str, expected: dict) -> None:
    with HubProcess(processors="0-1") as other:
        options = {"hub": [hub, other.url], "chunk_bytes": 1024, "overlap": False, "one_machine": True}
        name = "adamw in groups, cosine"
        check(replicas.run(by_hub, 2, name, STEPS, new_job(), **options), expected[name, 2])


def test_two_racks(replicas: Replicas, hub: str, expected: dict) -> None:
    with HubProcess() as other:
        name = "language, tied"
        options = {"hub": [hub, other.url], "racks": 2}
        check(replicas.run(by_hub, 2, name, STEPS, new_job(), **options), expected[name, 2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_two_bytes(replicas: Replicas, hub: str, expected: dict, dtype: torch.dtype) -> None:
    name = "three backward passes"
    seen = replicas.run(by_hub, 2, name, STEPS, new_job(), hub=hub, gradient_dtype=dtype)
    # As precise as gradients are.
    check(seen, expected[name, 2], relative=torch.finfo(dtype).eps, absolute=torch.finfo(dtype).eps)
    for name, value in seen[0].model.items():
        assert torch.equal(value, seen[1].model[name])


def test_runs_repeat_to_the_bit(replicas: Replicas, hub: str) -> None:
    one, other = (replicas.run(by_hub, 3, "clipped", STEPS, new_job(), hub=hub) for _ in range(2))
    for first, second in zip(one, other):
        assert first.losses == second.losses
        assert all(torch.equal(value, second.model[name]) for name, value in first.model.items())
