"""The running server against its OpenAPI description, with requests that schemathesis makes up from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_schema_conformance,
    status_code_conformance,
)

from tests.python.platform.server_process import Server, manifest, zip_of

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    ignored_auth,
]
SOURCE = Path(__file__).parents[3] / "src" / "platform" / "server" / "openapi.json"
EXAMPLES = 12  # of each request; all together take seconds


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Each request is tried without a token, too, and more often than people may.
    options = ("--node", "a=2,4GiB", "--strangers-per-second", "0", "--requests-per-second", "0")
    made = Server(tmp_path_factory.mktemp("openapi") / "data", *options).start()
    job = made.accepted(manifest("described", "echo hello"), zip_of({"a": "b"}))
    made.wait_for(job, "COMPLETED")
    yield made
    made.close()


def operations() -> list[tuple[str, str]]:
    described = json.loads(SOURCE.read_bytes())["paths"]
    return [(path, method) for path, item in described.items() for method in item if method != "parameters"]


@pytest.fixture(scope="module")
def tokens(server: Server) -> dict[str, str]:
    """Of an administrator, and of a member of another team than the job's."""
    server.ask("POST", "/v1/teams", {"name": "others"})
    server.ask("POST", "/v1/users", {"name": "member"})
    assert server.ask("PUT", "/v1/teams/others/members/member", {"role": "member"}).status == 200
    made = server.ask("POST", "/v1/tokens", {"user": "member"})
    return {"administrator": server.token, "member": made.json["token"]}


@pytest.mark.parametrize("who", ["administrator", "member"])
@pytest.mark.parametrize(("path", "method"), operations())
def test_every_request_is_answered_as_described(
    server: Server, tokens: dict[str, str], path: str, method: str, who: str
) -> None:
    url = f"http://127.0.0.1:{server.port}"
    schema = schemathesis.openapi.from_url(f"{url}/v1/openapi.json")
    (known,) = (job["id"] for job in server.get("/v1/jobs?limit=1000")["jobs"] if job["name"] == "described")
    token = tokens[who]
    if path.startswith("/v1/guardian/") and who == "administrator":
        token = (server.data / "jobs" / known / "token").read_text()

    examples = EXAMPLES if who == "administrator" else EXAMPLES // 3

    @given(case=schema[path][method].as_strategy())
    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def ask(case: schemathesis.Case) -> None:
        given = str(case.path_parameters.get("id", ""))
        # Half of the requests, and all of guardians, are of a job that is there.
        if given and method != "delete" and (len(given) % 2 or path.startswith("/v1/guardian/")):
            case.path_parameters["id"] = known
        # And of the team and a node that are there.
        for name, there in (("team", "default"), ("node", "a")):
            if len(str(case.path_parameters.get(name, ""))) % 2 and (method, path) != ("delete", "/v1/teams/{team}"):
                case.path_parameters[name] = there
        if "wait" in (case.query or {}):
            case.query["wait"] = 0
        case.call_and_validate(base_url=url, headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)

    ask()


def test_every_route_is_described(server: Server) -> None:
    described = server.ask("GET", "/v1/openapi.json", token="").json
    assert server.ask("GET", "/v1/openapi.json").body == SOURCE.read_bytes()
    for path, operations in described["paths"].items():
        for method in operations.keys() & {"get", "post", "put", "patch", "delete"}:
            answer = server.ask(method.upper(), re.sub("{.*?}", "none", path), token="")
            assert answer.status in ((200,) if "security" in operations[method] else (401,)), (method, path)
    for method, path in (("PUT", "/v1/jobs"), ("GET", "/v1/other"), ("POST", "/"), ("POST", "/metrics")):
        assert server.ask(method, path).status in (404, 405)
