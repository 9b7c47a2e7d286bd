"""The platform's jobs from Python, with the standard library alone.

    from tesser.client import Client

    client = Client()                          # as `tesser login` has it, or TESSER_SERVER and TESSER_TOKEN
    job = client.submit("job.yaml", "code/")
    for line in client.logs(job["id"], follow=True):
        print(line["text"])
    client.wait(job["id"])

Answers are dictionaries as docs/platform.md describes them. Every failure is a ClientError with one message that says
what to do. A Client may be used by several threads: each request has a connection of its own.
"""

from __future__ import annotations

import fnmatch
import http.client
import io
import json
import os
import re
import secrets as random_tokens
import ssl
import time
import urllib.parse
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["Client", "ClientError", "JobFailed", "OutOfReach"]

FINAL = ("COMPLETED", "FAILED")
ALWAYS_IGNORED = (".git", ".hg", ".svn", "__pycache__", ".venv", "*.pyc", ".DS_Store")
MOST_BYTES = 1 << 30
_REFERENCE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ClientError(Exception):
    """The server refuses; `status` is that of HTTP, `code` the platform's (U... or S...)."""

    retry_after = 0  # seconds, where the server says after how many the call may go through

    def __init__(self, message: str, status: int = 0, code: str = ""):
        super().__init__(message)
        self.status = status
        self.code = code


class OutOfReach(ClientError):
    """No answer from the server: the same call may go through later, and jobs go on meanwhile."""


class JobFailed(ClientError):
    """A job that was waited for has ended otherwise than COMPLETED; `job` is its last answer."""

    def __init__(self, job: dict):
        reason = f": {job['reason']}" if job.get("reason") else ""
        super().__init__(f"{job['id']} is {job['state']}{reason}", code=job.get("code") or "")
        self.job = job


def _kept_login() -> dict:
    configuration = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    try:
        return json.loads((Path(configuration) / "tesser" / "login.json").read_text())
    except (OSError, ValueError):
        return {}


