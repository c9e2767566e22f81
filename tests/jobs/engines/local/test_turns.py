"""Which jobs start, and which are stopped to go on with another number of GPUs: no process is needed to know."""

from dataclasses import replace

import numpy as np

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.engines.local.turns import LocalJob, resized, starts
from gpuyard.jobs.policies import JobView, policy_of

FIFO, MIN_TIME = policy_of("fifo"), policy_of("min-time")
LINEAR = Curve(np.arange(9.0))


def job(number: int, gpus: int | None = None, *, waits: bool = False, **more: object) -> LocalJob:
    """One that asks for 2; with `gpus` it runs on so many."""
    plain = JobView(
        str(number), LINEAR, 3600.0, asked_gpus=2, least_gpus=2, most_gpus=2, submitted_s=number
    )
    allocation = None if gpus is None else ((0, gpus),)
    return LocalJob(number, replace(plain, allocation=allocation, **more), waits)  # type: ignore[arg-type]


def elastic(number: int, gpus: int | None = None, **more: object) -> LocalJob:
    changed = {"asked_gpus": 8, "least_gpus": 1, "most_gpus": 8, "elastic": True, **more}
    return job(number, gpus, **changed)  # type: ignore[arg-type]


def test_jobs_start_in_order_while_there_are_gpus() -> None:
    jobs = [job(1, 2), job(2), job(3), job(4)]
    assert starts(jobs, FIFO, free=6, total=8, contended=True, now_s=0) == {2: 2, 3: 2}


def test_a_job_starts_with_fewer_than_it_asks_for_where_it_may() -> None:
    jobs = [job(1, 2), elastic(2)]
    assert starts(jobs, FIFO, free=5, total=8, contended=False, now_s=0) == {2: 3}


def test_one_takes_a_place_in_the_queue_of_leases_where_others_hold_all() -> None:
    jobs = [job(1), job(2)]
    assert starts(jobs, FIFO, free=0, total=8, contended=True, now_s=0) == {1: 2}
    assert starts(jobs, FIFO, free=0, total=8, contended=False, now_s=0) == {}
    waiting = [job(1, 2, waits=True), job(2)]
    assert starts(waiting, FIFO, free=0, total=8, contended=True, now_s=0) == {}


def test_what_a_running_job_has_is_its_own_until_it_is_stopped() -> None:
    jobs = [elastic(1, 8), job(2)]
    assert starts(jobs, MIN_TIME, free=8, total=8, contended=False, now_s=0) == {}


def test_a_job_grows_where_that_gains_more_than_the_restart_costs() -> None:
    assert resized([elastic(1, 4, restart_s=30.0)], MIN_TIME, free=8, now_s=0) == {1: 8}
    late = elastic(1, 4, restart_s=30.0, remaining_work=8.0)  # 2 s are left
    assert resized([late], MIN_TIME, free=8, now_s=0) == {}
    assert resized([elastic(1, 4, restart_s=500.0)], FIFO, free=8, now_s=0) == {}


def test_a_job_that_cannot_go_on_or_still_waits_is_never_stopped() -> None:
    rigid = elastic(1, 4, elastic=False)
    waiting = replace(elastic(1, 4), waits_for_lease=True)
    assert resized([rigid], MIN_TIME, free=8, now_s=0) == {}
    assert resized([waiting], MIN_TIME, free=8, now_s=0) == {}


def test_a_job_shrinks_for_one_that_is_soon_done() -> None:
    jobs = [elastic(1, 8, remaining_work=1e6), job(2, remaining_work=10.0)]
    changed = resized(jobs, MIN_TIME, free=8, now_s=0)
    assert 0 < changed[1] <= 6
