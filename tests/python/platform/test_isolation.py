"""What one tenant of the platform tries against another, the server and the guardian; all of it fails and is noted."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tesser.client import Client, OutOfReach
from tests.python.platform.server_process import Server, manifest, zip_of
from tests.python.platform.tenants import FIRST_USER, IS_ROOT, SECRET, TenantServer

as_root = pytest.mark.skipif(not IS_ROOT, reason="only root has learners of other users")


@pytest.fixture(scope="module")
def server() -> Iterator[TenantServer]:
    made = TenantServer("--requests-per-second", "1000").start().add_tenants()
    yield made
    made.close()


@pytest.fixture(scope="module")
def job(server: TenantServer) -> str:
    """Ann's, of red; runs as long as the tests do."""
    made = server.accepted_as("ann", manifest("anns", "echo line of ann; sleep 600", grace=1))
    server.wait_for(made, "PROCESSING")
    return made


# Through the API


PATHS = ["", "/history", "/logs", "/metrics", "/definition", "/results", "/checkpoints"]


def test_jobs_of_another_team_are_not_there(server: TenantServer, job: str) -> None:
    for path in PATHS:
        hidden = server.as_user("bob", "GET", f"/v1/jobs/{job}{path}")
        absent = server.as_user("bob", "GET", f"/v1/jobs/absent-{job[-6:]}{path}")
        assert hidden.status == absent.status == 404
        assert hidden.error.replace(job, "JOB") == absent.error.replace(f"absent-{job[-6:]}", "JOB")
    for method, body in (("PATCH", {"wanted": "halt"}), ("DELETE", None)):
        assert server.as_user("bob", method, f"/v1/jobs/{job}", body).status == 404
    for path in ("/v1/jobs", "/v1/jobs?team=red", "/v1/queue", "/v1/nodes", "/v1/quota", "/v1/teams", "/metrics"):
        answer = server.as_user("bob", "GET", path)
        text = answer.body.decode()
        assert answer.status == 200 and not [name for name in ("anns-", '"red"', '"ann"') if name in text], text
    assert server.get(f"/v1/jobs/{job}")["wanted"] == "run"
    noted = [line for line in server.audit() if line["user"] == "bob" and line["path"] == f"/v1/jobs/{job}"]
    assert {line["method"] for line in noted} == {"GET", "PATCH", "DELETE"}
    assert all(line["address"] == "127.0.0.1" and "red" in line["message"] for line in noted)


def test_a_reason_names_no_job_of_another_team(server: TenantServer) -> None:
    holder = server.accepted_as("ann", manifest("holder", "sleep 600", learners=7, grace=1))
    server.wait_for(holder, "PROCESSING")
    first = server.accepted_as("ann", manifest("first", learners=6))
    second = server.accepted_as("bob", manifest("second", learners=6))
    until = time.monotonic() + 10
    while not (reason := server.as_user("bob", "GET", f"/v1/jobs/{second}").json["reason"]):
        assert time.monotonic() < until
        time.sleep(0.02)
    shown = server.as_user("bob", "GET", f"/v1/jobs/{second}").body.decode()
    assert first not in shown and holder not in shown, reason
    for name in (holder, first, second):
        server.ask("DELETE", f"/v1/jobs/{name}")
    for name in (holder, first, second):
        server.wait_until_gone(name)


def test_roles_allow_what_they_should_and_no_more(server: TenantServer, job: str) -> None:
    def status(user: str, method: str, path: str, body: dict | None = None) -> int:
        return server.as_user(user, method, path, body).status

    of_bea = server.accepted_as("bea", manifest("beas"))
    assert status("vic", "GET", f"/v1/jobs/{job}") == 200
    assert status("vic", "PATCH", f"/v1/jobs/{job}", {"wanted": "halt"}) == 403
    assert server.submit_as("vic", manifest("vics")).status == 403
    assert status("ann", "DELETE", f"/v1/jobs/{of_bea}") == 403
    assert status("bea", "DELETE", f"/v1/jobs/{of_bea}") == 202
    assert status("bob", "PUT", "/v1/teams/red/members/bob", {"role": "member"}) == 404
    assert status("ann", "PUT", "/v1/teams/red/members/ann", {"role": "administrator"}) == 403
    assert status("ann", "POST", "/v1/users", {"name": "friend"}) == 403
    assert status("ray", "POST", "/v1/users", {"name": "friend"}) == 403
    assert status("ray", "DELETE", "/v1/teams/red") == 403
    assert status("ray", "PUT", "/v1/teams/blue/members/ray", {"role": "viewer"}) == 404
    assert server.submit_as("bob", manifest("bobs", team="red")).error == ("U_TEAM: you are no member of team 'red'")
    assert server.submit_as("bob", manifest("bobs", team="none-such")).error == (
        "U_TEAM: you are no member of team 'none-such'"
    )


