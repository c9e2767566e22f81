"""What holds for every policy, and what fifo does."""

import random

import pytest

from gpuyard.errors import UnknownName
from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies import POLICIES, JobView, Pool, policy_of
from gpuyard.jobs.policies.base import gpus_of


def view(name: str, gpus: int, **more: object) -> JobView:
    curve = Curve.of_points({1: 1.0, 16: 10.0})
    return JobView(name, curve, 1000.0, gpus, most_gpus=16, **more)  # type: ignore[arg-type]


def _some_jobs(seed: int, pool: Pool) -> list[JobView]:
    chance = random.Random(seed)
    jobs: list[JobView] = []
    for number in range(chance.randrange(1, 25)):
        gpus = chance.choice((1, 1, 2, 4, 8))
        elastic = chance.random() < 0.6
        job = JobView(
            f"job-{number}",
            Curve.of_points({1: 1.0, 16: chance.uniform(1, 16)}) if elastic else Curve.rigid(gpus),
            remaining_work=chance.uniform(10, 10_000),
            asked_gpus=gpus,
            least_gpus=1 if elastic else gpus,
            most_gpus=16 if elastic else gpus,
            submitted_s=chance.uniform(0, 1000),
            user=chance.choice("abc"),
            deadline_s=chance.choice((None, 2000.0, 50_000.0)),
            elastic=elastic,
            restart_s=30.0,
        )
        free = pool.free(jobs)
        if chance.random() < 0.5 and free.max() >= gpus:
            machine = int(free.argmax())
            job = JobView(
                **{f: getattr(job, f) for f in JobView.__slots__}
                | {"allocation": ((machine, gpus),), "started_s": 900.0, "attained_gpu_s": 60.0}
            )
        jobs.append(job)
    return jobs


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_policy_gives_what_isn_t_there_or_takes_what_it_must_leave(name: str, seed: int) -> None:
    pool = Pool.uniform(4, 8)
    jobs = _some_jobs(seed, pool)
    policy = policy_of(name)
    given = policy.allocate(jobs, pool, 1000.0)
    assert sum(given.values()) <= pool.gpus
    by_id = {job.id: job for job in jobs}
    for job_id, gpus in given.items():
        job = by_id[job_id]
        assert gpus == 0 or job.least_gpus <= gpus <= job.most_gpus
    for job in jobs:
        if job.running and not job.elastic:
            assert given.get(job.id) == job.gpus, "a job that can't go on must not be stopped"
    placed = policy.place(given, jobs, pool)
    assert {job_id: gpus_of(where) for job_id, where in placed.items()} == {
        job_id: gpus for job_id, gpus in given.items() if gpus
    }
    used = [0] * 4
    for where in placed.values():
        for machine, gpus in where:
            used[machine] += gpus
    assert max(used) <= 8
    assert policy.allocate(jobs, pool, 1000.0) == given, "a policy is a pure function"


def test_fifo_starts_in_order_and_all_wait_for_the_first_that_does_not_fit() -> None:
    jobs = [view("late", 1, submitted_s=9), view("big", 4, submitted_s=5), view("one", 2)]
    assert policy_of("fifo").allocate(jobs, Pool.uniform(1, 4), 10.0) == {"one": 2}


def test_fifo_takes_a_higher_priority_first() -> None:
    jobs = [view("first", 2), view("urgent", 2, submitted_s=9, priority=1)]
    assert policy_of("fifo").allocate(jobs, Pool.uniform(1, 2), 10.0) == {"urgent": 2}


def test_an_unknown_policy_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fifo'"):
        policy_of("fifoo")


def test_a_change_of_gpus_is_charged_with_a_restart() -> None:
    job = view("a", 1, allocation=((0, 1),), restart_s=30.0)
    assert job.seconds_left(1) == 1000
    assert job.seconds_left(16) == 130
    assert job.seconds_left(16, charged=False) == 100
