"""Leases and jobs of several users in random order: a job that is told to start gets its GPUs, and nobody waits forever."""

import math
import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.share import scheduling
from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller
from gpuyard.share.config import Rules
from gpuyard.share.models import LeaseRequest, ReservationRequest
from gpuyard.share.schedule import RUNNING, JobAnnouncement
from tests.share.conftest import acting_as

GPUS, USERS, STEPS = 8, (1001, 1002, 1003), 50
TIMES = (None, 600.0, 3600.0, 86_400.0)


class Yard:
    """The requests and jobs of all users; one request has one lock, which this process holds."""

    def __init__(self, broker: Broker, chance: random.Random) -> None:
        self.broker, self.chance = broker, chance
        self.leases: dict[str, tuple[int, int]] = {}
        """The user and the lock of each lease and request."""
        self.jobs: dict[int, dict[str, JobAnnouncement]] = {uid: {} for uid in USERS}
        self.running: dict[str, tuple[int, str]] = {}
        """The user and the job by lease."""
        self.numbers = iter(range(10**6))

    def act(self, uid: int) -> Broker:
        return acting_as(self.broker, Caller(uid, uid, os.getpid()))

    def ask(self, uid: int, **request: Any) -> str:
        status, lock = self.act(uid).ask(LeaseRequest(**request))
        self.leases[status.lease.id] = uid, lock
        return status.lease.id

    def held(self) -> set[str]:
        return {lease.id for lease in self.broker.store.held_leases()}

    def request_lease(self) -> None:
        count, seconds = self.chance.randint(1, GPUS), self.chance.choice(TIMES)
        gpus = tuple(sorted(self.chance.sample(range(GPUS), count)))
        named = gpus if self.chance.random() < 0.3 else ()
        self.ask(self.chance.choice(USERS), count=count, seconds=seconds, gpus=named)

    def submit(self) -> None:
        uid, least = self.chance.choice(USERS), self.chance.choice((1, 2, 4, GPUS))
        most = self.chance.randint(least, GPUS)
        id_ = str(next(self.numbers))
        self.jobs[uid][id_] = JobAnnouncement(
            id_, f"local://{id_}", "waiting", least, most, most,
            tuple(float(count) for count in range(least, most + 1)), self.chance.uniform(60.0, 1e5), 0.0,
            seconds=self.chance.choice(TIMES), elastic=self.chance.random() < 0.5,
            priority=self.chance.randint(-2, 2),
        )  # fmt: skip

    def reserve(self) -> None:
        gpus = tuple(self.chance.sample(range(GPUS), self.chance.randint(1, 4)))
        start = time.time() + self.chance.choice((0.0, 1800.0, 7200.0))
        request = ReservationRequest(len(gpus), start, start + 3600.0, gpus)
        try:
            self.act(self.chance.choice(USERS)).reserve(request)
        except GpuyardError:  # others have leased or reserved them
            return

    def drain(self) -> None:
        self.broker.drain((self.chance.randrange(GPUS),), None)

    def end_lease(self) -> None:
        held = sorted(self.held())
        if held:
            self.release(self.chance.choice(held))

    def release(self, id_: str) -> None:
        uid, lock = self.leases.pop(id_)
        os.close(lock)
        assert self.act(uid).finish(id_, childless=False)
        owner, job = self.running.pop(id_, (0, ""))
        if owner:
            del self.jobs[owner][job]

    def advance(self) -> bool:
        """Let all clients and runners ask once; return whether anything started."""
        before = self.held()
        for uid in USERS:
            answer = self.act(uid).schedule("1", list(self.jobs[uid].values()))
            for job, gpus in answer.starts.items():
                id_ = self.ask(uid, count=gpus, seconds=self.jobs[uid][job].seconds, job=job)
                assert id_ in self.held(), "a job that was told to start has no GPUs"
                self.running[id_] = uid, job
                self.jobs[uid][job] = replace(self.jobs[uid][job], phase=RUNNING, gpus=gpus)
        for id_, (uid, _) in list(self.leases.items()):
            self.act(uid).claim(id_)
        return self.held() > before

    def remains(self) -> bool:
        return bool(self.leases or any(self.jobs.values()))


@pytest.fixture
def broker(share: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(scheduling, "_MAX_TIME_SHARE", math.inf)  # each change is decided at once
    broker = Broker(share)
    yield broker
    broker.close()


@pytest.mark.parametrize(
    ("policy", "seed"),
    [("fifo", 201), ("fifo", 203), ("fair-share", 200), ("max-jobs", 204), ("min-time", 200)]
    + [
        pytest.param(policy, seed, marks=pytest.mark.soak)
        for policy in ("fifo", "fair-share", "min-time", "max-jobs")
        for seed in range(20)
    ],
)
def test_nobody_waits_forever(broker: Broker, policy: str, seed: int) -> None:
    chance = random.Random(f"{policy} {seed}")
    half_life = chance.choice((None, 3600.0))
    quota = chance.choice((None, GPUS))
    broker.set_rules(Rules(job_policy=policy, half_life_seconds=half_life, max_gpus_per_user=quota))
    yard = Yard(broker, chance)
    actions = [yard.request_lease, yard.submit, yard.submit, yard.end_lease, yard.end_lease]
    for _ in range(STEPS):
        chance.choice(actions if chance.random() < 0.8 else [yard.reserve, yard.drain])()
        yard.advance()
        if chance.random() < 0.1:
            broker.resume()
    broker.resume()
    for reservation in broker.state().reservations:
        broker.cancel(reservation.id)
    while yard.remains():
        while yard.advance():
            pass
        held = sorted(yard.held())
        assert held, "all GPUs are idle, and somebody waits"
        yard.release(chance.choice(held))
