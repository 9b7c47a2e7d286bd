"""The platform's server in a process of its own: what it takes and refuses, and what it remembers when it is killed."""

from __future__ import annotations

import http.client
import io
import json
import os
import random
import signal
import socket
import subprocess
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.python.platform.server_process import SECONDS, Server, guardians, manifest, zip_of


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server") / "data").start()
    yield server
    server.close()


@pytest.fixture()
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "data").start()
    yield made
    made.close()


def test_a_job_runs_to_its_end(shared: Server) -> None:
    code = zip_of({"run.sh": "echo $1 $LEARNER_ID of $NUM_LEARNERS; echo done > $RESULT_DIR/out.txt", "d/x": "1"})
    job = shared.accepted(manifest(command="sh run.sh hello", learners=2), code)
    done = shared.wait_for(job, "COMPLETED")
    stages = ["QUEUED", "PENDING", "DEPLOYING", "DOWNLOADING", "PROCESSING", "STORING", "COMPLETED"]
    assert shared.states(job) == stages
    assert done["attempt"] == 1 and done["started"] < done["ended"]
    assert sorted(shared.log(job)) == ["hello 0 of 2", "hello 1 of 2"]
    assert shared.get(f"/v1/jobs/{job}/logs?wait=30&cursor={cursor_at_end(shared, job)}")["ended"]
    for what, name, content in (("definition", "d/x", b"1"), ("results", "out.txt", b"done\n")):
        with tarfile.open(fileobj=io.BytesIO(shared.ask("GET", f"/v1/jobs/{job}/{what}").body)) as archive:
            assert archive.extractfile(name).read() == content
    assert 'tesser_jobs{state="COMPLETED"}' in shared.ask("GET", "/metrics").body.decode()
    assert shared.ask("DELETE", f"/v1/jobs/{job}").status == 202
    shared.wait_until_gone(job)
    assert not (shared.data / "jobs" / job).exists()


def cursor_at_end(server: Server, job: str) -> str:
    return server.get(f"/v1/jobs/{job}/logs")["cursor"]


def test_a_failing_command_is_the_users_fault(shared: Server) -> None:
    job = shared.accepted(manifest(command="echo no; exit 3", restarts=0))
    failed = shared.wait_for(job, "FAILED")
    assert failed["code"].startswith("U") and "3" in failed["reason"]


def test_what_would_fail_again_is_not_started_again(shared: Server) -> None:
    job = shared.accepted(json.dumps({"name": "typo", "command": ["pyhton", "train.py"], "restarts": 3}))
    failed = shared.wait_for(job, "FAILED")
    assert failed["code"] == "U_COMMAND" and "command not found: 'pyhton'" in failed["reason"]
    assert failed["restarts"] == 0


def test_a_log_can_be_followed_while_it_grows(shared: Server) -> None:
    job = shared.accepted(manifest(command="for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done"))
    lines, cursor, ended = [], "", False
    while not ended:
        page = shared.get(f"/v1/jobs/{job}/logs?wait=10&cursor={cursor}")
        lines += [line["text"] for line in page["lines"] if not line["note"]]
        cursor, ended = page["cursor"], page["ended"]
    assert lines == [f"line {i}" for i in range(1, 6)]
    assert shared.get(f"/v1/jobs/{job}")["state"] == "COMPLETED"  # nothing final shows before the log is whole


def test_halt_and_resume_with_another_number_of_learners(shared: Server) -> None:
    job = shared.accepted(
        manifest(command="echo $NUM_LEARNERS; test $NUM_LEARNERS = 1 || sleep 60", learners=2, grace=1)
    )
    shared.wait_for(job, "PROCESSING")
    begin = time.monotonic()
    assert shared.ask("PATCH", f"/v1/jobs/{job}", {"wanted": "halt"}).json["wanted"] == "halt"
    assert time.monotonic() - begin < 1
    assert shared.ask("PATCH", f"/v1/jobs/{job}", {"wanted": "run", "learners": 1}).status == 409
    shared.wait_for(job, "HALTED")
    assert "U_SIZE" in shared.ask("PATCH", f"/v1/jobs/{job}", {"wanted": "run", "learners": 99}).error
    assert shared.ask("PATCH", f"/v1/jobs/{job}", {"wanted": "run", "learners": 1}).json["learners_wanted"] == 1
    until = time.monotonic() + SECONDS
    while shared.get(f"/v1/jobs/{job}")["state"] != "COMPLETED" and time.monotonic() < until:
        time.sleep(0.02)
    assert "RESUMED" in shared.states(job) and shared.states(job)[-1] == "COMPLETED"