def test_nobody_makes_or_revokes_tokens_of_others(server: TenantServer) -> None:
    def make(who: str, **body: object) -> int:
        return server.as_user(who, "POST", "/v1/tokens", body).status

    assert make("ann", user="ray") == 403
    assert make("ann", user="ray", team="red") == 403
    assert make("ray", user="ann") == 403  # one that would be good for ann's other teams, too
    assert make("ray", user="ann", team="blue") == 404
    assert make("ray", user="admin", team="red") == 403
    assert make("ray", user="ann", team="red") == 201
    limited = server.as_user("ray", "POST", "/v1/tokens", {"team": "red", "expires_in": 60}).json
    assert server.ask("POST", "/v1/tokens", {}, limited["token"]).status == 403  # would be good for more
    assert server.ask("POST", "/v1/tokens", {"team": "red"}, limited["token"]).status == 403  # would live longer
    assert server.as_user("bob", "DELETE", f"/v1/tokens/{limited['id']}").status == 404
    assert limited["id"] not in server.as_user("bob", "GET", "/v1/tokens").body.decode()
    assert server.as_user("ray", "DELETE", f"/v1/tokens/{limited['id']}").status == 200
    assert server.ask("GET", "/v1/me", token=limited["token"]).status == 401


def test_tokens_are_taken_from_their_place_alone_and_stand_nowhere(server: TenantServer, job: str) -> None:
    token = server.tokens["ann"]
    basic = base64.b64encode(f"ann:{token}".encode()).decode()
    wrong = [
        (f"/v1/jobs?token={token}", {}),
        (f"/v1/jobs?access_token={token}", {}),
        ("/v1/jobs", {"Cookie": f"token={token}"}),
        ("/v1/jobs", {"X_Api_Key": token}),
        ("/v1/jobs", {"Authorization": f"Basic {basic}"}),
        ("/v1/jobs", {"Authorization": token}),
        ("/v1/jobs", {"Authorization": f"Bearer {token[:-1]}"}),
        ("/v1/jobs", {"Authorization": "Bearer "}),
    ]
    for path, headers in wrong:
        assert server.ask("GET", path, token="", **headers).status == 401, headers
    guardian = (server.data / "jobs" / job / "token").read_text()
    places = [server.data / "audit.log", Path(str(server.data) + ".log"), *server.data.glob("store.sqlite*")]
    places += [path for path in (server.data / "jobs" / job).rglob("*") if path.is_file() and path.name != "token"]
    for place in places:
        content = place.read_bytes()
        for secret in (token, guardian, server.token):
            assert secret.encode() not in content, place
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        assert token.encode() not in words and guardian.encode() not in words


def test_a_guardians_token_is_good_for_its_job_alone(server: TenantServer, job: str) -> None:
    other = server.accepted_as("bob", manifest("bobs", "sleep 600", grace=1))
    token = (server.data / "jobs" / other / "token").read_text()
    lease = {"holder": "imitator"}
    assert server.ask("POST", f"/v1/guardian/{job}/lease", lease, token).status == 403
    assert server.ask("POST", f"/v1/guardian/{job}/lease", lease, server.tokens["bob"]).status == 403
    assert server.ask("POST", f"/v1/guardian/{job}/lease", lease).status == 403
    assert server.ask("GET", f"/v1/jobs/{other}", token=token).status == 403
    noted = [line for line in server.audit() if line["path"] == f"/v1/guardian/{job}/lease"]
    assert {line["user"] for line in noted} == {f"guardian of {other}", "bob", "admin"}
    server.ask("DELETE", f"/v1/jobs/{other}")


