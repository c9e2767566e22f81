"""max-jobs: who ends in time, and what it starts now."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies import JobView, Pool
from gpuyard.jobs.policies.max_jobs import MaxJobs
from gpuyard.jobs.policies.packing import DeadlineTask, Mode
from tests.jobs.policies.test_packing import brute_force


def job(id_: str, work: float, due: float | None = None, **more: object) -> JobView:
    """Twice as fast with 4 GPUs as with 1."""
    curve = Curve.of_points({1: 1.0, 2: 1.5, 4: 2.0})
    return JobView(id_, curve, work, most_gpus=4, deadline_s=due, **more)  # type: ignore[arg-type]


def random_queue(chance: Random, count: int) -> list[JobView]:
    return [
        JobView(
            f"job-{number}",
            Curve.of_points({1: 1.0, 2: chance.uniform(1.1, 2), 3: chance.uniform(2, 3)}),
            chance.uniform(1, 10),
            most_gpus=chance.choice((1, 3)),
            deadline_s=chance.choice((None, chance.uniform(3, 12))),
            weight=chance.choice((1.0, 1.0, 2.0)),
        )
        for number in range(count)
    ]


def run_to_the_end(policy: MaxJobs, jobs: Sequence[JobView], pool: Pool) -> dict[str, float]:
    """Decides, waits for the next end, decides again; when each was done."""
    now, left, ends = 0.0, {job.id: job for job in jobs}, {}
    while left:
        given = policy.allocate(list(left.values()), pool, now)
        assert given, "somebody must work"
        for id_, view in left.items():
            gpus = given.get(id_, 0)
            assert not view.running or gpus == view.gpus, "none of these can be stopped"
            if gpus:
                left[id_] = replace(view, allocation=((0, gpus),))
        seconds = min(view.seconds_left(view.gpus) for view in left.values() if view.running)
        now += seconds
        for id_, view in list(left.items()):
            if view.running:
                done = view.curve.speed(view.gpus) * seconds
                left[id_] = replace(view, remaining_work=view.remaining_work - done)
                if left[id_].remaining_work < 1e-9:
                    ends[id_] = now
                    del left[id_]
    return ends


@pytest.mark.parametrize("seed", range(40))
def test_as_many_end_in_time_as_brute_force_can_plan(seed: int) -> None:
    chance = Random(seed)
    horizon, pool = 10.0, Pool.uniform(1, 3)
    jobs = random_queue(chance, chance.randrange(2, 5))
    tasks = [
        DeadlineTask(
            job.id,
            job.deadline_s or horizon,
            tuple(Mode(gpus, job.seconds_left(gpus)) for gpus in range(1, job.most_gpus + 1)),
            job.weight,
        )
        for job in jobs
    ]
    ends = run_to_the_end(MaxJobs(horizon), jobs, pool)
    in_time = [task for task in tasks if ends[task.id] <= task.deadline_s + 1e-5]
    best = brute_force(tasks, 3, [])
    if all(job.deadline_s for job in jobs):
        assert sum(task.weight for task in in_time) == best
    packing = MaxJobs(horizon).plan(jobs, pool, 0.0).packing
    assert packing.weight == best
    assert packing.proven


def test_those_that_can_be_in_time_come_before_a_longer_one_that_came_first() -> None:
    jobs = [job("long", 100, 100), job("a", 10, 22), job("b", 10, 22)]
    given = MaxJobs().allocate(jobs, Pool.uniform(1, 1), 0.0)
    assert given in ({"a": 1}, {"b": 1})


def test_weight_decides_between_those_of_which_one_must_be_late() -> None:
    jobs = [job("light", 10, 12), job("heavy", 10, 12, weight=3)]
    assert MaxJobs().allocate(jobs, Pool.uniform(1, 1), 0.0) == {"heavy": 1}


def test_who_is_late_anyway_runs_where_it_delays_nobody() -> None:
    late = job("late", 50, 3)
    urgent = job("urgent", 16, 11)  # needs 2 GPUs or more from now
    assert set(MaxJobs().allocate([late, urgent], Pool.uniform(1, 2), 0.0)) == {"urgent"}
    both = MaxJobs().allocate([late, urgent], Pool.uniform(1, 3), 0.0)
    assert both == {"urgent": 2, "late": 1}


def test_who_is_late_anyway_waits_where_it_would_delay_a_later_start() -> None:
    holds = JobView("holds", Curve.rigid(1), 5, allocation=((0, 1),))
    wide = JobView("wide", Curve.rigid(2), 4, 2, 2, 2, deadline_s=10.0)
    pool = Pool.uniform(1, 2)
    assert MaxJobs().allocate([holds, wide, job("late", 50, 3)], pool, 0.0) == {"holds": 1}
    assert MaxJobs().allocate([holds, wide, job("late", 4, 3)], pool, 0.0) == {
        "holds": 1,
        "late": 1,
    }


def test_idle_gpus_make_jobs_quicker_but_not_at_any_price() -> None:
    assert MaxJobs().allocate([job("only", 100)], Pool.uniform(1, 8), 0.0) == {"only": 4}
    flat = Curve(np.array([0, 1.0, 1.1, 1.2, 1.25, 1.3]))
    only = JobView("only", flat, 100, most_gpus=5)
    assert MaxJobs().allocate([only], Pool.uniform(1, 8), 0.0) == {"only": 2}


def test_a_running_job_that_goes_on_in_time_is_left_alone() -> None:
    running = job("runs", 10, 50, elastic=True, restart_s=5, allocation=((0, 2),))
    other = job("waits", 10, 50)
    assert MaxJobs().allocate([running, other], Pool.uniform(1, 3), 0.0)["runs"] == 2


def test_a_running_job_gives_way_where_more_are_in_time_so() -> None:
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


def test_a_wide_curve_keeps_the_mode_of_the_fewest_gpu_seconds_that_is_in_time() -> None:
    curve = Curve.of_points({1: 1.0, 100: 60.0})
    wide = JobView("wide", curve, 100, most_gpus=100, deadline_s=7.0)
    plan = MaxJobs().plan([wide], Pool.uniform(1, 100), 0.0)
    narrowest = next(gpus for gpus in range(1, 101) if curve.seconds(100, gpus) <= 7)
    assert plan.packing.starts["wide"].mode.gpus == narrowest


def test_a_job_that_no_machine_can_take_is_left_waiting() -> None:
    big = JobView("big", Curve.rigid(8), 10, 8, 8, 8, deadline_s=100.0)
    nothing = JobView("over", Curve.rigid(1), 0.0, deadline_s=100.0)
    assert MaxJobs().allocate([big, nothing], Pool.uniform(1, 4), 0.0) == {"over": 1}
    assert MaxJobs().allocate([big], Pool.uniform(1, 4), 0.0) == {}
    assert MaxJobs().allocate([], Pool.uniform(1, 4), 0.0) == {}
