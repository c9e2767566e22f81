"""max-jobs: which jobs end in time, and which start now."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from gpuyard.policies import JobView, Pool
from gpuyard.policies.curve import Curve
from gpuyard.policies.max_jobs import MaxJobs
from gpuyard.policies.packing import DeadlineTask, Mode
from tests.policies.test_packing import brute_force


def job(id_: str, work: float, due: float | None = None, **more: object) -> JobView:
    """Create a job that is twice as fast with 4 GPUs as with 1."""
    curve = Curve.from_points({1: 1.0, 2: 1.5, 4: 2.0})
    return JobView(id_, curve, work, max_gpus=4, deadline_s=due, **more)  # type: ignore[arg-type]


def random_queue(rng: Random, count: int) -> list[JobView]:
    return [
        JobView(
            f"job-{number}",
            Curve.from_points({1: 1.0, 2: rng.uniform(1.1, 2), 3: rng.uniform(2, 3)}),
            rng.uniform(1, 10),
            max_gpus=rng.choice((1, 3)),
            deadline_s=rng.choice((None, rng.uniform(3, 12))),
            weight=rng.choice((1.0, 1.0, 2.0)),
        )
        for number in range(count)
    ]


def run_all(policy: MaxJobs, jobs: Sequence[JobView], pool: Pool) -> dict[str, float]:
    """Decide at each end until all jobs have ended, and return their end times."""
    now, remaining, ends = 0.0, {job.id: job for job in jobs}, {}
    while remaining:
        allocated = policy.allocate(list(remaining.values()), pool, now)
        assert allocated, "some job must run"
        for id_, view in remaining.items():
            gpus = allocated.get(id_, 0)
            assert not view.running or gpus == view.gpus, "none of these can be stopped"
            if gpus:
                remaining[id_] = replace(view, allocation=((0, gpus),))
        seconds = min(
            view.remaining_seconds(view.gpus) for view in remaining.values() if view.running
        )
        now += seconds
        for id_, view in list(remaining.items()):
            if view.running:
                done = view.curve.speed(view.gpus) * seconds
                remaining[id_] = replace(view, remaining_work=view.remaining_work - done)
                if remaining[id_].remaining_work < 1e-9:
                    ends[id_] = now
                    del remaining[id_]
    return ends


@pytest.mark.parametrize("seed", range(40))
def test_it_is_as_good_as_brute_force(seed: int) -> None:
    rng = Random(seed)
    horizon, pool = 10.0, Pool.uniform(1, 3)
    jobs = random_queue(rng, rng.randrange(2, 5))
    tasks = [
        DeadlineTask(
            job.id,
            job.deadline_s or horizon,
            tuple(Mode(gpus, job.remaining_seconds(gpus)) for gpus in range(1, job.max_gpus + 1)),
            job.weight,
        )
        for job in jobs
    ]
    ends = run_all(MaxJobs(horizon), jobs, pool)
    in_time = [task for task in tasks if ends[task.id] <= task.deadline_s + 1e-5]
    best = brute_force(tasks, 3, [])
    if all(job.deadline_s for job in jobs):
        assert sum(task.weight for task in in_time) == best
    packing = MaxJobs(horizon).plan(jobs, pool, 0.0).packing
    assert packing.weight == best
    assert packing.proven


def test_jobs_that_can_be_in_time_come_before_an_earlier_longer_one() -> None:
    jobs = [job("long", 100, 100), job("a", 10, 22), job("b", 10, 22)]
    allocated = MaxJobs().allocate(jobs, Pool.uniform(1, 1), 0.0)
    assert allocated in ({"a": 1}, {"b": 1})


def test_weight_decides_which_of_two_jobs_is_late() -> None:
    jobs = [job("light", 10, 12), job("heavy", 10, 12, weight=3)]
    assert MaxJobs().allocate(jobs, Pool.uniform(1, 1), 0.0) == {"heavy": 1}


def test_a_late_job_runs_if_it_delays_no_other() -> None:
    late = job("late", 50, 3)
    urgent = job("urgent", 16, 11)  # needs 2 GPUs or more from now
    assert set(MaxJobs().allocate([late, urgent], Pool.uniform(1, 2), 0.0)) == {"urgent"}
    both = MaxJobs().allocate([late, urgent], Pool.uniform(1, 3), 0.0)
    assert both == {"urgent": 2, "late": 1}


def test_a_late_job_waits_if_it_would_delay_a_planned_start() -> None:
    holds = JobView("holds", Curve.rigid(1), 5, allocation=((0, 1),))
    wide = JobView("wide", Curve.rigid(2), 4, 2, 2, 2, deadline_s=10.0)
    pool = Pool.uniform(1, 2)
    assert MaxJobs().allocate([holds, wide, job("late", 50, 3)], pool, 0.0) == {"holds": 1}
    assert MaxJobs().allocate([holds, wide, job("late", 4, 3)], pool, 0.0) == {
        "holds": 1,
        "late": 1,
    }


def test_idle_gpus_speed_up_jobs_but_not_at_any_cost() -> None:
    assert MaxJobs().allocate([job("only", 100)], Pool.uniform(1, 8), 0.0) == {"only": 4}
    flat = Curve(np.array([0, 1.0, 1.1, 1.2, 1.25, 1.3]))
    only = JobView("only", flat, 100, max_gpus=5)
    assert MaxJobs().allocate([only], Pool.uniform(1, 8), 0.0) == {"only": 2}


def test_a_running_job_that_is_in_time_is_not_moved() -> None:
    running = job("runs", 10, 50, elastic=True, restart_s=5, allocation=((0, 2),))
    other = job("waits", 10, 50)
    assert MaxJobs().allocate([running, other], Pool.uniform(1, 3), 0.0)["runs"] == 2


def test_a_running_job_is_stopped_if_more_jobs_are_then_in_time() -> None:
    running = job("runs", 100, elastic=True, restart_s=5, allocation=((0, 1),))
    urgent = job("urgent", 10, 12)
    assert MaxJobs().allocate([running, urgent], Pool.uniform(1, 1), 0.0) == {"urgent": 1}
    rigid = replace(running, elastic=False)
    assert MaxJobs().allocate([rigid, urgent], Pool.uniform(1, 1), 0.0) == {"runs": 1}


def test_without_scipy_it_plans_by_greedy_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = random_queue(Random(1), 6)
    monkeypatch.setitem(sys.modules, "scipy", None)
    plan = MaxJobs(10.0).plan(jobs, Pool.uniform(1, 3), 0.0)
    assert plan.packing.starts


def test_the_thriftiest_mode_in_time_is_kept_among_many() -> None:
    curve = Curve.from_points({1: 1.0, 100: 60.0})
    wide = JobView("wide", curve, 100, max_gpus=100, deadline_s=7.0)
    plan = MaxJobs().plan([wide], Pool.uniform(1, 100), 0.0)
    narrowest = next(gpus for gpus in range(1, 101) if curve.seconds(100, gpus) <= 7)
    assert plan.packing.starts["wide"].mode.gpus == narrowest


def test_a_job_larger_than_the_pool_waits() -> None:
    big = JobView("big", Curve.rigid(8), 10, 8, 8, 8, deadline_s=100.0)
    finished = JobView("over", Curve.rigid(1), 0.0, deadline_s=100.0)
    assert MaxJobs().allocate([big, finished], Pool.uniform(1, 4), 0.0) == {"over": 1}
    assert MaxJobs().allocate([big], Pool.uniform(1, 4), 0.0) == {}
    assert MaxJobs().allocate([], Pool.uniform(1, 4), 0.0) == {}
