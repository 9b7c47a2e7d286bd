"""A server that only answers guardians, for one job: python pretend_server.py DIRECTORY PORT

It keeps leases, epochs and the job's history as docs/platform.md says, over the real table of states, in
DIRECTORY/server.json, which is on the disk before it answers: it may be killed at any moment and started again.
What a guardian may never do is written down in DIRECTORY/violations.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TO_FAILED_AND_HALTED = {"FAILED", "HALTED"}
FOLLOWS = {
    "QUEUED": {"PENDING"} | TO_FAILED_AND_HALTED,
    "PENDING": {"DEPLOYING", "QUEUED"} | TO_FAILED_AND_HALTED,
    "DEPLOYING": {"DOWNLOADING", "QUEUED"} | TO_FAILED_AND_HALTED,
    "DOWNLOADING": {"PROCESSING", "DEPLOYING", "QUEUED"} | TO_FAILED_AND_HALTED,
    "PROCESSING": {"STORING", "DEPLOYING", "QUEUED"} | TO_FAILED_AND_HALTED,
    "STORING": {"COMPLETED"} | TO_FAILED_AND_HALTED,
    "HALTED": {"RESUMED", "FAILED"},
    "RESUMED": {"PENDING"} | TO_FAILED_AND_HALTED,
    "COMPLETED": set(),
    "FAILED": set(),
}
GUARDED = {"PENDING", "DEPLOYING", "DOWNLOADING", "PROCESSING", "STORING"}


class Job:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "server.json"
        self.changed = threading.Condition()
        self.record = json.loads(self.file.read_text(encoding="utf-8"))

    def store(self) -> None:
        partial = self.file.with_suffix(".partial")
        with open(partial, "w", encoding="utf-8") as output:
            json.dump(self.record, output)
            output.flush()
            os.fsync(output.fileno())
        partial.rename(self.file)
        self.changed.notify_all()

    @property
    def state(self) -> str:
        return self.record["history"][-1]["state"]

    def change(self, state: str, **more: object) -> None:
        self.record["history"].append({"state": state, **more})
        self.store()

    def violation(self, text: str) -> None:
        with open(self.directory / "violations", "a", encoding="utf-8") as output:
            output.write(text + "\n")

    def lease(self, asked: dict) -> tuple[int, dict]:
        if self.state not in GUARDED:
            return 409, {"error": {"code": "U409", "message": f"a job that is {self.state} has no guardian"}}
        self.record["epoch"] += 1
        self.record["holder"] = asked["holder"]
        self.store()
        record = self.record
        return 200, {
            "epoch": record["epoch"],
            "job": record["job"],
            "wanted": record["wanted"],
            "placement": record["placement"],
            "attempt": max(change.get("attempt", 0) for change in record["history"]),
        }

    def renew(self, asked: dict) -> tuple[int, dict]:
        until = time.monotonic() + asked["wait"]
        while self.record["wanted"] == asked["wanted"] and asked["epoch"] == self.record["epoch"]:
            left = until - time.monotonic()
            if left <= 0:
                break
            self.changed.wait(left)
        if asked["epoch"] != self.record["epoch"] or self.state not in GUARDED:
            return 409, {"error": {"code": "U409", "message": "another guardian has followed"}}
        return 200, {"wanted": self.record["wanted"], "learners": len(self.record["placement"])}

    def report(self, asked: dict) -> tuple[int, dict]:
        if asked["sequence"] <= self.record["sequence"]:
            return 200, {}
        if asked["epoch"] != self.record["epoch"]:
            return 409, {"error": {"code": "U409", "message": "another guardian has followed"}}
        if asked["state"] not in FOLLOWS[self.state]:
            self.violation(f"{asked} after {self.record['history'][-1]}")
            return 409, {"error": {"code": "U409", "message": f"{asked['state']} may not follow {self.state}"}}
        self.record["sequence"] = asked["sequence"]
        self.change(**asked)
        return 200, {}

    def tell(self, asked: dict) -> tuple[int, dict]:
        """What the test says in the owner's and the scheduler's place."""
        if "wanted" in asked:
            self.record["wanted"] = asked["wanted"]
            self.store()
        for state in asked.get("states", []):
            self.record["placement"] = asked.get("placement", self.record["placement"])
            self.change(state)
        return 200, self.record


def serve(directory: Path, port: int) -> None:
    job = Job(directory)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
            what = self.path.rsplit("/", 1)[1]
            if self.headers["Authorization"] != "Bearer " + job.record["token"]:
                status, answer = 401, {}
            else:
                with job.changed:
                    status, answer = getattr(job, {"state": "report"}.get(what, what))(body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        disable_nagle_algorithm = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients of these tests are killed in the middle of requests."""
            if not isinstance(sys.exc_info()[1], ConnectionError):
                super().handle_error(request, client_address)

    Handler.disable_nagle_algorithm = True
    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
