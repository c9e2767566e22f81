"""Limits per user and fair turns: one user's leases, requests, and connections do not lock out the others."""

import grp
import os
import subprocess
import time
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.broker import MAX_WAITING_PER_USER, Broker
from gpuyard.share.caller import Caller
from gpuyard.share.config import Rules
from gpuyard.share.models import MIN_PARTS, WHOLE, LeaseRequest, NoneFree, ReservationRequest
from gpuyard.share.processes import LEASE_VARIABLE
from gpuyard.share.reservations import MAX_PER_USER
from tests.share.conftest import acting_as


def test_a_request_searches_proc_once_however_many_leases_lost_their_lock(
    share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may close the lock that it inherited, so its lease lives as long as it is found in /proc."""
    broker = Broker(share)
    leases = [broker.ask(LeaseRequest(parts=WHOLE // 10)) for _ in range(5)]
    sleepers = [
        subprocess.Popen(("sleep", "60"), env={LEASE_VARIABLE: status.lease.id})
        for status, _ in leases
    ]
    try:
        for _, lock in leases:
            os.close(lock)
        searches = []
        listdir = os.listdir

        def list_and_count(path: str) -> list[str]:
            if path == "/proc":
                searches.append(path)
            return listdir(path)

        monkeypatch.setattr(os, "listdir", list_and_count)
        status, lock = broker.ask(LeaseRequest(count=7))
        assert status.lease.held and len(searches) == 1
        assert {lease.id for lease in broker.state().held} >= {s.lease.id for s, _ in leases}
        os.close(lock)
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    broker.close()


def test_each_user_has_few_requests_in_the_queue_and_few_reservations(share: Path) -> None:
    broker = Broker(share)
    hostile, other = (acting_as(broker, Caller(uid, uid, os.getpid())) for uid in (60_001, 60_002))
    locks = [hostile.ask(LeaseRequest(count=8))[1]]
    locks += [hostile.ask(LeaseRequest())[1] for _ in range(MAX_WAITING_PER_USER)]
    with pytest.raises(GpuyardError, match=r"60001 has 50 requests in the queue.*limit per user"):
        hostile.ask(LeaseRequest())
    starts = [time.time() + 7200 * (2 + i) for i in range(MAX_PER_USER + 1)]
    for start in starts[:-1]:
        hostile.reserve(ReservationRequest(1, start, start + 60))
    with pytest.raises(GpuyardError, match=r"60001 has 30 reservations.*limit per user"):
        hostile.reserve(ReservationRequest(1, starts[-1], starts[-1] + 60))
    status, lock = other.ask(LeaseRequest())
    assert status.position == 1, "they wait for a lease of their own user"
    assert other.reserve(ReservationRequest(1, starts[0], starts[0] + 60)).uid == 60_002
    for descriptor in (*locks, lock):
        os.close(descriptor)
    broker.close()


@pytest.mark.parametrize("parts", [0, 1, MIN_PARTS - 1, WHOLE + 1])
def test_a_share_is_a_hundredth_of_a_gpu_or_more(parts: int) -> None:
    with pytest.raises(UserMistake, match=r"from 0\.01 to 1"):
        LeaseRequest(parts=parts)


def test_little_memory_counts_as_the_smallest_share() -> None:
    assert LeaseRequest(memory_bytes=1).required_parts([80_000_000_000]) == MIN_PARTS


def test_a_quota_counts_every_gpu_of_which_the_group_holds_a_share(share: Path) -> None:
    """Otherwise, small shares of all GPUs would keep everyone else from whole ones."""
    broker = Broker(share)
    gid = os.getgid()
    broker.set_rules(Rules(quotas={grp.getgrgid(gid).gr_name: 2}))
    with pytest.raises(UserMistake, match="quota of 2 GPUs"):
        broker.ask(LeaseRequest(count=4, parts=MIN_PARTS))
    half = WHOLE // 2
    leases = [broker.ask(LeaseRequest(parts=half, gpus=(gpu,))) for gpu in (3, 5)]
    with pytest.raises(NoneFree, match="quota"):
        broker.ask(LeaseRequest(parts=MIN_PARTS, gpus=(0,), waits=False))
    # more of the GPUs that it uses already; the first choice would be another one
    leases += [broker.ask(LeaseRequest(parts=half, waits=False)) for _ in range(2)]
    assert [status.lease.gpus for status, _ in leases] == [(3,), (5,), (3,), (5,)]
    with pytest.raises(NoneFree, match="quota"):
        broker.ask(LeaseRequest(parts=MIN_PARTS, waits=False))
    waiting, lock = broker.ask(LeaseRequest(parts=half))
    stranger = acting_as(broker, Caller(60_001, 60_001, os.getpid()))
    free, other = stranger.ask(LeaseRequest(count=6, waits=False))
    assert waiting.position == 1 and free.lease.gpus == (0, 1, 2, 4, 6, 7)
    for descriptor in (*(lease[1] for lease in leases), lock, other):
        os.close(descriptor)
    broker.close()
