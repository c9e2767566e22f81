"""Properties of every policy, and fifo."""

import random

import pytest

from gpuyard.errors import UnknownName
from gpuyard.policies import POLICIES, JobView, Pool, get_policy
from gpuyard.policies.curve import Curve
from gpuyard.policies.views import count_gpus


def view(name: str, gpus: int, **more: object) -> JobView:
    curve = Curve.from_points({1: 1.0, 16: 10.0})
    return JobView(name, curve, 1000.0, gpus, max_gpus=16, **more)  # type: ignore[arg-type]


def _create_jobs(seed: int, pool: Pool) -> list[JobView]:
    rng = random.Random(seed)
    jobs: list[JobView] = []
    for number in range(rng.randrange(1, 25)):
        gpus = rng.choice((1, 1, 2, 4, 8))
        elastic = rng.random() < 0.6
        job = JobView(
            f"job-{number}",
            Curve.from_points({1: 1.0, 16: rng.uniform(1, 16)}) if elastic else Curve.rigid(gpus),
            remaining_work=rng.uniform(10, 10_000),
            requested_gpus=gpus,
            min_gpus=1 if elastic else gpus,
            max_gpus=16 if elastic else gpus,
            submitted_s=rng.uniform(0, 1000),
            user=rng.choice("abc"),
            deadline_s=rng.choice((None, 2000.0, 50_000.0)),
            elastic=elastic,
            restart_s=30.0,
        )
        free = pool.free_gpus(jobs)
        if rng.random() < 0.5 and free.max() >= gpus:
            machine = int(free.argmax())
            job = JobView(
                **{f: getattr(job, f) for f in JobView.__slots__}
                | {"allocation": ((machine, gpus),), "started_s": 900.0, "attained_gpu_s": 60.0}
            )
        jobs.append(job)
    return jobs


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_respects_the_pool_and_running_jobs(name: str, seed: int) -> None:
    pool = Pool.uniform(4, 8)
    jobs = _create_jobs(seed, pool)
    policy = get_policy(name)
    allocated = policy.allocate(jobs, pool, 1000.0)
    assert sum(allocated.values()) <= pool.gpus
    by_id = {job.id: job for job in jobs}
    for job_id, gpus in allocated.items():
        job = by_id[job_id]
        assert gpus == 0 or job.min_gpus <= gpus <= job.max_gpus
    for job in jobs:
        if job.running and not job.elastic:
            assert allocated.get(job.id) == job.gpus, "a job that cannot resume must not be stopped"
    placed = policy.place(allocated, jobs, pool)
    assert {job_id: count_gpus(allocation) for job_id, allocation in placed.items()} == {
        job_id: gpus for job_id, gpus in allocated.items() if gpus
    }
    used = [0] * 4
    for allocation in placed.values():
        for machine, gpus in allocation:
            used[machine] += gpus
    assert max(used) <= 8
    assert policy.allocate(jobs, pool, 1000.0) == allocated, "a policy must be a pure function"


def test_fifo_starts_in_order_and_all_wait_for_the_first_that_does_not_fit() -> None:
    jobs = [view("late", 1, submitted_s=9), view("big", 4, submitted_s=5), view("one", 2)]
    assert get_policy("fifo").allocate(jobs, Pool.uniform(1, 4), 10.0) == {"one": 2}


def test_fifo_starts_a_higher_priority_first() -> None:
    jobs = [view("first", 2), view("urgent", 2, submitted_s=9, priority=1)]
    assert get_policy("fifo").allocate(jobs, Pool.uniform(1, 2), 10.0) == {"urgent": 2}


def test_an_unknown_policy_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fifo'"):
        get_policy("fifoo")


def test_a_change_of_gpus_costs_a_restart() -> None:
    job = view("a", 1, allocation=((0, 1),), restart_s=30.0)
    assert job.remaining_seconds(1) == 1000
    assert job.remaining_seconds(16) == 130
    assert job.remaining_seconds(16, include_restart=False) == 100
