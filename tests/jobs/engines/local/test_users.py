"""Jobs of several users on one server: each runs as its owner, and no user reaches the files of another."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import USERS
from tests.jobs.engines.local.conftest import until
from tests.jobs.test_job import NASTY
from tests.other_users import public_gpuyard
from tests.share.conftest import needs_root
from tests.share.test_users import Server, accounts, server

__all__ = ["accounts", "server"]
pytestmark = [needs_root, USERS]


class Queue:
    """One user's jobs on a shared server."""

    def __init__(self, server: Server, user: str) -> None:
        self._server = server
        self.user = user
        self.home = server.directory.parent / f"home-of-{user}"
        self.home.mkdir(exist_ok=True)
        shutil.chown(self.home, user, user)

    def run(self, *arguments: str, user: str | None = None) -> tuple[int, str, str]:
        gpuyard = (public_gpuyard().python, "-m", "gpuyard")
        environment = (f"GPUYARD_HOME={self.home}", "GPUYARD_ENGINE=local")
        process = self._server.start_program(
            user or self.user, "env", *environment, *gpuyard, *arguments
        )
        stdout, stderr = process.communicate(timeout=120)
        return process.returncode, stdout, stderr

    def submit(self, *arguments: str) -> str:
        status, stdout, stderr = self.run("submit", *arguments)
        assert status == 0, stderr
        return stdout.strip()

    def state(self, handle: str) -> str:
        return str(json.loads(self.run("status", handle, "--json")[1])["state"])

    def kill_runner(self) -> None:
        (lock,) = self.home.glob("jobs/local/*/runner.lock")
        os.kill(int(lock.read_text()), signal.SIGKILL)

    def cancel_all(self) -> None:
        status, stdout, stderr = self.run("queue", "--json")
        assert status == 0, stderr
        handles = [job["handle"] for job in json.loads(stdout)["jobs"]]
        if handles:
            self.run("cancel", *handles)
            self.run("wait", *handles)


@pytest.fixture
def queues(server: Server) -> Iterator[tuple[Queue, Queue]]:
    queues = (Queue(server, server.users[0]), Queue(server, server.users[1]))
    yield queues
    for queue in queues:
        queue.cancel_all()


def test_a_job_runs_as_its_owner_and_waits_for_the_jobs_of_others(
    queues: tuple[Queue, Queue],
) -> None:
    first, second = queues
    hold = first.submit("--gpus", "8", "--", "sh", "-c", "id -un; exec sleep 600")
    until(lambda: first.state(hold) == "running")
    handle = second.submit("--gpus", "8", "--name", 7 * NASTY, "--", "id", "-un")
    assert hold == handle == "local://1"  # each user has a separate queue
    until(lambda: "in the queue for GPUs" in second.run("status", handle)[1])
    assert first.run("logs", hold)[1] == f"{first.user}\n"
    assert first.run("cancel", hold)[0] == 0
    assert second.run("wait", handle)[0] == 0
    assert second.run("logs", handle)[1] == f"{second.user}\n"
    status, stdout, _ = second.run("logs", "local://1", user=first.user)
    assert (status != 0, stdout) == (True, "")


def test_root_does_not_follow_a_link_in_place_of_a_log(
    queues: tuple[Queue, Queue], tmp_path: Path
) -> None:
    queue = queues[0]
    handle = queue.submit("--", "true")
    assert queue.run("wait", handle)[0] == 0
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (log,) = queue.home.glob("jobs/local/*/1/1/log")
    log.unlink()
    log.symlink_to(secret)
    status, stdout, stderr = queue.run("logs", handle, user="root")
    assert (status, stdout) == (1, "")
    assert str(log) in " ".join(stderr.split())
