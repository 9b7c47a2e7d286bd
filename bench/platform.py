"""./x bench platform: how fast the platform starts jobs, comes back after deaths and answers, and what it costs.

| figure | from | to |
|---|---|---|
| submit_to_running | the request with a job is sent | its learners' commands run (the time of PROCESSING) |
| recovery_server | SIGKILL of the server, which is started again at once | its first answer |
| recovery_guardian | SIGKILL of a guardian | its successor has the lease |
| recovery_learner | SIGKILL of a learner | all learners' commands run again |
| api_requests | | answers a second to four clients, with 1,000 jobs stored |
| overhead | a command alone | the same as a job, in turns, in percent of its time |
| resolution | a command alone | the same again: how far the overhead of nothing is from 0 |
| jobs_700_makespan | 700 jobs that do nothing are sent, to places for 16 at once | the last of them has ended |
| queue_10000_api_p99 | a list, status or submission is asked for while 10,000 jobs wait | its answer, at p99 |
| processor_time | | what server, guardian, learner and collector use while a job runs, in percent of a processor |

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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench import machine, platform_queue
from tools import kubernetes

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "bench"
TESSER = Path(os.environ.get("TESSER_BINARY", ROOT / "build" / "release" / "bin" / "tesser"))
SLURM = ROOT / "tests" / "clusters" / "slurm-cluster.sh"
STORED_JOBS, CLIENTS, REQUEST_SECONDS = 1000, 4, 3.0
SHORT_JOBS, WAITING_JOBS = 700, 10_000
PATIENCE = 60.0
ENGINES = ("local", "slurm", "kubernetes")
# Counts for some seconds and says so ten times a second, as a training would; prints the seconds it took, and its
# environment, for the command alone to have the same.
COUNTING = """
import json, os, time
def count():
    total = 0
    for step in range(STEPS):
        for number in range(COUNTS):
            total += number * number % 7
        print("step", step, total, flush=True)
