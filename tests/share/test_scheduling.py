"""Announced jobs of several users and leases share one decision; announcements of anybody are checked."""

import json
import math
import os
import time
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
from gpuyard.share import scheduling
from gpuyard.share.announcements import MAX_START_SECONDS
from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller
from gpuyard.share.clock import Clock
from gpuyard.share.config import Rules
from gpuyard.share.models import (
    LeaseRequest,
    NoneFree,
    QueueStatus,
    ReservationRequest,
    ShareState,
)
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
    fields = {"phase": "waiting", "submitted": float(ord(id_)), "remaining_work": 3600.0, **more}
    return JobAnnouncement(
        id_, f"local://{id_}", min_gpus=least, max_gpus=most, requested_gpus=most, speeds=speeds,
        **fields,
    )  # fmt: skip


class Desk:
    """Brokers of several users on one share."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.locks = ExitStack()

    def act(self, uid: int) -> Broker:
        return acting_as(self.broker, Caller(uid, uid, os.getpid()))

    def reserve(self, uid: int, *gpus: int, minutes: float = 0.0) -> None:
        """Reserve these GPUs for two hours, starting in so many minutes."""
        start = time.time() + 60 * minutes
        self.act(uid).reserve(ReservationRequest(len(gpus), start, start + 7200, gpus))

    def ask(self, uid: int, count: int, **more: Any) -> QueueStatus:
        status, lock = self.act(uid).ask(LeaseRequest(count=count, **more))
        self.locks.callback(os.close, lock)
        return status


@pytest.fixture
def desk(share: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(scheduling, "_MAX_TIME_SHARE", math.inf)  # each change is decided at once
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


def test_a_request_for_a_gpu_that_is_in_use_keeps_no_other_gpu(desk: Desk) -> None:
    desk.ask(1001, 2, gpus=(0, 1), seconds=86400.0)
    desk.ask(1001, 1, gpus=(0,))
    desk.ask(1002, 2, gpus=(0, 2))
    assert desk.act(1003).schedule("1", [job("a", 6)]).starts == {"a": 6}


def test_a_request_that_is_first_keeps_the_idle_gpus_that_it_names(desk: Desk) -> None:
    desk.ask(1001, 1, gpus=(0,), seconds=86400.0)
    waiting = desk.ask(1002, 2, gpus=(0, 1))
    assert desk.act(1003).schedule("1", [job("a", 1, 8)]).starts == {"a": 6}
    (kept,) = (each for each in desk.act(1003).state().withheld if each.needs == 2)
    assert (kept.gpus, kept.name) == (1, f"lease {waiting.lease.id}")


def test_a_job_that_idle_gpus_do_not_help_keeps_them_from_nobody(desk: Desk) -> None:
    """Four GPUs are reserved before the first job would end, and somebody holds the others."""
    desk.reserve(1001, 0, 1, 2, 3, minutes=30)
    desk.ask(1002, 3, gpus=(5, 6, 7), seconds=86400.0)
    long = job("a", 2, seconds=3600.0)
    assert desk.act(1003).schedule("1", [long]).starts == {}
    (kept,) = desk.act(1003).state().withheld
    assert (kept.gpus, kept.name) == (1, "local://a"), "the GPU that nobody has reserved"
    assert desk.act(1004).schedule("1", [job("b", 4, seconds=600.0)]).starts == {"b": 4}


def test_two_jobs_do_not_start_on_the_one_gpu_that_both_can_use(desk: Desk) -> None:
    desk.reserve(1001, *range(7), minutes=30)
    first = desk.act(1002).schedule("1", [job("a", 1, seconds=3600.0)]).starts
    both = [job("b", 1, seconds=3600.0), job("c", 1, seconds=3600.0)]
    second = desk.act(1003).schedule("1", both).starts
    assert (first, second) == ({"a": 1}, {})


def test_jobs_of_one_runner_do_not_start_on_the_same_gpu(desk: Desk) -> None:
    desk.reserve(1001, *range(7), minutes=30)
    both = [job("b", 1, seconds=3600.0), job("c", 1, seconds=3600.0)]
    assert desk.act(1003).schedule("1", both).starts == {"b": 1}


def test_a_job_starts_on_reserved_and_other_gpus_together(desk: Desk) -> None:
    desk.reserve(1001, 0, 1, 2, 3)
    held = desk.ask(1002, 2)
    assert desk.act(1001).schedule("1", [job("a", 6, 8)]).starts == {"a": 6}
    assert desk.act(1001).schedule("2", [job("b", 1)]).starts == {}
    started = desk.ask(1001, 6, job="a")
    assert set(started.lease.gpus) == set(range(8)) - set(held.lease.gpus)


def test_a_drained_gpu_is_not_counted_although_its_user_reserved_it(desk: Desk) -> None:
    desk.reserve(1001, 0)
    desk.broker.drain((0,), None)
    assert desk.act(1001).schedule("1", [job("a", 1), job("b", 7)]).starts == {"a": 1}


def test_a_quota_counts_jobs_that_were_told_to_start(desk: Desk) -> None:
    desk.broker.set_rules(Rules(max_gpus_per_user=2))
    runner = desk.act(1001)
    assert runner.schedule("1", [job("a", 2)]).starts == {"a": 2}
    starting = job("a", 2, phase="starting", gpus=2)
    answer = runner.schedule("1", [starting, job("b", 1)])
    assert answer.starts == {}
    assert answer.reasons["b"].startswith("user ") and "quota" in answer.reasons["b"]
    assert desk.act(1002).schedule("1", [job("c", 2)]).starts == {"c": 2}


def test_a_job_is_not_stopped_to_grow_beyond_its_quota(desk: Desk) -> None:
    often = Rules(job_policy="min-time", resize_seconds=0.1)
    desk.broker.set_rules(replace(often, max_gpus_per_user=4))
    waits = job("a", 1, 8, elastic=True)
    assert desk.act(1001).schedule("1", [waits]).starts == {"a": 4}
    desk.ask(1001, 4, job="a")
    runs = replace(waits, phase="running", gpus=4)
    assert desk.act(1001).schedule("1", [runs]).resizes == {}
    desk.broker.set_rules(often)
    again = until(lambda: desk.act(1001).schedule("1", [runs]).resizes, "a resize")
    assert again == {"a": 8}


def test_a_job_is_not_stopped_for_gpus_that_nobody_gets(desk: Desk) -> None:
    """Four GPUs are reserved in half an hour: neither does a job grow onto them, nor does one make room for another."""
    desk.broker.set_rules(Rules(job_policy="min-time"))
    desk.reserve(1009, 0, 1, 2, 3, minutes=30)
    desk.ask(1002, 2, gpus=(6, 7), seconds=86400.0)
    long = job("a", 1, 8, elastic=True, seconds=3600.0)
    assert desk.act(1001).schedule("1", [long]).starts == {"a": 2}
    desk.ask(1001, 2, job="a", seconds=3600.0)
    runs = replace(long, phase="running", gpus=2)
    assert desk.act(1001).schedule("1", [runs]).resizes == {}
    unlimited = job("b", 1, 4, elastic=True)
    assert desk.act(1003).schedule("1", [unlimited]).starts == {"b": 4}
    desk.ask(1003, 4, job="b")
    runs_too = replace(unlimited, phase="running", gpus=4)
    desk.act(1001).schedule("1", [])
    desk.act(1004).schedule("1", [job("c", 1, seconds=3600.0, remaining_work=10.0)])
    assert desk.act(1003).schedule("1", [runs_too]).resizes == {}


def test_shares_that_claim_to_be_jobs_count_as_one_gpu(desk: Desk) -> None:
    ids = "abcdefghij"
    for id_ in ids:
        desk.ask(1001, 1, parts=20_000, gpus=(0,), job=id_)
    claimed = [job(id_, 1, phase="running", gpus=1) for id_ in ids]
    desk.act(1001).schedule("1", claimed)
    assert desk.act(1002).schedule("1", [job("z", 7)]).starts == {"z": 7}


def test_a_job_whose_request_waits_keeps_what_it_was_told(desk: Desk) -> None:
    """A GPU can become unusable between the instruction and the request."""
    assert desk.act(1001).schedule("1", [job("a", 8)]).starts == {"a": 8}
    desk.broker.drain((0,), None)
    waiting = desk.ask(1001, 8, job="a")
    assert not waiting.lease.held
    assert desk.act(1002).schedule("1", [job("b", 1)]).starts == {}
    desk.broker.resume()
    assert desk.act(1001).claim(waiting.lease.id).lease.held


def test_a_request_and_a_later_arrival_do_not_wait_for_each_other(desk: Desk) -> None:
    """The user with the least use comes first, though the job of the other waits longer."""
    desk.broker.set_rules(Rules(half_life_seconds=3600.0))
    desk.ask(1001, 1, seconds=86400.0)
    desk.ask(1002, 2)
    assert desk.act(1001).schedule("1", [job("a", 7)]).starts == {}
    later = desk.ask(1003, 1)
    assert desk.act(1003).claim(later.lease.id).lease.held


def test_a_lease_that_the_policy_starts_does_not_wait_for_a_larger_one(desk: Desk) -> None:
    """Otherwise, the GPU that the policy gives it would stay idle."""
    desk.broker.set_rules(Rules(job_policy="min-time"))
    desk.ask(1001, 4, seconds=86400.0)
    large = desk.ask(1002, 8)
    small = desk.ask(1003, 1)
    assert not small.lease.held
    assert desk.act(1004).schedule("1", [job("a", 1, 8)]).starts == {"a": 3}
    assert desk.act(1003).claim(small.lease.id).lease.held
    assert not desk.act(1002).claim(large.lease.id).lease.held


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
