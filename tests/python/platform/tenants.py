"""A server with two teams, whose learners are other users where the tests run as root."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

from tests.python.commands import binary
from tests.python.platform.server_process import Answer, Server

IS_ROOT = os.geteuid() == 0
FIRST_USER = 1_900_500_000
SECRET = "a-secret-of-the-server"
LOCAL = ("--node", "a=4,8GiB", "--node", "b=4,8GiB")


class TenantServer(Server):
    """In a directory that everybody may pass through, and with a program of its own there, as servers of many have it.

    Red: ann and bea are members, ray administers, vic views. Blue: bob is a member.
    """

    def __init__(self, *options: str, engine: tuple[str, ...] = LOCAL, first_user: int = FIRST_USER) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="tesser-tenants-", dir="/tmp"))
        self.place.chmod(0o755)
        self.program = self.place / "tesser"
        shutil.copy2(binary().resolve(), self.program)
        users = ("--learner-users", f"{first_user}-{first_user + 1}") if IS_ROOT else ("--learner-users", "same")
        super().__init__(self.place / "data", *engine, *users, *options)
        self.tokens: dict[str, str] = {}

    def words(self) -> list[str]:
        return [str(self.program), *super().words()[1:]]

    def start(self) -> TenantServer:
        os.environ["SECRET_OF_SERVER"] = SECRET  # what a learner must not get
        try:
            super().start()
        finally:
            del os.environ["SECRET_OF_SERVER"]
        return self

    def add_tenants(self) -> TenantServer:
        teams = {"red": {"ann": "member", "bea": "member", "ray": "administrator", "vic": "viewer"}}
        teams["blue"] = {"bob": "member"}
        for team, members in teams.items():
            assert self.ask("POST", "/v1/teams", {"name": team}).status == 201
            for user, role in members.items():
                assert self.ask("POST", "/v1/users", {"name": user}).status == 201
                assert self.ask("PUT", f"/v1/teams/{team}/members/{user}", {"role": role}).status == 200
                self.tokens[user] = self.ask("POST", "/v1/tokens", {"user": user}).json["token"]
        return self

    def as_user(self, user: str, method: str, path: str, body: bytes | dict | None = None, **headers: str) -> Answer:
        return self.ask(method, path, body, self.tokens[user], **headers)

    def submit_as(self, user: str, text: str, code: bytes | None = None, **options: object) -> Answer:
        return self.submit(text, code, token=self.tokens[user], **options)

    def accepted_as(self, user: str, text: str, code: bytes | None = None, **options: object) -> str:
        answer = self.submit_as(user, text, code, **options)
        assert answer.status == 201, answer.body
        return answer.json["id"]

    def audit(self) -> list[dict]:
        return [json.loads(line) for line in (self.data / "audit.log").read_text().splitlines()]

    def raw(self, text: bytes) -> socket.socket:
        """A connection on which nothing but this was sent."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        made.sendall(text)
        return made

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.place)