def test_hostile_zips_and_manifests_are_refused(server: TenantServer) -> None:
    linked = io.BytesIO()
    with zipfile.ZipFile(linked, "w") as archive:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    hostile = [zip_of({name: "x"}) for name in ("../x", "/tmp/x", "a/../../x", "..\\x", "a\0b/../../../x")]
    for code in [*hostile, linked.getvalue(), b"no zip", zip_of({"a": "x"})[:-30]]:
        answer = server.submit_as("bob", manifest("hostile"), code)
        assert answer.status in (201, 422), answer.body  # a name that ends at its NUL is one that may be
        if answer.status == 201:
            server.ask("DELETE", f"/v1/jobs/{answer.json['id']}")
    store = {"id": "s", "type": "host", "path": str(server.place)}
    for change in (
        {"name": "../../x"},
        {"team": "../x"},
        {"data_stores": [store], "results": "s/../../etc"},
        {"data_stores": [store | {"id": "../s"}]},
        {"environment": {"LD_PRELOAD=x": "y"}},
        {"cpus": 1e300},
        {"metrics": [{"type": "regex", "pattern": "(" * 5000}]},
        {"metrics": [{"type": "json", "path": "../../other/metrics/0.jsonl"}]},
    ):
        answer = server.submit_as("bob", json.dumps({"name": "hostile", "command": "true", "cpus": 1} | change))
        assert answer.status == 422, (change, answer.body)


# Starving others


def test_who_asks_too_often_waits_and_others_do_not() -> None:
    server = TenantServer(
        "--requests-per-second", "2", "--requests-at-once", "4", "--waiting-jobs", "2", "--strangers-per-second", "3"
    ).start()
    try:
        server.add_tenants()
        answers = [server.as_user("bob", "GET", "/v1/me") for _ in range(30)]
        refused = [answer for answer in answers if answer.status == 429]
        assert len(refused) >= 5 and all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        assert server.as_user("ann", "GET", "/v1/me").status == 200
        # Tokens are guessed so slowly; who has one still gets in from the same address.
        guesses = [server.ask("GET", "/v1/me", token=f"{i:032x}").status for i in range(60)]
        assert guesses.count(429) >= 20 and set(guesses) == {401, 429}
        assert server.as_user("ray", "GET", "/v1/me").status == 200
        client = Client(f"http://127.0.0.1:{server.port}", server.tokens["bob"])
        assert all(client.me()["user"] == "bob" for _ in range(6))  # it waits as it is told
        hold = server.accepted(manifest("hold", "sleep 600", learners=8, grace=1))
        server.wait_for(hold, "PROCESSING")
        outcomes = [server.submit_as("bea", manifest("queued", learners=2)).status for _ in range(3)]
        assert outcomes == [201, 201, 429]
        assert server.submit_as("ann", manifest("queued", learners=2)).status == 201
        # So many follow a log at once.
        followers, kept = [], []
        ray = server.tokens["ray"]
        mine = server.get("/v1/jobs?team=red&limit=1")["jobs"][0]["id"]
        for _ in range(6):
            time.sleep(0.5)
            request = f"GET /v1/jobs/{mine}/logs?wait=20 HTTP/1.1\r\nAuthorization: Bearer {ray}\r\n\r\n"
            followers.append(server.raw(request.encode()))
        for each in followers:
            each.settimeout(0.5)
            try:
                kept.append(each.recv(64))
            except TimeoutError:
                kept.append(b"waits")
        assert kept.count(b"waits") == 4 and sum(b" 429 " in each for each in kept) == 2, kept
        for each in followers:
            each.close()
        statuses = {(line["user"], line["status"]) for line in server.audit()}
        assert {("bob", 429), ("bea", 429), ("ray", 429), ("", 429), ("", 401)} <= statuses
    finally:
        server.close()