begin = time.perf_counter()
count()
print("seconds", time.perf_counter() - begin, flush=True)
print("environment", json.dumps(dict(os.environ)), flush=True)
"""
STEPS, COUNTS_A_STEP = 80, 800_000
SETTLED, WATCHED_SECONDS = 0.7, 2.0  # after the start of a job that is watched, and for how long it is


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
    """`tesser server` on a data directory of its own."""

    def __init__(self, data: Path, engine: Sequence[str], host: str = "127.0.0.1") -> None:
        self.data, self.engine, self.host = data, engine, host
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        address = f"{self.host}:{self.port}"
        command = [str(TESSER), "server", "--data", str(self.data), "--listen", address, *self.engine]
        command += ["--learner-users", "same"] if os.geteuid() == 0 else []  # the directory is for this user alone
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
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

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

    def wait(self, job: str, state: str, pause: float = 0.005) -> None:
        def has_come() -> bool:
            now = self.job(job)
            if now["state"] in ("FAILED", "HALTED") and now["state"] != state:
                sys.exit(f"{job} is {now['state']}: {now['reason']}")
            return now["state"] == state

        until(has_come, f"{job} did not become {state}", pause)

    def end(self, job: str) -> None:
        self.ask("DELETE", f"/v1/jobs/{job}")
        until(lambda: not (self.data / "jobs" / job).exists(), f"{job} was not removed")


def until(holds: Callable[[], bool], message: str, pause: float = 0.005) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            sys.exit(message)
        time.sleep(pause)


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def manifest(command: str, learners: int = 1, cpus: float = 0.5, name: str = "bench") -> str:
    return json.dumps({"name": name, "command": command, "learners": learners, "cpus": cpus, "restarts": 100})


def pids_of(verb: str, *words: str, children: bool = False) -> list[int]:
    """Processes of `tesser VERB` whose command line has all of the words; not srun or a shell that name it as theirs,
    and `children` that go by the same words, as a collector of its learner, only if wanted.
    """
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if line[1:2] == [verb] and all(word in " ".join(line) for word in words):
                    found[int(entry.name)] = int(stat_of(entry)[1])
    return sorted(pid for pid, parent in found.items() if children or parent not in found)


def stat_of(process: Path) -> list[str]:
    """What stands in its stat after its name: state, parent, ..."""
    return (process / "stat").read_text().rpartition(")")[2].split()


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
    """Each of a job of its own: one that dies again and again is started with a growing pause."""
    values = []
    for _ in range(rounds):
        job = server.submit(manifest("sleep 600", learners=2))
        server.wait(job, "PROCESSING")
        journal = server.data / "jobs" / job / "guardian" / "journal.jsonl"

        def leases(journal: Path = journal) -> list[float]:
            records = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
            return [record["time"] / 1e6 for record in records if record["kind"] == "lease"]

        before = len(leases())
        (pid,) = pids_of("guardian", "--volume", job)
        begin = time.time()
        os.kill(pid, signal.SIGKILL)
        until(lambda before=before, leases=leases: len(leases()) > before, "no guardian came back")
        values.append(leases()[-1] - begin)
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
        paths = (f"/v1/jobs/{kept[number * 7 % len(kept)]}", "/v1/jobs?limit=20", "/v1/nodes", "/v1/me")
        while not over.is_set():
            server.ask("GET", paths[counts[number] % len(paths)], connection=connection)
            counts[number] += 1

    with ThreadPoolExecutor(CLIENTS) as threads:
        clients = [threads.submit(ask, number) for number in range(CLIENTS)]
        values, last, end = [], (0, time.monotonic()), time.monotonic() + REQUEST_SECONDS
        while time.monotonic() < end:
            time.sleep(0.25)
            now = (sum(counts), time.monotonic())
            values.append((now[0] - last[0]) / (now[1] - last[1]))
            last = now
        over.set()
    for client in clients:
        client.result()  # a client that was refused ends the bench
    return values


def overheads(server: Server, rounds: int, directory: Path) -> tuple[list[float], list[float]]:
    """Of a command as a job, and of the same command alone again, against it alone; in percent. The three follow each
    other in another order each round, and are alike but for the platform: environment, session, output to a file.
    """
    script = counting(directory)
    variables = json.loads(word_of("environment", job_output(server, script)))  # warms up, too

    def alone() -> float:
        output = directory / "alone"
        with output.open("w") as file:
            words = [sys.executable, str(script)]
            subprocess.run(words, stdout=file, env=variables, start_new_session=True, check=True)
        return float(word_of("seconds", output.read_text()))

    def as_job() -> float:
        return float(word_of("seconds", job_output(server, script)))

    runs: list[Callable[[], float]] = [alone, as_job, alone]
    overhead, resolution = [], []
    for number in range(rounds):
        order = [(number + step) % len(runs) for step in range(len(runs))]
        times = {which: runs[which]() for which in order}
        overhead.append(100 * (times[1] / times[0] - 1))
        resolution.append(100 * (times[2] / times[0] - 1))
    return overhead, resolution


def counting(directory: Path) -> Path:
    script = directory / "counting.py"
    script.write_text(COUNTING.replace("STEPS", str(STEPS)).replace("COUNTS", str(COUNTS_A_STEP)))
    return script


def word_of(name: str, output: str) -> str:
    return next(line.partition(" ")[2] for line in output.splitlines() if line.startswith(f"{name} "))


def job_output(server: Server, script: Path) -> str:
    job = server.submit(manifest(f"{sys.executable} {script}", cpus=1))
    server.wait(job, "COMPLETED", pause=0.25)
    lines = server.ask("GET", f"/v1/jobs/{job}/logs?limit=1000")["lines"]
    server.end(job)
    return "".join(line["text"] + ("" if line["cut"] else "\n") for line in lines)


def processor_times(server: Server, rounds: int, directory: Path) -> list[float]:
    """What the platform's own processes use while a job of one learner runs that says something ten times a second, in
    percent of a processor. Nobody asks the server meanwhile.
    """
    script = counting(directory)
    ticks = os.sysconf("SC_CLK_TCK")

    def used(job: str) -> float:
        assert server.process is not None
        volume = str(server.data / "jobs" / job)
        watching = [server.process.pid, *pids_of("guardian", volume, children=True)]
        total = 0
        for pid in [*watching, *pids_of("learner", volume, children=True)]:
            with contextlib.suppress(OSError):
                fields = stat_of(Path("/proc", str(pid)))
                # Of guardian and server also what they have run, as Slurm's commands; a learner's is the job's.
                total += sum(int(field) for field in fields[11 : 15 if pid in watching else 13])
        return total / ticks

    values = []
    for _ in range(rounds):
        job = server.submit(manifest(f"{sys.executable} {script}", cpus=1))
        server.wait(job, "PROCESSING")
        time.sleep(SETTLED)
        begin, before = time.monotonic(), used(job)
        time.sleep(WATCHED_SECONDS)
        values.append(100 * (used(job) - before) / (time.monotonic() - begin))
        server.wait(job, "COMPLETED", pause=0.25)
        server.end(job)
    return values


@contextlib.contextmanager
def server_of(engine: str, directory: Path) -> Iterator[Server]:
    """With the engine, whose cluster runs meanwhile."""
    data = directory / "data"
    data.mkdir()
    match engine:
        case "local":
            yield Server(data, ["--engine", "local"])
        case "slurm":
            cluster = directory / "slurm"
            up = subprocess.run(
                [SLURM, "up", cluster, "--cpus", "2", "--owner", str(os.getpid())], capture_output=True, text=True
            )
            if up.returncode != 0:
                sys.exit(up.stderr.strip())
            try:
                yield Server(data, ["--engine", "slurm", "--slurm-conf", str(cluster / "slurm.conf")])
            finally:
                subprocess.run([SLURM, "down", cluster], check=False, stdout=subprocess.DEVNULL)
        case "kubernetes":
            with kubernetes.cluster() as variables:
                os.environ.update(variables)
                from tests.platform.kubernetes import platform_on_kubernetes as cluster_tests

                options = [*cluster_tests.engine_options(), "--host-directory", str(directory)]
                yield Server(data, options, cluster_tests.ADDRESS)


def measure(engine: str, rounds: int, jobs: int, wanted: Callable[[str], bool]) -> list[Figure]:
    figures = []

    def add(name: str, values: Sequence[float], unit: str = "s") -> None:
        figures.append(Figure.of(name, engine, values, unit))

    def time_of(name: str, of: Callable[[Server, int], list[float]]) -> None:
        if wanted(name):
            add(name, of(server, rounds))

    with tempfile.TemporaryDirectory(prefix="tesser-bench-") as name:
        directory = Path(name)
        with server_of(engine, directory) as server:
            server.start()
            try:
                starts(server, 1)  # warms up
                time_of("submit_to_running", starts)
                time_of("recovery_guardian", guardian_recoveries)
                time_of("recovery_learner", learner_recoveries)
                time_of("recovery_server", server_recoveries)
                if wanted("overhead"):
                    overhead, resolution = overheads(server, max(rounds, 6), directory)
                    add("overhead", overhead, "%")
                    add("resolution", resolution, "%")
                if wanted("processor_time"):
                    add("processor_time", processor_times(server, max(rounds // 2, 3), directory), "%")
                if engine == "local" and wanted("api_requests"):
                    add("api_requests", requests_a_second(server, jobs), "requests/s")
                    for job in server.ask("GET", "/v1/jobs?limit=1000")["jobs"]:
                        server.ask("DELETE", f"/v1/jobs/{job['id']}")
                    until(lambda: not any((server.data / "jobs").iterdir()), "the stored jobs were not removed")
            finally:
                server.stop()
        if engine == "local" and wanted("jobs_700_makespan"):
            with pretend_server(directory / "short") as server:
                add("jobs_700_makespan", [platform_queue.makespan(server, SHORT_JOBS)])
        if engine == "local" and wanted("queue_10000_api_p99"):
            with pretend_server(directory / "queue") as server:
                add("queue_10000_api_p99", platform_queue.answer_times(server, WAITING_JOBS), "ms")
    return figures


@contextlib.contextmanager
def pretend_server(data: Path) -> Iterator[Server]:
    data.mkdir()
    server = Server(data, ["--engine", "local", "--node", platform_queue.NODE])
    server.start()
    try:
        yield server
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="./x bench platform", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--engines", default=",".join(ENGINES), help="of local, slurm, kubernetes, which needs root")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=STORED_JOBS, help="stored while requests are counted")
    parser.add_argument("--figures", default="", help="names from the table, between commas; all without it")
    options = parser.parse_args()
    names = [name for name in options.figures.split(",") if name]
    for name in names:
        if f"| {name} |" not in __doc__:
            parser.error(f"there is no figure {name}")
    figures: list[Figure] = []
    for engine in options.engines.split(","):
        if engine not in ENGINES:
            parser.error(f"there is no engine {engine} to measure; engines: {', '.join(ENGINES)}")
        figures += measure(engine, options.rounds, options.jobs, lambda name: not names or name in names)
    print(f"{'figure':20} {'engine':10} {'median':>10} {'p99':>10}")
    for each in figures:
        print(f"{each.figure:20} {each.engine:10} {each.median:10.3f} {each.p99:10.3f} {each.unit}")
    path = OUTPUT / "platform.json"
    path.write_text(json.dumps([vars(each) for each in figures], indent=1) + "\n")
    print(f"figures: {path.relative_to(ROOT)}, on {machine.description()}")


if __name__ == "__main__":
    main()
