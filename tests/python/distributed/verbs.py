"""A training over verbs, whose workers run inside the guest of tests/clusters/rxe-vm.sh: what the guest needs is made
outside, and what it leaves is compared outside, so that it runs nothing but tesser (`./x test --rdma`).

    python -m tests.python.distributed.verbs prepare DIRECTORY    program, data, and one worker's run
    python -m tests.python.distributed.verbs compare DIRECTORY    the guest's run with that
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import tesser
from tests.python.commands import command
from tests.python.distributed.runs import trained, weights
from tests.python.models.cases import PAIRS
from tests.python.models.equality import SEED, Run, differences, write_data

CASE = PAIRS["mlp-adam"]
STEPS = 10
OPTIONS = ["--steps", str(STEPS), "--no-shuffle", "--seed", str(SEED)]
# Of the guest's run, in the directory.
EVENTS = "verbs.json"
CHECKPOINT = "verbs"


def prepare(directory: Path) -> None:
    tesser.capture(CASE.step(), directory / "step.tesser")
    write_data(directory / "data", CASE.samples(STEPS))
    one = trained(directory / "step.tesser", directory / "data", directory / "one", *OPTIONS)
    (directory / "one.json").write_text(json.dumps(one.losses))
    words = command(
        "train", directory / "step.tesser", "--data", directory / "data", "--threads", 1, "--json", *OPTIONS,
        "--workers", 2, "--preset", "tofu", "--network", "--checkpoint", directory / CHECKPOINT,
    )  # fmt: skip
    (directory / "training.sh").write_text(f"exec {shlex.join(words)} > {shlex.quote(str(directory / EVENTS))}\n")


def compare(directory: Path) -> list[str]:
    """What is wrong with the guest's run."""
    events = [json.loads(line) for line in (directory / EVENTS).read_text().splitlines()]
    paths = [path for event in events if event["event"] == "start" for path in event["paths"]]
    wrong = [] if paths and all("rc_verbs" in path for path in paths) else [f"workers exchanged tensors over {paths}"]
    one = Run(json.loads((directory / "one.json").read_text()), weights(directory / "one"))
    losses = [event["loss"] for event in events if event["event"] == "step"]
    return wrong + differences(Run(losses, weights(directory / CHECKPOINT)), one, CASE.tolerance)


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "prepare":
        prepare(where)
    elif found := compare(where):
        sys.exit("\n".join(found))