def test_slow_and_oversized_requests_keep_nobody_waiting(server: TenantServer) -> None:
    slow = [server.raw(b"GET /v1/jobs HTTP/1.1\r\nX-Slow: ") for _ in range(300)]
    token = server.tokens["bob"].encode()
    head = b"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer " + token + b"\r\n"
    uploads = [
        server.raw(head + b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000000\r\n\r\n--b\r\n")
        for _ in range(40)
    ]
    stops = threading.Event()

    def drip() -> None:
        while not stops.wait(0.05):
            for each in slow + uploads:
                with contextlib.suppress(OSError):
                    each.send(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        worst = 0.0
        for _ in range(20):
            begin = time.monotonic()
            assert server.as_user("ann", "GET", "/v1/jobs").status == 200
            worst = max(worst, time.monotonic() - begin)
        assert worst < 5, worst  # a slow request may take 10 s
    finally:
        stops.set()
        dripping.join()
        for each in slow + uploads:
            each.close()
    large = server.raw(
        b"POST /v1/tokens HTTP/1.1\r\nAuthorization: Bearer " + token + b"\r\nContent-Length: 9999999\r\n\r\n"
    )
    assert b" 413 " in large.recv(64)
    large.close()
    headers = server.raw(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000)
    assert b" 431 " in headers.recv(64)
    headers.close()
    assert {413, 431} <= {line["status"] for line in server.audit()}


# From inside a job

PROBE = """
import json, os, socket, sys
from pathlib import Path
root, data, other, guardian = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), None
status = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\\t" in line)
def tried(act):
    try:
        act()
        return "done"
    except OSError as error:
        return type(error).__name__
reads = [root / name for name in ("token", "secrets.json", "guardian/journal.jsonl", "guardian/log")]
reads += [data / name for name in ("admin.token", "store.sqlite", "engine.json", "audit.log")]
reads += [data / name for name in ("jobs", "engine", "incoming")]
reads += [other / "job.json", other / "logs/0", other / "code", Path("/etc/shadow"), Path("/root")]
writes = [root / name for name in ("job.json", "new", "guardian/new", "token", "manifest.yaml")]
writes += [data / "new", data / "jobs/new", other / "new", other / "results/new", Path("/etc/new")]
def read(path):
    os.listdir(path) if path.is_dir() else path.read_bytes()
processes = {}
for process in Path("/proc").glob("[0-9]*"):
    try:
        words = (process / "cmdline").read_bytes().split(b"\\0")
    except OSError:
        continue
    if words[1:2] in ([b"guardian"], [b"server"]) and any(bytes(data) in word for word in words):
        number = int(process.name)
        acts = [lambda: os.kill(number, 0), lambda: (process / "environ").read_bytes()]
        acts += [lambda: os.listdir(process / "fd")]
        processes[words[1].decode()] = [tried(act) for act in acts]
print(json.dumps({
    "ids": os.getresuid() + os.getresgid(), "groups": os.getgroups(), "umask": os.umask(0o027),
    "privileges": [status["NoNewPrivs"].strip(), status["CapEff"].strip(), status["CapPrm"].strip()],
    "reads": {str(path): tried(lambda: read(path)) for path in reads},
    "writes": {str(path): tried(lambda: path.write_text("x")) for path in writes},
    "root": tried(lambda: os.setuid(0)), "processes": processes, "environment": dict(os.environ),
}))
"""


@as_root
def test_a_learner_is_nobody_and_reaches_nothing_of_others(server: TenantServer, job: str) -> None:
    data = server.data
    text = manifest("probe", f"/usr/bin/python3 probe.py $JOB_STATE_DIR/.. {data} {data}/jobs/{job}")
    probe = server.accepted_as("bob", text, zip_of({"probe.py": PROBE}), secrets={})
    server.wait_for(probe, "COMPLETED")
    (line,) = server.log(probe)
    found = json.loads(line)
    users = {team["name"]: team["learner_user"] for team in server.get("/v1/teams")["teams"]}
    assert users["blue"] != users["red"] and users["blue"] >= FIRST_USER
    assert found["ids"] == [users["blue"]] * 6 and found["groups"] == [] and found["umask"] == 0o027
    assert found["privileges"] == ["1", "0" * 16, "0" * 16]
    assert set(found["reads"].values()) == set(found["writes"].values()) == {"PermissionError"}, found
    assert found["root"] == "PermissionError"
    for what in ("guardian", "server"):
        assert found["processes"][what] == ["PermissionError"] * 3
    environment = found["environment"]
    assert SECRET not in environment.values() and "TESSER_TOKEN" not in environment
    assert not [name for name, value in environment.items() if value.startswith("/root") and name != "PATH"]


@as_root
def test_secrets_of_a_command_reach_it_and_those_of_its_stores_do_not(server: TenantServer) -> None:
    store = {"id": "s", "type": "host", "path": str(server.place)}
    text = manifest(
        "secret", "echo got $PASSWORD; cat $JOB_STATE_DIR/../*.json", environment={"PASSWORD": "${PASSWORD}"},
        data_stores=[store],
    )  # fmt: skip
    made = server.accepted_as("bob", text, secrets={"PASSWORD": "for the command", "KEY": "for the store"})
    server.wait_for(made, "COMPLETED", "FAILED")
    log = "\n".join(server.log(made))
    assert "got for the command" in log and "for the store" not in log


@as_root
def test_links_that_a_learner_lays_lead_the_server_nowhere(server: TenantServer, job: str) -> None:
    """Of results, checkpoints, logs, metrics, progress and markers."""
    admin, other = server.data / "admin.token", server.data / "jobs" / job
    code = f"""
set -x
ln -s {admin} $RESULT_DIR/file
ln -s {server.data} $RESULT_DIR/directory
ln {admin} $RESULT_DIR/hard
mkfifo $RESULT_DIR/pipe
echo mine > $RESULT_DIR/mine
ln -s /etc $CHECKPOINT_DIR/step-000000000001
cd $JOB_STATE_DIR/..
mv logs/0 logs/old && ln -s {other}/logs/0 logs/0
rm -f metrics/progress.json && mkfifo metrics/progress.json
rm -f metrics/0.jsonl && ln -s {other}/job.json metrics/0.jsonl
rm -f attempts/1/learner-0.json && mkfifo attempts/1/learner-0.json
ln -s {admin} attempts/2
touch state/laid
sleep 600
"""
    made = server.accepted_as("bob", manifest("links", "sh run.sh", grace=1), zip_of({"run.sh": code}))
    server.wait_for(made, "PROCESSING")
    until = time.monotonic() + 20
    while not (server.data / "jobs" / made / "state" / "laid").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    begin = time.monotonic()
    secret = server.token.encode()
    for path in PATHS:
        answer = server.ask("GET", f"/v1/jobs/{made}{path}")
        assert secret not in answer.body and b"line of ann" not in answer.body and b"root:x:0" not in answer.body, path
        assert answer.status in (200, 400, 404, 503), (path, answer.body)
    with tarfile.open(fileobj=io.BytesIO(server.ask("GET", f"/v1/jobs/{made}/results").body)) as archive:
        names = {member.name: member for member in archive}
        assert names["mine"].isfile() and names["file"].issym() and names["directory"].issym()
        assert "hard" not in names and "pipe" not in names and not any("/" in name for name in names)
    assert server.ask("GET", "/metrics").status == 200
    assert time.monotonic() - begin < 10
    # Its end and removal touch nothing elsewhere.
    assert server.ask("DELETE", f"/v1/jobs/{made}").status == 202
    server.wait_until_gone(made)
    assert admin.read_text().strip() == server.token and (other / "logs" / "0").is_dir()


@as_root
def test_results_are_stored_with_the_rights_of_the_team_alone(server: TenantServer) -> None:
    team = next(each for each in server.get("/v1/teams")["teams"] if each["name"] == "blue")
    ours, others = server.place / "ours", server.place / "others"
    for directory in (ours, others):
        directory.mkdir(exist_ok=True)
    os.chown(ours, team["learner_user"], team["learner_user"])

    def outcome(directory: Path, command: str) -> dict:
        store = {"id": "s", "type": "host", "path": str(directory)}
        made = server.accepted_as(
            "bob", manifest("stores", command, data_stores=[store], results="s/out", start_limit=5)
        )
        return server.wait_for(made, "COMPLETED", "FAILED")

    assert outcome(ours, "echo good > $RESULT_DIR/x")["state"] == "COMPLETED"
    assert (ours / "out" / "x").read_text() == "good\n"
    assert outcome(others, "echo bad > $RESULT_DIR/x")["code"] == "U_RESULTS"
    assert not list(others.iterdir())
    failed = outcome(ours, f"ln -s {server.data}/admin.token $RESULT_DIR/stolen")
    assert failed["state"] == "FAILED" and not (ours / "out" / "stolen").exists()
    # As a data store a directory that the team may not enter is none.
    assert "may not be entered" in outcome(server.data / "engine" / "jobs", "true")["reason"]


# The server's start


def test_tls_for_people_and_guardians(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=tesser", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    server = Server(tmp_path / "data", "--tls-certificate", str(certificate), "--tls-key", str(key)).start()
    url = f"https://127.0.0.1:{server.port}"
    client = Client(url, server.token, ca_file=certificate)
    try:
        path = tmp_path / "job.yaml"
        path.write_text("name: tls\ncommand: echo through tls\ncpus: 1\n")
        job = client.submit(path)["id"]
        assert client.wait(job, timeout=30)["state"] == "COMPLETED"  # so its guardian reached the server
        assert [line["text"] for line in client.logs(job)] == ["through tls"]
        with pytest.raises(OutOfReach):
            Client(url, server.token).me()  # an authority that it does not know
        with pytest.raises(OutOfReach):
            Client(f"http://127.0.0.1:{server.port}", server.token, patience=5).me()
        said = subprocess.run(
            [*server.words()[:1], "list", "--ids"], text=True, capture_output=True, check=True,
            env=os.environ | {"TESSER_SERVER": url, "TESSER_TOKEN": server.token, "TESSER_CA_FILE": str(certificate)},
        )  # fmt: skip
        assert said.stdout.strip() == job
        client.delete(job)
        while list(client.jobs()):
            time.sleep(0.05)
    finally:
        assert server.end() == 0


def start_of(*options: str) -> tuple[int, str]:
    words = [*Server(Path("/nowhere")).words()[:1], "server", "--listen", "127.0.0.1:0", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stderr


def test_a_server_that_cannot_be_as_it_should_says_why(tmp_path: Path) -> None:
    for text in ("5", "0-9", "9-5", "x-y", "root"):
        code, said = start_of("--data", str(tmp_path / "data"), "--learner-users", text)
        assert code == 2 and "FIRST-LAST" in said
    code, said = start_of(
        "--data", str(tmp_path / "data"), "--host-data", str(tmp_path / "absent"), "--learner-users", "same"
    )
    assert code == 2 and "absent" in said
    code, said = start_of("--data", str(tmp_path / "data"), "--tls-certificate", str(tmp_path / "x"))
    assert code == 2 and "--tls-key" in said
    if IS_ROOT:
        shut = tmp_path / "shut"
        shut.mkdir(mode=0o700)
        code, said = start_of("--data", str(shut / "data"), "--learner-users", "1900000000-1900000009")
        assert code == 2 and "--learner-users same" in said and "may not" in said


@as_root
def test_a_python_that_learners_cannot_reach_is_named_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o700)
    (shut / "python").symlink_to(sys.executable)
    monkeypatch.setenv("TESSER_PYTHON", str(shut / "python"))
    server = TenantServer()
    try:
        server.start()
        said = Path(f"{server.data}.log").read_text()
        assert f"learners cannot run {shut}/python" in said and "learners run as users from" in said
    finally:
        server.close()


def test_data_stores_lie_where_the_administrator_allows(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    (allowed / "inner").mkdir(parents=True)
    (allowed / "way-out").symlink_to("/etc")
    server = Server(tmp_path / "data", "--node", "a=1,1GiB", "--host-data", str(allowed)).start()
    try:
        for path, status in (("inner", 201), ("", 201), ("../", 422), ("way-out", 422), ("inner/../../x", 422)):
            store = {"id": "s", "type": "host", "path": f"{allowed}/{path}"}
            answer = server.submit(manifest("stores", data_stores=[store]))
            assert answer.status == status, (path, answer.body)
        log = Path(str(server.data) + ".log").read_text()
        assert not IS_ROOT or "learners run as this server's user (0)" in log
    finally:
        server.close()
