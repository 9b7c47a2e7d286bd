"""./x bench network: two workers in two network namespaces, joined by a link of 1 Gbit/s, against what their plan says.

The namespaces are joined by a pair of virtual Ethernet devices; a token bucket (tc tbf) on either end limits what it
sends. Both workers compute with one thread and exchange tensors by TCP. Compared are

- bytes: what both ends of the link sent in the whole run, a step, headers of TCP, IP and Ethernet and control traffic
  included, with the plan's prediction, which is of tensors alone;
- time: the fastest step with the plan's prediction, and the median beside it (a machine that others use as well makes
  steps slower, never faster, and both workers wait for the slower one). The plan's topology has the link's rate, a
  small tensor's way over it, the processor's time that a byte over TCP takes (bench/network_stream.py), and the two
  rates of compute that make the prediction for one worker equal to what one worker was measured to take on this
  machine, while another did the same beside it, for two workers keep two processors busy. So the time of two workers
  is predicted from that of one.

Needs root, `ip` and `tc`. Writes build/bench/network.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import machine

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("mlp", "resnet18", "gpt", "lstm")
PRESETS = ("default", "tofu", "dp")
BITS_PER_SECOND = 1e9
# Of 1514 bytes of a full frame 1448 are payload: 20 are TCP's header and 12 its time stamps, 20 IP's, 14 Ethernet's.
PAYLOAD_SHARE = 1448 / 1514
ADDRESS = "10.97.0.{}"
SECONDS = 300
SKIPPED = 3  # the first steps trace and warm up
# Nodes whose time is that of floating-point operations; all others' is that of memory.
CONTRACTIONS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "scaled_dot_product")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclass(frozen=True)
class Link:
    namespaces: tuple[str, str]

    def command(self, end: int, *words: object) -> list[str]:
        """One that runs on that end of the link."""
        return ["ip", "netns", "exec", self.namespaces[end], *(str(word) for word in words)]

    def sent_bytes(self) -> int:
        total = 0
        for name in self.namespaces:
            shown = subprocess.run(["ip", "-n", name, "-s", "-j", "link"], capture_output=True, text=True, check=True)
            total += sum(link["stats64"]["tx"]["bytes"] for link in json.loads(shown.stdout) if link["ifname"] != "lo")
        return total


@contextmanager
def joined(rate: float) -> Iterator[Link]:
    """Two namespaces with one link of so many bits a second, either way."""
    names = tuple(f"tesserb{end}-{os.getpid()}" for end in range(2))
    devices = [f"tb{os.getpid()}{side}" for side in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", devices[0], "netns", names[0], "type", "veth", "peer", "name", devices[1], "netns", names[1])
        for end, (name, device) in enumerate(zip(names, devices, strict=True)):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{ADDRESS.format(end + 1)}/24", "dev", device)
            # A bucket that is full after every pause lets as much through at once, so it is small; larger packets
            # would be cut to frames by it, one by one.
            ip("-n", name, "link", "set", device, "gso_max_size", "32768")
            ip("-n", name, "link", "set", device, "up")
            limit = ["rate", f"{rate:.0f}bit", "burst", "36kb", "latency", "20ms"]
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", *limit], check=True)
        yield Link(names)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


@dataclass(frozen=True)
class Bench:
    tesser: Path
    output: Path
    steps: int
    link: Link
    bytes_per_second: float

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
            "TESSER_PYTHON": sys.executable,
            "TESSER_RUN_TOKEN": "bench",
        }

    def start(self, end: int, *words: object) -> subprocess.Popen:
        command = self.link.command(end, self.tesser, *words)
        return subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True)

    def finished(self, process: subprocess.Popen) -> list[dict]:
        """The JSON lines that it prints until it ends."""
        output, _ = process.communicate(timeout=SECONDS)
        if process.returncode != 0:
            raise SystemExit(f"bench: exit code {process.returncode} from {process.args}\n{output[-2000:]}")
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def json_of(self, *words: object) -> dict:
        command = [str(self.tesser), *(str(word) for word in words)]
        return json.loads(subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, check=True).stdout)

    def inputs(self, model: str) -> Path:
        folder = self.output / "inputs" / model
        if not (folder / "data").exists():
            command = [sys.executable, "-m", "bench.step_models", model, str(folder)]
            subprocess.run(command, cwd=ROOT, env=self.environment, check=True)
        return folder

    def latency(self) -> float:
        """Seconds of a small tensor's way from one worker to the other."""
        other = self.start(1, "transport", "bench", "--listen", f"{ADDRESS.format(2)}:7401", "--tcp", "--systems",
                           "static", "--sizes", 64, "--time", 300)  # fmt: skip
        peer = ["--peers", f"{ADDRESS.format(2)}:7401", "--tcp"]
        size = ["--systems", "static", "--sizes", 64, "--time", 300, "--json"]
        rows = self.finished(self.start(0, "transport", "bench", *peer, *size))
        other.communicate(timeout=SECONDS)
        return next(row["us_median"] for row in rows if "us_median" in row) * 1e-6

    def processor_time(self) -> float:
        """Seconds of a worker's processor that a byte takes which it receives, while it sends as much."""
        processors = sorted(os.sched_getaffinity(0))
        ends = []
        for end, role in ((1, "listen"), (0, "connect")):
            words = [
                sys.executable,
                "-m",
                "bench.network_stream",
                role,
                ADDRESS.format(2),
                processors[end % len(processors)],
            ]
            command = self.link.command(end, *words)
            ends.append(subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True))
        told = [row for end in ends for row in self.finished(end)]
        return statistics.mean(row["lost_share"] / row["bytes_per_second"] for row in told)

    def one_worker(self, folder: Path, model: str) -> dict:
        """Fastest step of one worker, and how much of it is contractions; two, each by itself, run at once."""
        program = folder / f"{model}.tesser"
        words = ["--data", folder / "data", "--steps", self.steps, "--threads", 1, "--profile", "--json"]
        runs = [self.start(end, "train", program, *words) for end in (0, 1)]
        events = [event for run in runs for event in self.finished(run)]
        seconds = [event["seconds"] for event in events if event["event"] == "step" and event["step"] > SKIPPED]
        operators = [it for event in events if event["event"] == "end" for it in event["operators"]]
        contractions = sum(it["seconds"] for it in operators if any(name in it["op"] for name in CONTRACTIONS))
        share = contractions / sum(it["seconds"] for it in operators)
        return {"seconds": min(seconds), "contractions": share}

    def predicted(self, folder: Path, model: str, topology: dict, workers: int, preset: str, plan: Path) -> dict:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(topology, file)
            file.flush()
            words = ["--workers", workers, "--preset", preset, "--topology", file.name, "-o", plan, "--json"]
            return self.json_of("plan", folder / f"{model}.tesser", *words)

    def topology(self, folder: Path, model: str, one: dict, costs: dict, scratch: Path) -> dict:
        """With the rates that make one worker's prediction what was measured: the prediction is a sum of operations
        over one rate and bytes over the other."""
        never = 1e30
        plan = scratch / "one.plan"
        alone = {"links": []}
        operations = self.predicted(
            folder, model, {**alone, "flops": 1, "memory_bandwidth": never}, 1, "default", plan
        )["step_seconds"]
        moved = self.predicted(folder, model, {**alone, "flops": never, "memory_bandwidth": 1}, 1, "default", plan)[
            "step_seconds"
        ]
        link = {"name": "network", "parts": 2, "bandwidth": self.bytes_per_second, **costs}
        return {
            "links": [link],
            "flops": operations / (one["seconds"] * one["contractions"]),
            "memory_bandwidth": moved / (one["seconds"] * (1 - one["contractions"])),
        }

    def two_workers(self, folder: Path, model: str, plan: Path, scratch: Path) -> dict:
        before = self.link.sent_bytes()
        coordinator = self.start(
            0, "train", folder / f"{model}.tesser", "--data", folder / "data", "--steps", self.steps, "--threads", 1,
            "--workers", 2, "--plan", plan, "--network", "--external", "--listen", f"{ADDRESS.format(1)}:7411",
            "--run-directory", scratch / "run", "--json",
        )  # fmt: skip
        url = f"http://{ADDRESS.format(1)}:7411"
        workers = [self.start(end, "worker", "--coordinator", url, "--worker", end) for end in (0, 1)]
        events = self.finished(coordinator)
        for worker in workers:
            worker.communicate(timeout=SECONDS)
        end = next(event for event in events if event["event"] == "end")
        seconds = [event["seconds"] for event in events if event["event"] == "step"]
        return {
            "seconds": min(seconds[SKIPPED:]),
            "median_seconds": statistics.median(seconds[SKIPPED:]),
            "interface_bytes": (self.link.sent_bytes() - before) / len(seconds),
            "tensor_bytes": sum(worker["sent_bytes"] for worker in end["workers"]) / len(seconds),
            "compute_seconds": max(worker["compute_seconds"] for worker in end["workers"]) / len(seconds),
            "waiting_seconds": max(worker["waiting_seconds"] for worker in end["workers"]) / len(seconds),
        }

    def measure(self, model: str, presets: list[str], costs: dict) -> Iterator[dict]:
        folder = self.inputs(model)
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            one = self.one_worker(folder, model)
            topology = self.topology(folder, model, one, costs, scratch)
            for preset in presets:
                plan = scratch / f"{preset}.plan"
                predicted = self.predicted(folder, model, topology, 2, preset, plan)
                shutil.rmtree(scratch / "run", ignore_errors=True)
                measured = self.two_workers(folder, model, plan, scratch)
                yield {
                    "model": model,
                    "preset": preset,
                    "one_worker_seconds": one["seconds"],
                    "flops": topology["flops"],
                    "memory_bandwidth": topology["memory_bandwidth"],
                    "predicted_bytes": predicted["bytes_per_step"],
                    "predicted_seconds": predicted["step_seconds"],
                    **measured,
                    "bytes_ratio": measured["interface_bytes"] / predicted["bytes_per_step"]
                    if predicted["bytes_per_step"]
                    else None,
                    "seconds_ratio": measured["seconds"] / predicted["step_seconds"],
                }


