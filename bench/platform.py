"""./x bench platform: how fast the platform starts jobs, comes back after deaths and answers, and what it costs.

| figure | from | to |
|---|---|---|
| submit_to_running | the request with a job is sent | its learners' commands run (the time of PROCESSING) |
| recovery_server | SIGKILL of the server, which is started again at once | its first answer |
| recovery_guardian | SIGKILL of a guardian | its successor has the lease |
| recovery_learner | SIGKILL of a learner | all learners' commands run again |
| api_requests | | answers a second to four clients, with 1,000 jobs stored |
| overhead | a command alone | the same as a job, beside it in turns, in percent |

Anchors of "FfDL" (Middleware 2019): an API server comes back in 3 to 5 s, a guardian in 1 to 2 s, a learner in 10 to
20 s, overhead is up to about 5%.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench import machine

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "bench"
TESSER = Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))
SLURM = ROOT / "tests" / "clusters" / "slurm-cluster.sh"
STORED_JOBS, CLIENTS, REQUEST_SECONDS = 1000, 4, 3.0
PATIENCE = 60.0
# Counts for a while and says so ten times a second, as a training would; prints the seconds it took.
COUNTING = """
import time
begin, total = time.perf_counter(), 0
for step in range(30):
    for number in range(STEPS):
        total += number * number % 7
    print("step", step, total, flush=True)
print("seconds", time.perf_counter() - begin, flush=True)
"""
COUNTS_A_STEP = 600_000


@dataclass
class Figure:
    figure: str
    engine: str
    median: float
    p99: float
    unit: str

    @classmethod
    def of(cls, name: str, engine: str, values: Sequence[float], unit: str) -> Figure:
        ordered = sorted(values)
        last = ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]
        return cls(name, engine, statistics.median(values), last, unit)


class Server:
    """`tesser server` on a data directory of its own, with a client that keeps its connection."""

    def __init__(self, data: Path, engine: Sequence[str]) -> None:
        self.data, self.engine = data, engine
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        address = f"127.0.0.1:{self.port}"
        command = [str(TESSER), "server", "--data", str(self.data), "--listen", address, *self.engine]
        with (self.data.parent / "server.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "http://" not in line:
            sys.exit(f"the server did not start: {(self.data.parent / 'server.log').read_text().strip()}")
        self.port = int(line.rsplit(":", 1)[1])
        self.token = (self.data / "admin.token").read_text().strip()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> dict:
        way = connection or self.connect()
        way.request(method, path, body, {"Authorization": f"Bearer {self.token}", **(headers or {})})
        answer = way.getresponse()
        text = answer.read()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text) if text else {}

    def submit(self, manifest: str) -> str:
        mark = "----tesser-bench"
        body = f'--{mark}\r\nContent-Disposition: form-data; name="manifest"\r\n\r\n{manifest}\r\n--{mark}--\r\n'
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        return self.ask("POST", "/v1/jobs", body.encode(), kind)["id"]

    def job(self, job: str) -> dict:
        return self.ask("GET", f"/v1/jobs/{job}")

    def times_of(self, job: str, state: str) -> list[float]:
        history = self.ask("GET", f"/v1/jobs/{job}/history")
        return [seconds_of(change["time"]) for change in history["changes"] if change["state"] == state]

    def wait(self, job: str, state: str) -> None:
        def has_come() -> bool:
            now = self.job(job)
            if now["state"] in ("FAILED", "HALTED") and now["state"] != state:
                sys.exit(f"{job} is {now['state']}: {now['reason']}")
            return now["state"] == state

        until(has_come, f"{job} did not become {state}")

    def end(self, job: str) -> None:
        self.ask("DELETE", f"/v1/jobs/{job}")
        until(lambda: not (self.data / "jobs" / job).exists(), f"{job} was not removed")


def until(holds: Callable[[], bool], message: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            sys.exit(message)
        time.sleep(0.005)


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def manifest(command: str, learners: int = 1, cpus: float = 0.5, name: str = "bench") -> str:
    return json.dumps({"name": name, "command": command, "learners": learners, "cpus": cpus, "restarts": 100})


def pids_of(*words: str) -> list[int]:
    """Processes whose command line has all of the words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if all(word in line for word in words):
                    found.append(int(entry.name))
    return sorted(found)


def starts(server: Server, rounds: int) -> list[float]:
    values = []
    for _ in range(rounds):
        begin = time.time()
        job = server.submit(manifest("sleep 600", learners=2))
        server.wait(job, "PROCESSING")
        values.append(server.times_of(job, "PROCESSING")[0] - begin)
        server.end(job)
    return values


def server_recoveries(server: Server, rounds: int) -> list[float]:
    values = []
    for _ in range(rounds):
        begin = time.monotonic()
        server.kill()
        server.start()
        server.ask("GET", "/v1/jobs?limit=1")
        values.append(time.monotonic() - begin)
    return values


def guardian_recoveries(server: Server, rounds: int) -> list[float]:
    job = server.submit(manifest("sleep 600", learners=2))
    server.wait(job, "PROCESSING")
    journal = server.data / "jobs" / job / "guardian" / "journal.jsonl"

    def leases() -> list[float]:
        records = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
        return [record["time"] / 1e6 for record in records if record["kind"] == "lease"]

    values = []
    for _ in range(rounds):
        before = len(leases())
        (pid,) = pids_of("guardian", "--volume", job)
        begin = time.time()
        os.kill(pid, signal.SIGKILL)
        until(lambda before=before: len(leases()) > before, "no guardian came back")
        values.append(leases()[-1] - begin)
        time.sleep(0.5)
    server.end(job)
    return values