def test_waiting_jobs_say_why_and_can_be_halted_and_deleted(shared: Server) -> None:
    holder = shared.accepted(manifest("holder", "sleep 60", learners=4, grace=1))
    shared.wait_for(holder, "PROCESSING")
    first, second = (shared.accepted(manifest(name, learners=2)) for name in ("first", "second"))
    until = time.monotonic() + 5
    while (found := shared.get(f"/v1/jobs/{second}"))["place_in_queue"] != 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert found["reason"] == f"needs 2 learners with 1 cpu each; none fit now; {first} comes first"
    assert "none fit now; is next" in shared.get(f"/v1/jobs/{first}")["reason"]
    nodes = shared.get("/v1/nodes")["nodes"]
    assert [node["held"]["millicpus"] for node in nodes] == [2000, 2000] and nodes[0]["jobs"] == [holder]
    assert shared.get("/v1/quota")["teams"][0]["waiting"] == 2
    shared.ask("PATCH", f"/v1/jobs/{first}", {"wanted": "halt"})
    shared.wait_for(first, "HALTED")
    for job in (holder, first, second):
        assert shared.ask("DELETE", f"/v1/jobs/{job}").status == 202
    for job in (holder, first, second):
        shared.wait_until_gone(job)


def test_the_same_key_gives_the_same_job(shared: Server) -> None:
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(shared.submit(manifest("same"), key="key-1"))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["id"] for answer in answers}) == 1
    assert len([1 for path in (shared.data / "jobs").iterdir() if path.name.startswith("same-")]) == 1
    assert "another submission" in shared.submit(manifest("other"), key="key-1").error


