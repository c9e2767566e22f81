"""Jobs of several users on one server: each runs as its owner, and nobody is led into another's files."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MACHINE
from tests.jobs.engines.local.conftest import until
from tests.jobs.test_job import NASTY
from tests.other_users import everybodys_gpuyard
from tests.share.conftest import needs_root
from tests.share.test_users import Server, accounts, server

__all__ = ["accounts", "server"]
pytestmark = [needs_root, MACHINE]


class Queue:
    """One user's jobs on a server that is another's."""

    def __init__(self, server: Server, user: str) -> None:
        self._server = server
        self.user = user
        self.home = server.directory.parent / f"home-of-{user}"
        self.home.mkdir(exist_ok=True)
        shutil.chown(self.home, user, user)

    def run(self, *arguments: str, user: str | None = None) -> tuple[int, str, str]:
        gpuyard = (everybodys_gpuyard().python, "-m", "gpuyard")
        environment = (f"GPUYARD_HOME={self.home}", "GPUYARD_ENGINE=local")
        process = self._server.start_program(
            user or self.user, "env", *environment, *gpuyard, *arguments
        )
        said, complained = process.communicate(timeout=120)
        return process.returncode, said, complained

    def submit(self, *arguments: str) -> str:
        status, said, complained = self.run("submit", *arguments)
        assert (status, complained) == (0, "")
        return said.strip()

    def state(self, handle: str) -> str:
        return str(json.loads(self.run("status", handle, "--json")[1])["state"])


@pytest.fixture
def queues(server: Server) -> Iterator[tuple[Queue, Queue]]:
    found = (Queue(server, server.users[0]), Queue(server, server.users[1]))
    yield found
    for queue in found:
        status, said, complained = queue.run("queue", "--json")
        assert status == 0, complained
        listed = json.loads(said)["jobs"]
        handles = [job["handle"] for job in listed]
        if handles:
            queue.run("cancel", *handles)
            queue.run("wait", *handles)


def test_a_job_runs_as_its_owner_and_waits_for_the_jobs_of_others(
    queues: tuple[Queue, Queue],
) -> None:
    one, other = queues
    hold = one.submit("--gpus", "8", "--", "sh", "-c", "id -un; exec sleep 600")
    until(lambda: one.state(hold) == "running")
    handle = other.submit("--gpus", "8", "--name", 7 * NASTY, "--", "id", "-un")
    assert hold == handle == "local://1"  # each has a queue of their own
    until(lambda: "in the queue for GPUs" in other.run("status", handle)[1])
    assert one.run("logs", hold)[1] == f"{one.user}\n"
    assert one.run("cancel", hold)[0] == 0
    assert other.run("wait", handle)[0] == 0
    assert other.run("logs", handle)[1] == f"{other.user}\n"
    status, said, _ = other.run("logs", "local://1", user=one.user)
    assert (status != 0, said) == (True, "")


def test_root_is_not_led_through_a_link_to_what_only_root_may_read(
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
    status, said, complained = queue.run("logs", handle, user="root")
    assert (status, said) == (1, "")
    assert "it is a link" in complained