def print_table(rows: list[dict]) -> None:
    heads = [
        "model",
        "preset",
        "plan MB",
        "interface MB",
        "ratio",
        "one worker ms",
        "plan ms",
        "step ms",
        "ratio",
        "median ms",
    ]
    print("| " + " | ".join(heads) + " |\n|---|---|" + "---:|" * (len(heads) - 2))
    for row in rows:
        ratio = "" if row["bytes_ratio"] is None else f"{row['bytes_ratio']:.3f}"
        print(
            f"| {row['model']} | {row['preset']} | {row['predicted_bytes'] / 1e6:.2f} |"
            f" {row['interface_bytes'] / 1e6:.2f} | {ratio} |"
            f" {row['one_worker_seconds'] * 1e3:.1f} | {row['predicted_seconds'] * 1e3:.1f} |"
            f" {row['seconds'] * 1e3:.1f} | {row['seconds_ratio']:.2f} | {row['median_seconds'] * 1e3:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="./x bench network")
    parser.add_argument("--models", default=",".join(MODELS), help="some of " + ", ".join(MODELS))
    parser.add_argument("--presets", default=",".join(PRESETS), help="of tesser plan")
    parser.add_argument("--steps", type=int, default=15, help=f"of each run, {SKIPPED} of which are not counted")
    parser.add_argument("--rate", type=float, default=BITS_PER_SECOND, help="bits a second")
    parser.add_argument("--tesser", type=Path, default=ROOT / "build" / "release" / "bin" / "tesser")
    options = parser.parse_args()
    output = ROOT / "build" / "bench"
    rows: list[dict] = []
    begun = time.monotonic()
    with joined(options.rate) as link:
        bench = Bench(options.tesser, output, options.steps, link, options.rate / 8 * PAYLOAD_SHARE)
        latency = bench.latency()
        processor = bench.processor_time()
        print(
            f"a small tensor's way over the link: {latency * 1e6:.0f} microseconds; a processor's time for a byte: "
            f"{processor * 1e9:.2f} ns",
            file=sys.stderr,
        )
        for model in options.models.split(","):
            costs = {"latency": latency, "processor_time": processor}
            for row in bench.measure(model, options.presets.split(","), costs):
                rows.append(row)
                print(json.dumps(row), file=sys.stderr)
    result = {
        "machine": machine.description(),
        "python": platform.python_version(),
        "rate_bits_per_second": options.rate,
        "latency_seconds": latency,
        "processor_seconds_per_byte": processor,
        "seconds": time.monotonic() - begun,
        "rows": rows,
    }
    (output / "network.json").write_text(json.dumps(result, indent=1))
    print_table(rows)


if __name__ == "__main__":
    main()
