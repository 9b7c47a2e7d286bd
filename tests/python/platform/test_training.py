"""Trainings as jobs, under each engine, end with the weights of the same training outside of the platform: without a
break to the bit, and halted and resumed on another number of learners within the tolerances of docs/exactness.md.

TESSER_ALL_ENGINES: as `./x test --kubernetes` runs them, on every engine and to the examples' own ends; the usual run
cuts them short.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.python.commands import ROOT, binary, tesser_output
from tests.python.models.equality import TOLERANCES, Run, differences
from tests.python.platform.engine_servers import ENGINES, EngineServer, engine_server
from tests.python.platform.server_process import free_port, zip_of

pytestmark = pytest.mark.skipif(
    not binary().with_name("tesser-runtime").exists(), reason="tesser was built without its runtime"
)

IS_WHOLE = "TESSER_ALL_ENGINES" in os.environ
MNIST_EPOCHS = 10 if IS_WHOLE else 2
# What ./x demo promises, and what two epochs of a schedule for ten come to.
MNIST_ACCURACY = 0.985 if IS_WHOLE else 0.95
SECONDS = 300

# A convex loss with decay of the weights: whatever the order of its sums, it goes to one end, so that thousands of
# steps, long enough to be halted in between, say as much as a few. A step takes about a millisecond.
REGRESSION_STEPS = 10_000
REGRESSION = """
import torch
from torch import nn
import tesser

def loss(model, batch):
    return nn.functional.cross_entropy(model(batch["images"]), batch["labels"])

def step():
    torch.manual_seed(0)
    model = nn.Linear(1024, 256)
    return tesser.Step(
        model,
        loss,
        {"images": torch.zeros(32, 1024), "labels": torch.zeros(32, dtype=torch.int64)},
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01),
        name="regression",
    )
"""


def engines(usual: str) -> pytest.MarkDecorator:
    """Of a test: all that are there, or the one that shows most in the usual run."""
    return pytest.mark.parametrize("running", ENGINES if IS_WHOLE else (usual,), indirect=True, scope="module")


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    with engine_server(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its data prepared, its program captured and `plain.safetensors` trained without the platform."""
    example = shutil.copytree(ROOT / "examples" / "mnist", tmp_path_factory.mktemp("mnist") / "mnist")
    subprocess.run([sys.executable, example / "prepare.py"], check=True, capture_output=True, timeout=SECONDS)
    tesser_output("capture", example / "step.py", "-o", example / "mnist.tesser")
    train_plainly(example / "mnist.tesser", [*mnist_words(example), "--every", 500], example, workers=2)
    return example


def mnist_words(directory: Path) -> list[object]:
    return ["--data", directory / "data/train", "--evaluate", directory / "data/check", "--epochs", MNIST_EPOCHS]


def write_regression_data(directory: Path) -> None:
    random = np.random.default_rng(1)
    images = random.standard_normal((400, 1024)).astype(np.float32)
    directory.mkdir()
    np.save(directory / "images.npy", images / 8)
    np.save(directory / "labels.npy", images[:, :256].argmax(axis=1).astype(np.int64))


def train_plainly(program: Path, words: list[object], directory: Path, workers: int) -> None:
    """As the platform starts a training, by hand: workers that meet their coordinator over the network. The exported
    weights are plain.safetensors in the directory.
    """
    run = directory / "plain"
    train = ["train", program, "--checkpoint", run, "--keep", 3, "--threads", 1, "--json", *words]
    processes = [train]
    if workers > 1:
        meeting = f"127.0.0.1:{free_port()}"
        train += ["--workers", workers, "--external", "--listen", meeting]
        processes += [["worker", "--coordinator", f"http://{meeting}", "--worker", rank] for rank in range(workers)]
    variables = {"TESSER_PYTHON": sys.executable, "TESSER_RUN_TOKEN": "token", "OMP_NUM_THREADS": "1"}
    with (directory / "plain.log").open("wb") as log:
        started = [
            subprocess.Popen(
                [str(word) for word in (binary(), *command)], env=os.environ | variables, stdout=log, stderr=log
            )
            for command in processes
        ]
        codes = [process.wait(SECONDS) for process in started]
    assert not any(codes), (directory / "plain.log").read_text()
    tesser_output("export", run, "-o", directory / "plain.safetensors")


def results_of(running: EngineServer, job: str, directory: Path) -> Path:
    """Its results, downloaded."""
    answer = running.server.ask("GET", f"/v1/jobs/{job}/results")
    assert answer.status == 200, answer.error
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as archive:
        archive.extractall(directory, filter="data")
    return directory


def events_of(running: EngineServer, job: str, kind: str) -> list[dict]:
    """Of all attempts, page by page."""
    found, cursor, ended = [], "", False
    while not ended:
        page = running.server.get(f"/v1/jobs/{job}/logs?limit=10000&cursor={cursor}")
        events = [json.loads(line["text"]) for line in page["lines"] if line["text"].startswith('{"event"')]
        found += [event for event in events if event["event"] == kind]
        ended = page["ended"] or not page["lines"]
        cursor = page["cursor"]
    return found


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    unequal = [name for name in found if not torch.equal(found[name], expected[name])]
    assert unequal == []


def halt_in_the_middle_and_resume(running: EngineServer, job: str, steps: int, learners: int) -> int:
    """Halts it when a part of its steps are done; returns how many were."""
    server, until = running.server, time.monotonic() + running.seconds
    while (progress := server.get(f"/v1/jobs/{job}")["progress"]) is None or (progress["step"] or 0) < steps // 20:
        assert time.monotonic() < until, server.get(f"/v1/jobs/{job}")
        time.sleep(0.02)
    assert server.ask("PATCH", f"/v1/jobs/{job}", {"wanted": "halt"}).status == 200
    halted = server.wait_for(job, "HALTED", seconds=running.seconds)
    answer = server.ask("PATCH", f"/v1/jobs/{job}", {"wanted": "run", "learners": learners})
    assert answer.json["learners_wanted"] == learners
    while (now := server.get(f"/v1/jobs/{job}"))["state"] != "COMPLETED":
        assert now["state"] != "FAILED" and time.monotonic() < until, now
        time.sleep(0.05)
    return halted["progress"]["step"]


