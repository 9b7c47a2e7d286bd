"""A server of the platform in a process of its own, and what it is asked."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import time
import uuid
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.python.commands import binary

SECONDS = 30
FINAL = ("COMPLETED", "FAILED", "HALTED")


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Its code and message; every error has both."""
        assert self.status >= 400, self.body
        return "{code}: {message}".format(**self.json["error"])


def zip_of(files: dict[str, str | bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def manifest(name: str = "job", command: str = "true", **more: object) -> str:
    return json.dumps({"name": name, "command": command, "cpus": 1} | more)


class Server:
    """`tesser server` on a data directory; may be killed and started again there."""

    def __init__(self, data: Path, *options: str, address: str = "127.0.0.1") -> None:
        self.data = data
        self.address = address
        self.port = free_port()
        self.options = options or ("--node", "a=2,4GiB", "--node", "b=2,4GiB,v100:1")
        self.process: subprocess.Popen | None = None

    def words(self) -> list[str]:
        listen = ("--listen", f"{self.address}:{self.port}")
        # Tests lie in directories that other users may not enter; test_isolation.py has learners of other users.
        users = () if "--learner-users" in self.options or os.geteuid() != 0 else ("--learner-users", "same")
        return [str(binary()), "server", "--data", str(self.data), *listen, *users, *self.options]

    def start(self) -> Server:
        with open(str(self.data) + ".log", "a") as log:
            self.process = subprocess.Popen(self.words(), stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout.readline().startswith("server at"), Path(str(self.data) + ".log").read_text()
        return self

    def end(self, sign: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(sign)
        code = self.process.wait(SECONDS)
        self.process.stdout.close()
        return code

    def restart(self, sign: signal.Signals = signal.SIGKILL) -> None:
        self.end(sign)
        self.start()

    @property
    def token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    def ask(
        self, method: str, path: str, body: bytes | dict | None = None, token: str | None = None, **headers: str
    ) -> Answer:
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self.token if token is None else token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection(self.address, self.port, timeout=SECONDS)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), dict(answer.getheaders()))
        finally:
            connection.close()

    def get(self, path: str) -> dict:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def submit(
        self,
        text: str,
        code: bytes | None = None,
        key: str = "",
        secrets: dict | None = None,
        token: str | None = None,
    ) -> Answer:
        boundary = uuid.uuid4().hex
        body = b""
        parts = [('name="manifest"', text.encode())]
        if code is not None:
            parts.append(('name="code"; filename="code.zip"', code))
        if secrets is not None:
            parts.append(('name="secrets"', json.dumps(secrets).encode()))
        for disposition, content in parts:
            body += (
                f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode() + content + b"\r\n"
            )
        body += f"--{boundary}--\r\n".encode()
        headers = {"Content_Type": f"multipart/form-data; boundary={boundary}"}
        if key:
            headers["Idempotency_Key"] = key
        return self.ask("POST", "/v1/jobs", body, token, **headers)

    def accepted(self, *arguments: object, **options: object) -> str:
        answer = self.submit(*arguments, **options)
        assert answer.status == 201, answer.body
        return answer.json["id"]

    def wait_for(self, job: str, *states: str, seconds: float = SECONDS) -> dict:
        until = time.monotonic() + seconds
        while True:
            found = self.get(f"/v1/jobs/{job}")
            if found["state"] in states:
                return found
            assert time.monotonic() < until and found["state"] not in FINAL, found
            time.sleep(0.02)

    def wait_until_gone(self, job: str) -> None:
        until = time.monotonic() + SECONDS
        while self.ask("GET", f"/v1/jobs/{job}").status != 404:
            assert time.monotonic() < until
            time.sleep(0.02)

    def states(self, job: str) -> list[str]:
        return [change["state"] for change in self.get(f"/v1/jobs/{job}/history")["changes"]]

    def log(self, job: str) -> list[str]:
        return [line["text"] for line in self.get(f"/v1/jobs/{job}/logs")["lines"] if not line["note"]]

    def close(self) -> None:
        """Ends all jobs, their guardians and the server; only what is this data directory's."""
        if self.process.poll() is not None:
            self.start()
        for job in self.get("/v1/jobs?limit=1000")["jobs"]:
            self.ask("DELETE", f"/v1/jobs/{job['id']}")
        until = time.monotonic() + SECONDS
        while self.get("/v1/jobs")["jobs"] and time.monotonic() < until:
            time.sleep(0.05)
        assert self.end() == 0
        assert not guardians(self.data)


def guardians(data: Path) -> list[int]:
    """Processes that guard jobs of this data directory."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if (
            process.name.isdigit()
            and words[1:2] == [b"guardian"]
            and any(w.startswith(os.fsencode(data)) for w in words)
        ):
            found.append(int(process.name))
    return found
