"""Announced jobs of several users and leases share one decision; announcements of anybody are checked."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import UserMistake
from gpuyard.report.answers.share.leases import who_answer
from gpuyard.share.announcements import MAX_START_SECONDS
from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller
from gpuyard.share.clock import Clock
from gpuyard.share.models import LeaseRequest, NoneFree, QueueStatus, ShareState
from gpuyard.share.schedule import (
    MAX_JOBS,
    MAX_SPEEDS,
    JobAnnouncement,
    decode_announcements,
    decode_runner,
)
from gpuyard.share.views import who_document
from gpuyard.share.wire import MAX_REQUEST_BYTES
from tests.jobs.engines.local.conftest import until
from tests.share.conftest import acting_as

GOOD = JobAnnouncement("a", "local://1", "waiting", 1, 2, 2, (1.0, 2.0), 60.0, 0.0)
_ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.floats())


def job(id_: str, least: int, most: int | None = None, **more: Any) -> JobAnnouncement:
    most = most or least
    speeds = tuple(float(count) for count in range(least, most + 1))
    fields = {"phase": "waiting", "submitted": float(ord(id_)), **more}
    return JobAnnouncement(
        id_, f"local://{id_}", min_gpus=least, max_gpus=most, requested_gpus=most, speeds=speeds,
        remaining_work=3600.0, **fields,
    )  # fmt: skip


class Desk:
    """Brokers of several users on one share."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.locks = ExitStack()

    def act(self, uid: int) -> Broker:
        return acting_as(self.broker, Caller(uid, uid, os.getpid()))

    def ask(self, uid: int, count: int, **more: Any) -> QueueStatus:
        status, lock = self.act(uid).ask(LeaseRequest(count=count, **more))
        self.locks.callback(os.close, lock)
        return status


@pytest.fixture
def desk(share: Path) -> Iterator[Desk]:
    desk = Desk(Broker(share))
    with desk.locks:
        yield desk
    desk.broker.close()


def test_the_longest_announcement_fits_into_a_request() -> None:
    gpus = MAX_SPEEDS // MAX_JOBS
    longest = JobAnnouncement(
        "1" * 36, "local://" + "m" * 40, "starting", 1, gpus, gpus, (12345.6,) * gpus, 1234567890.123456,
        1800000000.123456, gpus, 31536000.123456, 1800000000.123456, -1000, True, 1234.567890123,
        1800000000.123456, 12345678.9, -1.2345678901234567, False,
    )  # fmt: skip
    assert len(json.dumps([asdict(longest)] * MAX_JOBS)) < 0.99 * MAX_REQUEST_BYTES


def test_gpus_of_a_job_that_was_told_to_start_are_kept_for_it(desk: Desk) -> None:
    assert desk.act(1001).schedule("1", [job("a", 4, 8)]).starts == {"a": 8}
    with pytest.raises(NoneFree):
        desk.ask(1002, 1, waits=False)
    started = desk.ask(1001, 8, job="a")
    assert len(started.lease.gpus) == 8


def test_nobody_starts_on_the_grant_of_another_user(desk: Desk) -> None:
    assert desk.act(1001).schedule("1", [job("a", 8)]).starts == {"a": 8}
    assert not desk.ask(1002, 8, job="a").lease.held


def test_a_job_starts_only_if_the_share_said_so(desk: Desk) -> None:
    """Whatever its runner claims, it neither keeps GPUs from others nor passes those that wait."""
    claimed = job("a", 8, phase="starting", gpus=8)
    assert desk.act(1001).schedule("1", [claimed]).starts == {}
    held = desk.ask(1002, 1, waits=False)
    waiting = desk.ask(1003, 8)
    assert desk.ask(1001, 8, job="a").position == 2
    assert held.lease.held and waiting.position == 1


def test_a_job_starts_with_one_request_that_is_no_larger(desk: Desk) -> None:
    desk.ask(1002, 7)
    assert desk.act(1001).schedule("1", [job("a", 1)]).starts == {"a": 1}
    waiting = desk.ask(1003, 1)
    assert not waiting.lease.held
    assert not desk.ask(1001, 2, job="a").lease.held
    assert desk.act(1003).claim(waiting.lease.id).lease.held


