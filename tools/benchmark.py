"""./x bench: measurements, which are written under build/bench and printed as tables."""

from __future__ import annotations

import argparse

from tools import build, environment
from tools.console import ROOT, Usage, run

OUTPUT = ROOT / "build" / "bench"
# Benches that are Python modules, bench/NAME, which say what they measure and how; and what must be built for them.
MODULES = {
    "step": ["tesser", "tesser_hub_library"],
    "plan": ["tesser"],
    "network": ["tesser"],
    "transfer": ["tesser"],
    "hub": ["hub_bench"],
    "simulate": ["tesser"],
    "platform": ["tesser"],
}
NAMES = ("step", "plan", "network", "optimizer", "transfer", "hub", "simulate", "platform")


def benchmark(name: str, arguments: list[str]) -> None:
    if name not in NAMES:
        raise Usage(f"there is no benchmark {name}; benchmarks: {', '.join(NAMES)}")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    if name == "optimizer":
        optimizer(arguments)
        return
    targets = list(MODULES[name])
    if name == "transfer" and compares_with_grpc(arguments):
        environment.install_listed(ROOT / "bench" / "transfer" / "debian-packages.txt")
        targets.append("grpc_transfer")
    build.build("release", targets)
    run(
        [environment.PYTHON, "-m", f"bench.{name}", *arguments],
        f"read the message above; ./x bench {name} --help lists the options",
        {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
    )


def optimizer(arguments: list[str]) -> None:
    """The update kernels of src/optimizer, in Google Benchmark."""
    build.build("release", ["optimizer_benchmark"])
    program = build.directory("release") / "bin" / "optimizer_benchmark"
    report = [f"--benchmark_out={OUTPUT / 'optimizer.json'}", "--benchmark_out_format=json"]
    run([program, *report, *arguments], "read the message above")


def compares_with_grpc(arguments: list[str]) -> bool:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--systems")
    systems = parser.parse_known_args(arguments)[0].systems
    return systems is None or "grpc" in systems.split(",")