def hostile_zips() -> dict[str, tuple[bytes, str]]:
    link = io.BytesIO()
    with zipfile.ZipFile(link, "w") as archive:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    good = zip_of({"a": "x" * 10_000})
    return {
        "up": (zip_of({"../../evil": "x"}), "leads out"),
        "hidden": (zip_of({"a/../../../evil": "x"}), "leads out"),
        "absolute": (zip_of({"/tmp/evil": "x"}), "relative"),
        "windows": (zip_of({"..\\evil": "x"}), "leads out"),
        "link": (link.getvalue(), "is a link"),
        "file and directory": (zip_of({"a": "x", "a/b": "y"}), "as a file and as a directory"),
        "no zip": (b"PK no zip at all", "ZIP"),
        "empty": (b"", "ZIP"),
        "cut": (good[: len(good) // 2], "ZIP"),
    }


@pytest.mark.parametrize("kind", hostile_zips())
def test_hostile_zips_are_refused_and_leave_nothing(shared: Server, kind: str) -> None:
    code, words = hostile_zips()[kind]
    answer = shared.submit(manifest("zip"), code)
    assert answer.status == 422 and words in answer.error
    assert not list((shared.data / "incoming").iterdir())
    assert not [path for path in (shared.data / "jobs").iterdir() if path.name.startswith("zip-")]
    assert not Path("/tmp/evil").exists() and not list(shared.data.glob("evil"))


def test_what_cannot_be_is_refused_at_once(shared: Server) -> None:
    def refusal(text: str, **options: object) -> str:
        answer = shared.submit(text, **options)
        assert answer.status in (400, 413, 422), answer.body
        return answer.error

    assert "4 learners of this size fit" in refusal(manifest(learners=5))
    assert "U_SIZE" in refusal(manifest(cpus=3)) and "largest" in refusal(manifest(cpus=3))
    assert "line 2" in refusal("name: x\ncommand: [\n") or "line 3" in refusal("name: x\ncommand: [\n")
    assert "did you mean 'memory'" in refusal("name: x\ncommand: y\nmemmory: 1GiB\n")
    assert "TOKEN" in refusal('{"name": "x", "command": "y", "environment": {"A": "${TOKEN}"}}')
    assert "U_SECRETS" in refusal(manifest(), secrets={"a": 1})
    assert "U_REQUEST" in shared.ask("POST", "/v1/jobs", b"x").error
    for path, body in (("/v1/jobs/none", {"wanted": "halt"}), ("/v1/jobs/" + "x" * 300, {"wanted": "halt"})):
        assert shared.ask("PATCH", path, body).status == 404
    job = shared.accepted(manifest())
    for body in (b"", b"{", b"[]", b'{"wanted": "fly"}', b'{"wanted": "halt", "x": 1}', b'{"wanted": 1}', b"\xff" * 9):
        assert shared.ask("PATCH", f"/v1/jobs/{job}", body).status == 400
    for query in ("state=NONE", "limit=0", "limit=x", "after=-1"):
        assert shared.ask("GET", f"/v1/jobs?{query}").status == 400
    for query in ("cursor=zzz", "wait=31", "limit=0", "learner=-1"):
        assert shared.ask("GET", f"/v1/jobs/{job}/logs?{query}").status == 400


def test_tokens_open_what_is_theirs_alone(shared: Server) -> None:
    job = shared.accepted(manifest("mine"))
    own = (shared.data / "jobs" / job / "token").read_text()
    other = shared.accepted(manifest("theirs"))
    assert shared.ask("GET", "/v1/jobs", token="").status == 401
    assert shared.ask("GET", "/v1/jobs", token="x" * 32).status == 401
    assert shared.ask("GET", "/v1/jobs", token=own).status == 403
    assert shared.ask("POST", f"/v1/guardian/{other}/lease", {"holder": "me"}, token=own).status == 403
    assert shared.ask("POST", f"/v1/guardian/{job}/lease", {"holder": "me"}).status == 403
    assert shared.ask("GET", "/v1/health", token="").json["status"] == "ok"
    for name in ("token", "secrets.json"):
        assert os.stat(shared.data / "jobs" / job / name).st_mode & 0o777 == 0o600
    assert os.stat(shared.data / "admin.token").st_mode & 0o777 == 0o600
    assert shared.token not in Path(str(shared.data) + ".log").read_text()


def test_a_second_server_is_refused(shared: Server) -> None:
    second = Server(shared.data)
    done = subprocess.run(second.words(), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2 and "another tesser server" in done.stderr


def test_jobs_go_on_while_the_server_is_away(server: Server) -> None:
    job = server.accepted(manifest(command="for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done", learners=2))
    server.wait_for(job, "PROCESSING")
    before = guardians(server.data)
    assert len(before) == 1
    server.restart(signal.SIGKILL)
    server.wait_for(job, "PROCESSING")
    server.restart(signal.SIGTERM)
    assert guardians(server.data) == before  # the same process, adopted
    done = server.wait_for(job, "COMPLETED")
    assert done["attempt"] == 1
    assert sorted(server.log(job)) == sorted(str(i) for i in range(1, 7) for _ in range(2))


def test_a_killed_guardian_is_followed_by_another_that_adopts_its_learners(server: Server) -> None:
    job = server.accepted(manifest(command="for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done"))
    server.wait_for(job, "PROCESSING")
    (first,) = guardians(server.data)
    os.kill(first, signal.SIGKILL)
    done = server.wait_for(job, "COMPLETED")
    assert done["attempt"] == 1 and server.log(job) == [str(i) for i in range(1, 7)]
    stopped = server.accepted(manifest(command="sleep 8"))
    server.wait_for(stopped, "PROCESSING")
    (second,) = guardians(server.data)
    os.kill(second, signal.SIGSTOP)  # lives, but does not renew its lease
    assert server.wait_for(stopped, "COMPLETED")["attempt"] == 1
    assert not Path(f"/proc/{second}").exists()


def test_an_accepted_job_is_there_after_the_server_was_killed(server: Server) -> None:
    accepted: list[str] = []
    answers: dict[str, str] = {}
    over = threading.Event()

    def submit(number: int) -> None:
        count = 0
        while not over.is_set():
            count += 1
            key = f"{number}-{count}"
            while not over.is_set():  # as the client does: the same key until there is an answer
                try:
                    answer = server.submit(manifest("kill", cpus=2, learners=2), zip_of({"a": "b"}), key=key)
                except (OSError, http.client.HTTPException):
                    time.sleep(0.02)
                    continue
                if answer.status == 201:
                    accepted.append(answer.json["id"])
                    answers[key] = answer.json["id"]
                    break

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    chance = random.Random(20261129)
    for _ in range(6):
        time.sleep(chance.uniform(0.1, 0.4))
        server.restart(signal.SIGKILL)
    over.set()
    for thread in threads:
        thread.join()
    server.restart(signal.SIGKILL)
    listed = [job["id"] for job in server.get("/v1/jobs?limit=1000")["jobs"]]
    assert len(accepted) > 5 and set(accepted) <= set(listed)
    assert len(listed) - len(set(answers.values())) <= 3  # those whose answers were lost at the end
    volumes = {path.name for path in (server.data / "jobs").iterdir()}
    assert volumes == set(listed)  # nothing half made is left


def test_a_port_that_the_system_chose_stays(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.port = 0
    addresses = []
    for _ in range(2):
        words = server.words()
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        addresses.append(process.stdout.readline())
        process.kill()
        process.wait(SECONDS)
        process.stdout.close()
    assert addresses[0].startswith("server at http://127.0.0.1:") and addresses[1] == addresses[0]
    port = int(addresses[0].rsplit(":", 1)[1])
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with open(tmp_path / "log", "w") as log:
            process = subprocess.Popen(server.words(), stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout.readline() not in ("", addresses[0]), (tmp_path / "log").read_text()
        process.kill()
        process.wait(SECONDS)
        process.stdout.close()


def test_a_server_with_a_broken_store_says_so(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "store.sqlite").write_bytes(b"x" * 5000)
    done = subprocess.run(Server(data).words(), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1 and "store.sqlite" in done.stderr and "damaged" in done.stderr
    wrong = subprocess.run([*Server(data).words(), "--node", "a=x"], capture_output=True, text=True, timeout=SECONDS)
    assert wrong.returncode == 2 and "NAME=CPUS,MEMORY" in wrong.stderr