def learner_recoveries(server: Server, rounds: int) -> list[float]:
    job = server.submit(manifest("sleep 600", learners=2))
    server.wait(job, "PROCESSING")
    values = []
    for _ in range(rounds):
        before = len(server.times_of(job, "PROCESSING"))
        attempt = server.job(job)["attempt"]
        pid = pids_of("learner", job, f"--attempt {attempt}")[0]
        begin = time.time()
        os.kill(pid, signal.SIGKILL)
        until(lambda before=before: len(server.times_of(job, "PROCESSING")) > before, "the learners did not come back")
        values.append(server.times_of(job, "PROCESSING")[-1] - begin)
        time.sleep(0.3)
    server.end(job)
    return values


def requests_a_second(server: Server, jobs: int) -> list[float]:
    """With so many jobs stored, most of which wait for more than there is; one value a tenth of a second."""
    kept = [server.submit(manifest("sleep 600", learners=1, cpus=0.01, name="stored")) for _ in range(1)]
    for number in range(jobs - 1):
        kept.append(server.submit(manifest("true", learners=1, cpus=os.cpu_count() or 1, name=f"stored{number}")))
    counts = [0] * CLIENTS
    over = threading.Event()

    def ask(number: int) -> None:
        connection = server.connect()
        paths = (f"/v1/jobs/{kept[number * 7 % len(kept)]}", "/v1/jobs?limit=20", "/v1/nodes", "/v1/health")
        while not over.is_set():
            server.ask("GET", paths[counts[number] % len(paths)], connection=connection)
            counts[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    values, last, end = [], (0, time.monotonic()), time.monotonic() + REQUEST_SECONDS
    while time.monotonic() < end:
        time.sleep(0.25)
        now = (sum(counts), time.monotonic())
        values.append((now[0] - last[0]) / (now[1] - last[1]))
        last = now
    over.set()
    for thread in threads:
        thread.join()
    return values


def overheads(server: Server, rounds: int, directory: Path) -> list[float]:
    """In percent; a command alone and as a job in turns."""
    script = directory / "counting.py"
    script.write_text(COUNTING.replace("STEPS", str(COUNTS_A_STEP)))
    values = []
    for number in range(rounds + 1):
        output = directory / "alone"
        with output.open("w") as file:  # as a job's output goes to a file
            subprocess.run([sys.executable, script], stdout=file, check=True)
        alone = output.read_text()
        job = server.submit(manifest(f"{sys.executable} {script}", cpus=1))
        server.wait(job, "COMPLETED")
        lines = server.ask("GET", f"/v1/jobs/{job}/logs?limit=1000")["lines"]
        as_job = next(line["text"] for line in lines if line["text"].startswith("seconds"))
        times = [float(text.split()[-1]) for text in (alone.strip().splitlines()[-1], as_job)]
        if number > 0:  # the first warms up
            values.append(100 * (times[1] / times[0] - 1))
        server.end(job)
    return values


@contextlib.contextmanager
def cluster_of(engine: str, directory: Path) -> Iterator[Sequence[str]]:
    """The server's options for the engine, whose cluster runs meanwhile."""
    if engine == "local":
        yield ["--engine", "local"]
        return
    cluster = directory / "slurm"
    up = subprocess.run(
        [SLURM, "up", cluster, "--cpus", "2", "--owner", str(os.getpid())], capture_output=True, text=True
    )
    if up.returncode != 0:
        sys.exit(up.stderr.strip())
    try:
        yield ["--engine", "slurm", "--slurm-conf", str(cluster / "slurm.conf")]
    finally:
        subprocess.run([SLURM, "down", cluster], check=False, stdout=subprocess.DEVNULL)


def measure(engine: str, rounds: int, jobs: int) -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="tesser-bench-") as name:
        directory = Path(name)
        with cluster_of(engine, directory) as options:
            server = Server(directory / "data", options)
            server.data.mkdir()
            server.start()
            try:
                starts(server, 1)  # warms up
                figures.append(Figure.of("submit_to_running", engine, starts(server, rounds), "s"))
                figures.append(Figure.of("recovery_guardian", engine, guardian_recoveries(server, rounds), "s"))
                figures.append(Figure.of("recovery_learner", engine, learner_recoveries(server, rounds), "s"))
                figures.append(Figure.of("recovery_server", engine, server_recoveries(server, rounds), "s"))
                figures.append(Figure.of("overhead", engine, overheads(server, max(rounds // 2, 3), directory), "%"))
                if engine == "local":
                    figures.append(Figure.of("api_requests", engine, requests_a_second(server, jobs), "requests/s"))
                    for job in server.ask("GET", "/v1/jobs?limit=1000")["jobs"]:
                        server.ask("DELETE", f"/v1/jobs/{job['id']}")
                    until(lambda: not any((server.data / "jobs").iterdir()), "the stored jobs were not removed")
            finally:
                server.stop()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="./x bench platform", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--engines", default="local,slurm", help="of local, slurm (default: both)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=STORED_JOBS, help="stored while requests are counted")
    options = parser.parse_args()
    figures: list[Figure] = []
    for engine in options.engines.split(","):
        if engine not in ("local", "slurm"):
            parser.error(f"there is no engine {engine} to measure; engines: local, slurm")
        figures += measure(engine, options.rounds, options.jobs)
    print(f"{'figure':20} {'engine':8} {'median':>10} {'p99':>10}")
    for each in figures:
        print(f"{each.figure:20} {each.engine:8} {each.median:10.3f} {each.p99:10.3f} {each.unit}")
    path = OUTPUT / "platform.json"
    path.write_text(json.dumps([vars(each) for each in figures], indent=1) + "\n")
    print(f"figures: {path.relative_to(ROOT)}, on {machine.description()}")


if __name__ == "__main__":
    main()