@engines("slurm")
def test_digits_on_two_workers(running: EngineServer, mnist: Path, tmp_path: Path) -> None:
    """examples/mnist/job.yaml, as its README says."""
    text = (mnist / "job.yaml").read_text()
    whole = text.replace("--epochs, 10", f"--epochs, {MNIST_EPOCHS}")
    assert whole != text or IS_WHOLE
    code = {f"data/{path.parent.name}/{path.name}": path.read_bytes() for path in mnist.glob("data/*/*.npy")}
    code["step.py"] = (mnist / "step.py").read_bytes()
    job = running.server.accepted(running.manifest(whole), zip_of(code))
    running.server.wait_for(job, "COMPLETED", seconds=running.seconds)
    assert sorted(running.nodes_of(job)) == ["node1", "node2"]
    accuracies = [event["results"]["accuracy"] for event in events_of(running, job, "evaluation")]
    assert len(accuracies) == MNIST_EPOCHS and accuracies[-1] > MNIST_ACCURACY
    weights = load_file(results_of(running, job, tmp_path) / "weights.safetensors")
    assert_equal(weights, load_file(mnist / "plain.safetensors"))


@engines("local")
def test_a_program_goes_on_with_another_number_of_workers(running: EngineServer, tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(REGRESSION)
    write_regression_data(tmp_path / "data")
    tesser_output("capture", tmp_path / "step.py", "-o", tmp_path / "regression.tesser")
    words = ["--steps", REGRESSION_STEPS, "--seed", 3]
    train_plainly(tmp_path / "regression.tesser", ["--data", tmp_path / "data", *words], tmp_path, workers=1)

    text = "name: regression\nprogram: step.py\ndata: data\nworkers: 2\ncpus: 1\nmemory: 1GiB\ngrace: 10\n"
    code = {f"data/{path.name}": path.read_bytes() for path in (tmp_path / "data").iterdir()} | {"step.py": REGRESSION}
    arguments = [str(word) for word in words]
    job = running.server.accepted(running.manifest(text, arguments=arguments), zip_of(code))
    done = halt_in_the_middle_and_resume(running, job, REGRESSION_STEPS, learners=1)
    starts = [event["step"] for event in events_of(running, job, "start")]
    assert starts[0] == 0 and 0 < starts[1] < REGRESSION_STEPS, (starts, done)
    weights = load_file(results_of(running, job, tmp_path) / "weights.safetensors")
    expected = load_file(tmp_path / "plain.safetensors")
    assert differences(Run([], weights), Run([], expected), TOLERANCES[torch.float32]) == []


def run_ddp_plainly(directory: Path, epochs: int) -> dict[str, torch.Tensor]:
    """examples/platform/train.py on two processes of this machine."""
    directory.mkdir()
    words = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()),
        str(ROOT / "examples/platform/train.py"), "--epochs", str(epochs),
    ]  # fmt: skip
    directories = {"CHECKPOINT_DIR": str(directory), "RESULT_DIR": str(directory), "OMP_NUM_THREADS": "1"}
    subprocess.run(words, env=os.environ | directories, check=True, capture_output=True, timeout=SECONDS)
    return torch.load(directory / "model.pt")


def ddp_manifest(running: EngineServer, epochs: int) -> tuple[str, bytes]:
    example = ROOT / "examples" / "platform"
    text = (example / "job.yaml").read_text()
    changed = text.replace("--epochs 5", f"--epochs {epochs}")
    assert changed != text or epochs == 5
    return running.manifest(changed), zip_of({"train.py": (example / "train.py").read_bytes()})


@engines("slurm")
def test_a_script_of_distributed_data_parallel(running: EngineServer, tmp_path: Path) -> None:
    job = running.server.accepted(*ddp_manifest(running, 5))
    running.server.wait_for(job, "COMPLETED", seconds=running.seconds)
    assert sorted(running.nodes_of(job)) == ["node1", "node2"]
    losses = [float(found[1]) for line in running.server.log(job) if (found := re.match(r"step .* loss (\S+)", line))]
    assert len(losses) == 5 and losses[-1] < losses[0]
    metrics = running.server.get(f"/v1/jobs/{job}/metrics?name=loss")["metrics"]
    assert [metric["value"] for metric in metrics] == losses
    weights = torch.load(results_of(running, job, tmp_path) / "model.pt")
    assert_equal(weights, run_ddp_plainly(tmp_path / "plain", 5))


@pytest.mark.skipif(not IS_WHOLE, reason="takes minutes; ./x test --kubernetes runs it")
@engines("local")
def test_a_script_goes_on_with_another_number_of_learners(running: EngineServer, tmp_path: Path) -> None:
    epochs = 20
    job = running.server.accepted(*ddp_manifest(running, epochs))
    done = halt_in_the_middle_and_resume(running, job, 64 * epochs, learners=1)
    assert 0 < done < 64 * epochs
    assert [line for line in running.server.log(job) if line.startswith("goes on after epoch")]
    weights = torch.load(results_of(running, job, tmp_path) / "model.pt")
    expected = run_ddp_plainly(tmp_path / "plain", epochs)
    # PyTorch's own sums: what one process adds in one order, two add in another, in each of 1,280 steps.
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-3, atol=1e-4)
