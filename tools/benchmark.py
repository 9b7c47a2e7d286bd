"""./x bench: measurements, which are written under build/bench and printed as tables."""

from __future__ import annotations

import argparse

from tools import build, environment
from tools.console import ROOT, Usage, run

OUTPUT = ROOT / "build" / "bench"


def benchmark(name: str, arguments: list[str]) -> None:
    benchmarks = {
        "step": step,
        "plan": plan,
        "network": network,
        "optimizer": optimizer,
        "transfer": transfer,
        "hub": hub,
        "simulate": simulate,
        "platform": platform,
    }
    if name not in benchmarks:
        raise Usage(f"there is no benchmark {name}; benchmarks: {', '.join(benchmarks)}")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    benchmarks[name](arguments)


def step(arguments: list[str]) -> None:
    """tesser, PyTorch eager and torch.compile on four models; bench/step.py says how."""
    build.build("release", ["tesser", "tesser_hub_library"])
    command = [environment.PYTHON, "-m", "bench.step", *arguments]
    run(
        command,
        "read the message above; ./x bench step --help lists the options",
        {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
    )


def plan(arguments: list[str]) -> None:
    """Time and bytes of plans of large models under all presets; bench/plan.py says how."""
    build.build("release", ["tesser"])
    run(
        [environment.PYTHON, "-m", "bench.plan", *arguments],
        "read the message above; ./x bench plan --help lists the options",
        {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
    )


def network(arguments: list[str]) -> None:
    """Bytes and time of two workers over a link of 1 Gbit/s against their plan's; bench/network.py says how."""
    build.build("release", ["tesser"])
    run(
        [environment.PYTHON, "-m", "bench.network", *arguments],
        "read the message above; ./x bench network --help lists the options",
        {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
    )


def optimizer(arguments: list[str]) -> None:
    """The update kernels of src/optimizer, in Google Benchmark."""
    build.build("release", ["optimizer_benchmark"])
    program = build.directory("release") / "bin" / "optimizer_benchmark"
    report = [f"--benchmark_out={OUTPUT / 'optimizer.json'}", "--benchmark_out_format=json"]
    run([program, *report, *arguments], "read the message above")


def transfer(arguments: list[str]) -> None:
    """Tensors between two processes: tesser's transport, gRPC, Gloo and memcpy; bench/transfer says how."""
    targets = ["tesser"]
    if compares_with_grpc(arguments):
        environment.install_listed(ROOT / "bench" / "transfer" / "debian-packages.txt")
        targets.append("grpc_transfer")
    build.build("release", targets)
    run(
        [environment.PYTHON, "-m", "bench.transfer", *arguments],
        "read the message above; ./x bench transfer --help lists the options",
        {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
    )


def hub(arguments: list[str]) -> None:
    """Gradients of several workers become new weights: tesser's hub, Gloo, wide aggregation; bench/hub says how."""
    build.build("release", ["hub_bench"])
    run(
        [environment.PYTHON, "-m", "bench.hub", *arguments],
        "read the message above; ./x bench hub --help lists the options",
        {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
    )


def compares_with_grpc(arguments: list[str]) -> bool:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--systems")
    systems = parser.parse_known_args(arguments)[0].systems
    return systems is None or "grpc" in systems.split(",")


def simulate(arguments: list[str]) -> None:
    """Traces of jobs replayed by the platform's scheduler; bench/simulate.py says how."""
    build.build("release", ["tesser"])
    run(
        [environment.PYTHON, "-m", "bench.simulate", *arguments],
        "read the message above; ./x bench simulate --help lists the options",
        {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
    )


def platform(arguments: list[str]) -> None:
    """Starts, recoveries, requests and overhead of the platform; bench/platform.py says how."""
    build.build("release", ["tesser"])
    run(
        [environment.PYTHON, "-m", "bench.platform", *arguments],
        "read the message above; ./x bench platform --help lists the options",
        {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
    )
