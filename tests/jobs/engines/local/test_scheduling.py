"""One decision for all users: three accounts, one service, and a policy that sees everybody's jobs and leases."""

import json
from collections.abc import Iterator

import pytest

from tests.conftest import USERS
from tests.jobs.engines.local.conftest import until
from tests.jobs.engines.local.test_users import Queue
from tests.share.conftest import needs_root
from tests.share.test_users import Server, accounts, server

__all__ = ["accounts", "server"]
pytestmark = [needs_root, USERS]
PRINT_GPUS = ("sh", "-c", "echo $GPUYARD_GPUS; exec sleep 600")


@pytest.fixture
def queues(server: Server) -> Iterator[tuple[Queue, Queue]]:
    """The queues of the first and the third user; the second leases."""
    queues = (Queue(server, server.users[0]), Queue(server, server.users[2]))
    yield queues
    for queue in queues:
        queue.cancel_all()


@pytest.mark.parametrize("policy", ["min-time", pytest.param("max-jobs", marks=pytest.mark.soak)])
def test_a_range_starts_on_what_others_leave_and_idle_gpus_are_not_blocked(
    server: Server, queues: tuple[Queue, Queue], policy: str
) -> None:
    first, third = queues
    server.run("root", "queue", "policy", policy)
    server.start_lease(server.users[1], "4")
    job = first.submit("--gpus", "1..3", "--", *PRINT_GPUS)
    until(lambda: first.state(job) == "running", "the start beside another user's lease")
    assert first.run("logs", job)[1] == "3\n"
    large = first.submit("--gpus", "8", "--", "true")
    until(lambda: large in str(server.who()["jobs"]), "the announcement of a job that cannot start")
    server.run(third.user, "lease", "1", "--now", "--", "true")


def test_gpus_that_fifo_withholds_are_shown_with_the_reason(
    server: Server, queues: tuple[Queue, Queue]
) -> None:
    first, third = queues
    _, lease = server.start_lease(server.users[1], "4", "--for", "1h")
    large = first.submit("--gpus", "8", "--", "sleep", "600")
    (withheld,) = until(lambda: server.who(third.user)["withheld"], "GPUs that are withheld")
    assert (withheld["gpus"], withheld["needs"]) == (4, 8)
    assert (withheld["user"], withheld["for"]) == (first.user, large)
    assert "fifo" in withheld["reason"]
    assert withheld["expected"] is not None
    shown = " ".join(server.run(third.user, "who")[0].split())
    assert f"withheld for {large} of {first.user}" in shown
    error = " ".join(
        server.run(third.user, "lease", "1", "--now", "--", "true", status=75)[1].split()
    )
    assert f"{large} of {first.user}" in error
    server.run("root", "release", lease)
    until(lambda: first.state(large) == "running", "the start of the job they were withheld for")
    assert server.who()["withheld"] == []


@pytest.mark.soak
def test_fair_share_is_between_people(server: Server, queues: tuple[Queue, Queue]) -> None:
    first, third = queues
    server.run("root", "queue", "policy", "fair-share")
    _, lease = server.start_lease(server.users[1], "8")
    many = [first.submit("--gpus", "4", "--", "sleep", "600") for _ in range(3)]
    own = third.submit("--gpus", "4", "--priority", "-1000", "--", "sleep", "600")
    until(lambda: len(server.who()["jobs"]) == 4, "the announcements of both users")
    server.run("root", "release", lease)
    until(lambda: third.state(own) == "running", "the start of the job of the other person")
    until(lambda: [first.state(job) for job in many].count("running") == 1)


def test_only_admins_set_the_policy_and_everyone_sees_it(
    server: Server, queues: tuple[Queue, Queue]
) -> None:
    first, admin = queues
    status, _, error = first.run("queue", "policy", "min-time")
    assert (status, admin.user in error) == (1, True)
    assert admin.run("queue", "policy", "min-time")[0] == 0
    assert json.loads(first.run("queue", "policy", "--json")[1])["policy"] == "min-time"


@pytest.mark.soak
def test_a_dead_runners_jobs_stop_counting(server: Server, queues: tuple[Queue, Queue]) -> None:
    first, third = queues
    server.start_lease(server.users[1], "4")
    first.submit("--gpus", "8", "--", "true")
    until(lambda: server.who()["withheld"], "GPUs that are withheld")
    first.kill_runner()
    until(lambda: server.who()["withheld"] == [], "the end of a dead runner's announcement")
    server.run(third.user, "lease", "4", "--now", "--", "true")
