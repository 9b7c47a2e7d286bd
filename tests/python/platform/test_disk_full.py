"""A disk that fills up under a server and its jobs: nothing that was accepted is lost, and there is a way out."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.python.platform.server_process import Server, manifest

SECONDS = 30


@pytest.fixture()
def server(tmp_path: Path) -> Iterator[Server]:
    """One whose data lies on a file system of 24 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tesser", data], check=True)
    try:
        made = Server(data).start()
        yield made
        made.close()
    finally:
        subprocess.run(["umount", "--lazy", data], check=True)


def fill(server: Server) -> Path:
    """Takes what is left of the disk."""
    path = server.data / "filler"
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(b"\1" * 65536) == 65536:
                pass
            while file.write(b"\1"):
                pass
        except OSError:
            pass
    return path


def test_a_full_disk_refuses_new_jobs_and_loses_none(server: Server) -> None:
    goes_on = server.accepted(
        manifest("goes-on", "echo begun; while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.05; done; echo end")
    )
    until = time.monotonic() + SECONDS
    while server.log(goes_on) != ["begun"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    filler = fill(server)
    refused = server.submit(manifest("refused"))
    assert refused.status == 503, refused.body
    assert "No space left on device" in refused.error, refused.error
    assert [job["id"] for job in server.get("/v1/jobs")["jobs"]] == [goes_on]
    (server.data / "jobs" / goes_on / "state" / "end").touch()
    time.sleep(1)  # its learner ends, and has little place to say so
    filler.unlink()
    done = server.wait_for(goes_on, "COMPLETED")
    assert done["attempt"] == 1 and server.log(goes_on) == ["begun", "end"]
    assert server.wait_for(server.accepted(manifest("later")), "COMPLETED")


def test_a_job_that_fills_the_disk_can_be_deleted(server: Server) -> None:
    greedy = server.accepted(manifest("greedy", "cat /dev/zero > $RESULT_DIR/zeros; sleep 60", grace=1))
    until = time.monotonic() + SECONDS
    while os.statvfs(server.data).f_bavail > 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert server.submit(manifest("refused")).status == 503
    answer = server.ask("DELETE", f"/v1/jobs/{greedy}")
    assert answer.status == 202, answer.body
    server.wait_until_gone(greedy)
    assert server.wait_for(server.accepted(manifest("later")), "COMPLETED")