@pytest.mark.parametrize("phase", ["waiting", "starting"])
def test_a_job_that_does_not_start_loses_its_place(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """Otherwise, a runner could keep all GPUs from everyone without a lease."""
    runner = desk.act(1001)
    assert runner.schedule("1", [job("a", 8)]).starts == {"a": 8}
    waiting = desk.ask(1002, 1)
    (withheld,) = desk.act(1003).state().withheld
    assert (withheld.gpus, withheld.name) == (8, "local://a") and "start" in withheld.reason
    again = [job("a", 8, phase=phase, gpus=8)]
    runner.schedule("1", again)  # does not keep them longer
    assert not desk.act(1002).claim(waiting.lease.id).lease.held
    boot, wall = Clock().boot() + MAX_START_SECONDS, Clock().wall() + MAX_START_SECONDS
    monkeypatch.setattr(Clock, "boot", lambda _: boot)
    monkeypatch.setattr(Clock, "wall", lambda _: wall)
    assert desk.act(1002).claim(waiting.lease.id).lease.held
    assert runner.schedule("1", again).starts == {}


def test_a_claimed_time_of_submission_gives_no_earlier_place(desk: Desk) -> None:
    held = desk.ask(1002, 8)
    desk.act(1001).schedule("1", [job("b", 8)])
    desk.act(1003).schedule("1", [job("a", 8, submitted=0.0)])
    desk.locks.close()
    assert desk.act(1002).finish(held.lease.id, childless=False)
    assert desk.act(1003).schedule("1", [job("a", 8, submitted=0.0)]).starts == {}
    assert desk.act(1001).schedule("1", [job("b", 8)]).starts == {"b": 8}


def test_a_job_that_waits_for_its_own_user_keeps_no_gpus_from_others(desk: Desk) -> None:
    desk.ask(1001, 1)
    desk.act(1001).schedule("1", [job("a", 8)])

    def ask_again() -> dict[str, int]:
        assert desk.act(1001).schedule("1", [job("a", 8)]).starts == {}
        return dict(desk.act(1002).schedule("1", [job("b", 4)]).starts)

    assert until(ask_again, "a start") == {"b": 4}
    desk.ask(1002, 4, job="b")
    waiting = desk.ask(1003, 3)
    until(lambda: desk.act(1003).claim(waiting.lease.id).lease.held, "its lease")


def test_a_waiting_request_has_its_place_before_a_later_job(desk: Desk) -> None:
    desk.ask(1001, 4)
    waiting = desk.ask(1002, 8)
    answer = desk.act(1003).schedule("1", [job("z", 1, submitted=4e9)])
    assert answer.starts == {}
    (withheld,) = desk.act(1003).state().withheld
    assert (withheld.gpus, withheld.needs) == (4, 8)
    assert waiting.lease.id in withheld.name


@pytest.mark.parametrize("assumed", [True, False])
def test_a_start_that_rests_on_an_assumed_length_is_marked(desk: Desk, assumed: bool) -> None:
    runs = job("a", 5, assumed_length=assumed)
    assert desk.act(1001).schedule("1", [runs]).starts == {"a": 5}
    desk.ask(1001, 5, job="a")
    desk.act(1001).schedule("1", [replace(runs, phase="running", gpus=5)])

    def find_withheld() -> ShareState | None:
        desk.act(1002).schedule("1", [job("b", 8)])
        state = desk.act(1003).state()
        return state if state.withheld else None

    state = until(find_withheld, "a decision")
    document = who_document(desk.broker.store.config, state, Clock(), {})
    assert [withheld.assumed for withheld in state.withheld] == [assumed]
    assert document["withheld"][0]["expected"] is not None
    assert ("assumed" in str(who_answer(document).parts)) is assumed


def test_jobs_of_two_users_never_get_more_than_is_free(desk: Desk) -> None:
    desk.ask(1001, 3)
    first = desk.act(1002).schedule("1", [job("a", 1, 4), job("b", 2)]).starts
    second = desk.act(1003).schedule("1", [job("c", 1, 8), job("d", 1)]).starts
    given = [*first.values(), *second.values()]
    assert first == {"a": 4}
    assert sum(given) <= 5


def test_a_priority_does_not_outrank_other_users(desk: Desk) -> None:
    held = desk.ask(1001, 8)
    desk.act(1002).schedule("1", [job("a", 8)])
    later = [job("b", 8, priority=1000), job("c", 8)]
    desk.act(1003).schedule("1", later)
    desk.locks.close()
    assert desk.act(1001).finish(held.lease.id, childless=False)
    assert desk.act(1003).schedule("1", later).starts == {}
    assert desk.act(1002).schedule("1", [job("a", 8)]).starts == {"a": 8}


@given(st.dictionaries(st.sampled_from(sorted(asdict(GOOD))), _ANY))
def test_an_announcement_is_checked_whatever_it_contains(changes: dict[str, Any]) -> None:
    try:
        (decoded,) = decode_announcements([{**asdict(GOOD), **changes}])
    except UserMistake:
        return
    assert 1 <= decoded.min_gpus <= decoded.requested_gpus <= decoded.max_gpus <= 1024
    numbers = (decoded.remaining_work, decoded.submitted, *decoded.speeds)
    assert all(0 <= number <= 1e15 for number in numbers)


@pytest.mark.parametrize("jobs", [None, {}, [None], [asdict(GOOD)] * 2, [asdict(GOOD)] * 101])
def test_a_list_of_jobs_is_bounded_and_names_each_once(jobs: Any) -> None:
    with pytest.raises(UserMistake):
        decode_announcements(jobs)


@pytest.mark.parametrize("runner", ["", "../x", "A", "0" * 17, 3, None])
def test_a_runner_cannot_choose_a_path(runner: Any) -> None:
    with pytest.raises(UserMistake):
        decode_runner(runner)