class Client:
    """A server of the platform.

    `url` and `token`: absent, from TESSER_SERVER and TESSER_TOKEN, else what `tesser login` has kept. A kept token is
    given to its own server alone. `patience`: seconds without a byte after which a request fails. `ca_file`: whom to
    trust to be an https:// server, a PEM file; absent, from TESSER_CA_FILE, else as kept, else the system's.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        patience: float = 30.0,
        ca_file: str | os.PathLike | None = None,
    ):
        kept = _kept_login()
        self.url = (url or os.environ.get("TESSER_SERVER") or kept.get("server") or "").rstrip("/")
        if not self.url:
            raise ClientError("no server is named; give its URL, set TESSER_SERVER, or `tesser login http://HOST:PORT`")
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path:
            raise ClientError(f"'{self.url}' is no server's URL; expected http://HOST:PORT")
        self._parts = parts
        self._token = token if token is not None else os.environ.get("TESSER_TOKEN")
        if self._token is None:
            self._token = kept.get("token", "") if self.url == kept.get("server") else ""
        self.patience = patience
        if ca_file is None:
            ca_file = os.environ.get("TESSER_CA_FILE") or (
                kept.get("ca_file") if self.url == kept.get("server") else None
            )
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        if self._tls is not None:
            self._tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the file may hold the server's own certificate

    # Jobs

    def submit(
        self,
        manifest: str | os.PathLike,
        directory: str | os.PathLike | None = None,
        *,
        environment: dict[str, str] | None = None,
        key: str | None = None,
    ) -> dict:
        """Submits the manifest of a file, or YAML text (which has a line feed in it), with a directory as its code.

        `${NAME}` in the manifest is taken from `environment` (absent: os.environ) and kept as a secret. The same `key`
        gives the same job; without one, tries again after a lost connection make no second job either. Returns the job.
        """
        text = os.fspath(manifest)
        if "\n" not in text:
            text = Path(text).read_text(encoding="utf-8")
        variables = os.environ if environment is None else environment
        values = {name: variables[name] for name in _REFERENCE.findall(text) if name in variables}
        parts = [("manifest", None, "application/yaml", text.encode())]
        if values:
            parts.append(("secrets", None, "application/json", json.dumps(values).encode()))
        if directory is not None:
            parts.append(("code", "code.zip", "application/zip", _pack(Path(directory))))
        boundary = "tesser-" + random_tokens.token_hex(16)
        body = io.BytesIO()
        for name, file_name, kind, content in parts:
            file_part = f'; filename="{file_name}"' if file_name else ""
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file_part}\r\n'
            head += f"Content-Type: {kind}\r\n\r\n"
            body.write(head.encode() + content + b"\r\n")
        body.write(f"--{boundary}--\r\n".encode())
        headers = {
            "Content-Type": f"multipart/form-data; boundary={boundary}",
            "Idempotency-Key": key or random_tokens.token_hex(16),
        }
        return _persistently(lambda: self._json("POST", "/v1/jobs", body.getvalue(), headers), 10.0)

    def jobs(self, *, state: str | None = None, team: str | None = None) -> Iterator[dict]:
        """All jobs, newest first, page by page."""
        after = None
        while True:
            page = self._json("GET", "/v1/jobs" + _query(state=state, team=team, limit=500, after=after))
            yield from page["jobs"]
            after = page["next"]
            if not after:
                return

    def status(self, job: str) -> dict:
        """The job as it is now."""
        return self._json("GET", _path(job))

    def history(self, job: str) -> list[dict]:
        """Every change of its state, oldest first."""
        return self._json("GET", _path(job) + "/history")["changes"]

    def halt(self, job: str) -> dict:
        """Wants the job to stop; `wait` returns when it has. It can be resumed."""
        return self._json("PATCH", _path(job), json.dumps({"wanted": "halt"}).encode())

    def resume(self, job: str, learners: int | None = None) -> dict:
        """Lets a halted job go on from its newest complete checkpoint, on another number of learners if given."""
        wanted = {"wanted": "run"} if learners is None else {"wanted": "run", "learners": learners}
        return self._json("PATCH", _path(job), json.dumps(wanted).encode())

    def delete(self, job: str) -> None:
        """Ends the job and removes its files, log and record."""
        self._request("DELETE", _path(job)).read()

    def wait(self, job: str, *, timeout: float | None = None, interval: float = 0.5) -> dict:
        """Returns the job when it is COMPLETED. JobFailed when it is FAILED or HALTED, TimeoutError after `timeout`
        seconds. Waits on while the server is out of reach."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                now = self.status(job)
            except OutOfReach:
                now = {"state": ""}
            if now["state"] == "COMPLETED":
                return now
            if now["state"] in ("FAILED", "HALTED"):
                raise JobFailed(now)
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"{job} has not ended within {timeout} s; it is {now['state'] or 'out of reach'}")
            time.sleep(interval)

    # What a job makes

    def logs(self, job: str, *, follow: bool = False, learner: int | None = None) -> Iterator[dict]:
        """Lines, each once and in the order of each learner: `learner`, `attempt`, `sequence`, `time`, `text`. With
        `follow` until nothing comes any more, over restarts of the server."""
        return self._pages(job, "logs", "lines", follow, learner=learner)

    def metrics(
        self, job: str, *, follow: bool = False, name: str | None = None, learner: int | None = None
    ) -> Iterator[dict]:
        """Figures: `learner`, `step`, `time`, `name`, `value` (None where it is not finite)."""
        return self._pages(job, "metrics", "metrics", follow, name=name, learner=learner)

    def download(self, job: str, path: str | os.PathLike, what: str = "results") -> int:
        """Writes a TAR of the job's `results`, newest complete `checkpoints`, or `definition` to a file, which appears
        complete or not at all; to what is no file (a named pipe), as it comes. Returns its bytes."""
        if what not in ("results", "checkpoints", "definition"):
            raise ValueError(f"what is '{what}', expected results, checkpoints or definition")
        is_stream = os.path.exists(path) and not os.path.isfile(path)
        target = Path(path if is_stream else os.path.realpath(path))  # links are written through
        partial = target if is_stream else target.with_name(f"{target.name}.partial-{os.getpid()}")
        count = 0
        response = self._request("GET", f"{_path(job)}/{what}")
        try:
            with partial.open("wb") as file:
                while piece := response.read(1 << 20):
                    count += file.write(piece)
            if not is_stream:
                partial.replace(target)
        except (OSError, http.client.HTTPException) as error:
            raise OutOfReach(f"{path}: the download broke off: {error}") from error
        finally:
            if not is_stream:
                partial.unlink(missing_ok=True)
            response.close()
        return count

    # The cluster

    def nodes(self) -> list[dict]:
        """Nodes with what they have, what of it is held, and by which jobs."""
        return self._json("GET", "/v1/nodes")["nodes"]

    def drain(self, node: str, drains: bool = True) -> dict:
        """Empties a node, whose jobs go on elsewhere; with `drains` False it takes learners again."""
        return self._send("PATCH", _path(node, "nodes"), drain=drains)

    def quota(self) -> list[dict]:
        """What each team may have, holds, and has borrowed of that."""
        return self._json("GET", "/v1/quota")["teams"]

    def set_quota(
        self,
        team: str,
        *,
        cpus: float | None = None,
        memory_bytes: int | None = None,
        accelerators: dict[str, int] | None = None,
    ) -> dict:
        """Sets what a team may have; what is not given is not bounded."""
        millicpus = None if cpus is None else round(cpus * 1000)
        return self._send(
            "PUT",
            _path(team, "teams") + "/quota",
            millicpus=millicpus,
            memory_bytes=memory_bytes,
            accelerators=accelerators,
        )

    def remove_quota(self, team: str) -> dict:
        """Removes a team's quota: it only borrows then, where other teams have one."""
        return self._send("DELETE", _path(team, "teams") + "/quota")

    # Tenants

    def me(self) -> dict:
        """Who asks: `user`, `is_administrator`, `teams` with the role in each, and which `token`."""
        return self._json("GET", "/v1/me")

    def users(self) -> list[dict]:
        """All users for administrators, else those in the caller's teams."""
        return self._json("GET", "/v1/users")["users"]

    def add_user(self, name: str, *, is_administrator: bool = False) -> dict:
        return self._send("POST", "/v1/users", name=name, is_administrator=is_administrator)

    def remove_user(self, name: str) -> None:
        """With all tokens; jobs stay with their teams."""
        self._send("DELETE", _path(name, "users"))

    def teams(self) -> list[dict]:
        """Teams that the caller sees, with their members."""
        return self._json("GET", "/v1/teams")["teams"]

    def add_team(self, name: str) -> dict:
        return self._send("POST", "/v1/teams", name=name)

    def remove_team(self, name: str) -> None:
        """Refused while it has jobs."""
        self._send("DELETE", _path(name, "teams"))

    def join_team(self, team: str, user: str, role: str = "member") -> dict:
        """Takes a user in, or gives a member another role: viewer, member or administrator."""
        return self._send("PUT", f"{_path(team, 'teams')}/members/{urllib.parse.quote(user, safe='')}", role=role)

    def leave_team(self, team: str, user: str) -> None:
        self._send("DELETE", f"{_path(team, 'teams')}/members/{urllib.parse.quote(user, safe='')}")

    def tokens(self) -> list[dict]:
        """Those that the caller may revoke, without their texts."""
        return self._json("GET", "/v1/tokens")["tokens"]

    def create_token(
        self,
        *,
        user: str | None = None,
        team: str | None = None,
        description: str | None = None,
        expires_in: int | None = None,
    ) -> dict:
        """A token, whose text (`token`) is in this answer and nowhere else. `team`: it is good for that one alone.
        `expires_in`: seconds; absent: until it is revoked."""
        return self._send("POST", "/v1/tokens", user=user, team=team, description=description, expires_in=expires_in)

    def revoke_token(self, token: str) -> None:
        """By its `id`."""
        self._send("DELETE", _path(token, "tokens"))

    def _send(self, method: str, path: str, **members: object) -> dict:
        given = {name: value for name, value in members.items() if value is not None}
        return self._json(method, path, json.dumps(given).encode() if method != "DELETE" else None)

    def _pages(self, job: str, path: str, member: str, follow: bool, **query: object) -> Iterator[dict]:
        cursor = None
        while True:
            address = f"{_path(job)}/{path}" + _query(cursor=cursor, wait=5 if follow else None, **query)
            page = _persistently(lambda address=address: self._json("GET", address), 600.0 if follow else 0.0)
            yield from page[member]
            cursor = page["cursor"]
            if page["ended"] or (not follow and not page[member]):
                return
            if follow and not page[member] and self._is_halted(job):
                return

    def _is_halted(self, job: str) -> bool:
        try:
            return self.status(job)["state"] == "HALTED"
        except OutOfReach:
            return False

    def _json(self, method: str, path: str, body: bytes | None = None, headers: dict | None = None) -> dict:
        if body is not None and headers is None:
            headers = {"Content-Type": "application/json"}
        try:
            return json.loads(self._request(method, path, body, headers).read())
        except (OSError, http.client.HTTPException) as error:
            raise OutOfReach(f"{self.url}: the answer broke off: {error}") from error
        except ValueError as error:
            raise ClientError(f"{self.url} answers with no JSON; is it a server of tesser's platform?") from error

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: dict | None = None
    ) -> http.client.HTTPResponse:
        until = time.monotonic() + self.patience
        while True:
            try:
                return self._request_once(method, path, body, headers)
            except OutOfReach as error:  # who asks too often is told when to ask again
                if not error.retry_after or time.monotonic() + error.retry_after > until:
                    raise
                time.sleep(error.retry_after)

    def _request_once(
        self, method: str, path: str, body: bytes | None, headers: dict | None
    ) -> http.client.HTTPResponse:
        if self._tls is not None:
            connection = http.client.HTTPSConnection(
                self._parts.hostname, self._parts.port, timeout=self.patience, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._parts.hostname, self._parts.port, timeout=self.patience)
        sent = dict(headers or {})
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
        except ConnectionRefusedError as error:
            connection.close()
            raise OutOfReach(
                f"no server listens at {self.url}; start one with `tesser server`, or name another"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise OutOfReach(f"{self.url} does not answer: {error}") from error
        if response.status < 300:
            return response
        try:
            told = json.loads(response.read())["error"]
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            told = {}
        message = told.get("message") or f"{self.url} answers with status {response.status}"
        if response.status == 401:
            message = f"{self.url} does not know this token, or none was given; `tesser login {self.url}` keeps one"
        retry_after = response.getheader("Retry-After", "")
        wait = int(retry_after) if response.status == 429 and retry_after.isdigit() else 0
        error = OutOfReach if wait or response.status >= 500 else ClientError
        raised = error(message, response.status, told.get("code", ""))
        raised.retry_after = wait
        raise raised


def _persistently(call: Callable[[], dict], seconds: float) -> dict:
    until = time.monotonic() + seconds
    pause = 0.25
    while True:
        try:
            return call()
        except OutOfReach:
            if time.monotonic() + pause > until:
                raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


def _path(name: str, kind: str = "jobs") -> str:
    return f"/v1/{kind}/" + urllib.parse.quote(name, safe="")


def _query(**members: object) -> str:
    given = {name: value for name, value in members.items() if value is not None}
    return "?" + urllib.parse.urlencode(given) if given else ""


def _pack(directory: Path) -> bytes:
    """The directory as a ZIP, without what .tesserignore names (patterns of names and paths; `tesser submit` knows all
    of .gitignore's forms)."""
    if not directory.is_dir():
        raise ClientError(f"{directory}: is no directory")
    patterns = list(ALWAYS_IGNORED)
    ignore = directory / ".tesserignore"
    if ignore.is_file():
        lines = (line.strip() for line in ignore.read_text().splitlines())
        patterns += [line for line in lines if line and not line.startswith("#")]
    if any(pattern.startswith("!") or "**" in pattern for pattern in patterns):
        raise ClientError(f"{ignore}: '!' and '**' are for `tesser submit` alone")

    def is_ignored(path: Path) -> bool:
        relative = path.relative_to(directory).as_posix()
        for pattern in patterns:
            if pattern.endswith("/") and not path.is_dir():
                continue
            bare = pattern.rstrip("/")
            if fnmatch.fnmatchcase(relative if "/" in bare else path.name, bare.lstrip("/")):
                return True
        return False

    packed = io.BytesIO()
    total = 0
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for root, directories, files in os.walk(directory):
            directories[:] = sorted(name for name in directories if not is_ignored(Path(root, name)))
            for name in sorted(files):
                path = Path(root, name)
                if is_ignored(path):
                    continue
                if path.is_symlink() and not path.resolve().is_relative_to(directory.resolve()):
                    raise ClientError(f"{path}: is a link that leads out of {directory}; name it in .tesserignore")
                total += path.stat().st_size
                if total > MOST_BYTES:
                    raise ClientError(
                        f"{directory}: holds more than 1 GiB; name in .tesserignore what the job does not need, and "
                        "put large data into a data store"
                    )
                entry = zipfile.ZipInfo(path.relative_to(directory).as_posix(), (1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o100755 if os.access(path, os.X_OK) else 0o100644) << 16
                archive.writestr(entry, path.read_bytes())
    return packed.getvalue()
