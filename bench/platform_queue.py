"""Many jobs at once, of ./x bench platform: how long 700 short ones take, and how fast the server answers while 10,000
wait.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

PLACES = 16  # at once; each job is four processes, so more of them only wait for each other
NODE = f"pretend={PLACES},64GiB"
SUBMITTERS, CLIENTS = 8, 4
SECONDS = 6.0
LONGEST = 600.0


class Server(Protocol):
    """Of bench.platform, with this node."""

    def submit(self, manifest: str) -> str: ...
    def end(self, job: str) -> None: ...
    def wait(self, job: str, state: str, pause: float = ...) -> None: ...
    def connect(self) -> http.client.HTTPConnection: ...
    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = ...,
        headers: dict[str, str] | None = ...,
        connection: http.client.HTTPConnection | None = ...,
    ) -> dict: ...


def short_job(name: str, command: str = "true", cpus: int = 1) -> str:
    return json.dumps({"name": name, "command": command, "cpus": cpus})


def submit(server: Server, manifests: Sequence[str]) -> list[str]:
    with ThreadPoolExecutor(SUBMITTERS) as threads:
        return list(threads.map(server.submit, manifests))


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LONGEST
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"no {what} within {LONGEST:.0f} s")
        time.sleep(0.1)


def all_have_ended(server: Server) -> bool:
    """Each look costs the same, however many jobs there are."""
    (team,) = server.ask("GET", "/v1/quota")["teams"] or [{"running": 0, "waiting": 0}]
    return team["running"] + team["waiting"] == 0


def makespan(server: Server, jobs: int) -> float:
    """Seconds from the first submission to the end of the last of so many jobs that do nothing."""
    begin = time.monotonic()
    ids = submit(server, [short_job("short")] * jobs)
    wait_until(lambda: all_have_ended(server), "end of the short jobs")
    taken = time.monotonic() - begin
    failed = server.ask("GET", "/v1/jobs?state=FAILED")["jobs"]
    if failed or len(set(ids)) != jobs:
        raise SystemExit(f"{len(failed)} of {jobs} jobs have failed: {failed[:1]}")
    return taken


def answer_times(server: Server, jobs: int) -> list[float]:
    """Milliseconds of lists, statuses and submissions, of several clients at once, while so many jobs wait."""
    holder = server.submit(short_job("holder", "sleep 100000", PLACES))
    server.wait(holder, "PROCESSING")
    waiting = submit(server, [short_job("waits")] * jobs)
    times: list[float] = []
    over = time.monotonic() + SECONDS

    def ask(number: int) -> None:
        connection = server.connect()
        count = number
        while time.monotonic() < over:
            begin = time.monotonic()
            match count % 4:
                case 0:
                    server.ask("GET", "/v1/jobs?limit=100", connection=connection)
                case 1:
                    server.submit(short_job("later"))
                case _:
                    server.ask("GET", f"/v1/jobs/{waiting[count * 7919 % len(waiting)]}", connection=connection)
            times.append(1000 * (time.monotonic() - begin))
            count += 1

    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(ask, range(CLIENTS)))
    last = server.ask("GET", f"/v1/jobs/{waiting[-1]}")
    # Several submit at once, so the last one to be given here may have been taken before a few others.
    if last["state"] != "QUEUED" or last["place_in_queue"] <= jobs - SUBMITTERS:
        raise SystemExit(f"the queue was none: {last}")
    # Nothing that waits is to begin when the holder has ended.
    server.ask("PATCH", f"/v1/nodes/{NODE.partition('=')[0]}", b'{"drain": true}')
    server.end(holder)
    return times
