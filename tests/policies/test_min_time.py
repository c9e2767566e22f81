"""`min-time` against brute force on small cases, and in cases that people can check."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.policies import JobView, Pool
from gpuyard.policies.curve import Curve
from gpuyard.policies.min_time import MinTime

INFINITE = float("inf")


class EventMinTime(MinTime):
    """Decides at every end, as brute force does, instead of in rounds."""

    round_s = None


def _list_allocations(jobs: int, gpus: int) -> Iterator[tuple[int, ...]]:
    if jobs == 0:
        yield ()
        return
    for first in range(gpus + 1):
        for rest in _list_allocations(jobs - 1, gpus - first):
            yield (first, *rest)


def best_mean(works: list[float], curves: list[Curve], gpus: int, restart_s: float) -> float:
    """Return the lowest mean completion time of all allocations at the start and at each end."""
    lowest = INFINITE

    def explore(
        remaining: dict[int, float],
        has: dict[int, int],
        ready: dict[int, float],
        now: float,
        total: float,
    ) -> None:
        nonlocal lowest
        if not remaining:
            lowest = min(lowest, total)
            return
        if total + sum(now + work / curves[i].best[-1] for i, work in remaining.items()) >= lowest:
            return
        for counts in _list_allocations(len(remaining), gpus):
            allocated = dict(zip(remaining, counts, strict=True))
            starts = {
                i: max(now, ready[i]) if allocated[i] == has[i] else now + restart_s
                for i in remaining
            }
            ends = {i: starts[i] + curves[i].seconds(remaining[i], allocated[i]) for i in remaining}
            first = min(ends.values())
            if first == INFINITE:
                continue
            rest = {
                i: remaining[i] - curves[i].speed(allocated[i]) * max(0.0, first - starts[i])
                for i in remaining
                if ends[i] > first + 1e-9
            }
            explore(rest, allocated, starts, first, total + first * (len(remaining) - len(rest)))

    indices = range(len(works))
    explore(
        dict(enumerate(works)), dict.fromkeys(indices, 0), dict.fromkeys(indices, 0.0), 0.0, 0.0
    )
    return lowest / len(works)


def _find_worst(seeds: Iterable[int], counts: Sequence[int]) -> float:
    return max(_compare_with_best(random.Random(seed), counts) for seed in seeds)


def test_it_is_within_5_percent_of_the_optimum_for_any_restart_time() -> None:
    assert _find_worst(range(120), (2, 3)) <= 1.05
    assert _find_worst(range(8), (4,)) <= 1.05


@pytest.mark.soak
def test_it_is_within_5_percent_of_the_optimum_in_many_cases() -> None:
    assert _find_worst(range(3000), (2, 3)) <= 1.05
    assert _find_worst(range(200), (4,)) <= 1.05


def _compare_with_best(rng: random.Random, counts: Sequence[int]) -> float:
    """Return the mean completion time relative to the optimum, for random jobs and curves."""
    gpus = rng.choice((2, 3, 4))
    count = rng.choice(counts)
    restart_s = 20_000 * rng.choice((0.0, 0.001, 0.01, 0.1, 0.3, 1.0, 3.0))
    curves = []
    for _ in range(count):
        power = rng.uniform(0.3, 1.0)
        speeds = np.array([n**power for n in range(gpus + 1)])
        if rng.random() < 0.3:
            speeds[rng.randrange(2, gpus + 1)] *= 0.7  # a split that makes it slower
        curves.append(Curve(speeds))
    works = [rng.uniform(2_000, 40_000) for _ in range(count)]
    jobs = tuple(
        TraceJob(
            str(i), 0.0, SteadyWork(work, curve), max_gpus=gpus, elastic=True, restart_s=restart_s
        )
        for i, (work, curve) in enumerate(zip(works, curves, strict=True))
    )
    reached = simulate(
        Trace("", jobs), EventMinTime(), Pool.uniform(1, gpus)
    ).completion_seconds.mean()
    best = best_mean(works, curves, gpus, restart_s)
    assert reached >= best * (1 - 1e-9)
    return float(reached / best)


def _job(name: str, work: float, curve: Curve, **more: object) -> JobView:
    return JobView(name, curve, work, max_gpus=64, elastic=True, **more)  # type: ignore[arg-type]


LINEAR = Curve(np.arange(65.0))


def test_with_linear_scaling_the_shortest_job_gets_all_gpus() -> None:
    jobs = [_job(f"job-{n}", 1000.0 * n, LINEAR) for n in range(1, 9)]
    assert MinTime().allocate(jobs, Pool.uniform(16, 4), 0.0) == {"job-1": 64}


def test_a_step_beyond_a_plateau_is_used() -> None:
    speeds = np.minimum(np.arange(65.0), 1) + (np.arange(65) >= 4) * 3.0
    jobs = [_job(f"job-{n}", 1000.0, Curve(speeds)) for n in range(5)]
    allocated = MinTime().allocate(jobs, Pool.uniform(5, 4), 0.0)
    assert sorted(allocated.values()) == [4, 4, 4, 4, 4]


def test_a_heavier_job_counts_like_a_shorter_one() -> None:
    jobs = [_job(f"job-{n}", 1000.0 + n, LINEAR) for n in range(8)]
    jobs.append(_job("heavy", 5000.0, LINEAR, weight=10.0))
    assert MinTime().allocate(jobs, Pool.uniform(16, 4), 0.0) == {"heavy": 64}


def test_a_higher_priority_comes_first() -> None:
    jobs = [_job("short", 10.0, LINEAR), _job("urgent", 1e6, LINEAR, priority=1)]
    assert MinTime().allocate(jobs, Pool.uniform(16, 4), 0.0) == {"urgent": 64}

    few = Pool.uniform(1, 4)
    jobs = [replace(job, max_gpus=4) for job in jobs]
    assert MinTime().allocate(jobs, few, 0.0) == {"urgent": 4}


def test_no_job_is_split_if_that_only_makes_it_slower() -> None:
    def speed_on_slow_network(by_machine: tuple[int, ...]) -> float:
        return sum(by_machine) * (0.3 if len(by_machine) > 1 else 1.0)

    speeds = [speed_on_slow_network((gpus,) if gpus <= 4 else (4, gpus - 4)) for gpus in range(9)]
    curve = Curve(np.array(speeds), speed_on_slow_network)
    rigid = [
        JobView(name, Curve.rigid(2), 1e6, 2, 2, 2, allocation=((machine, 2),))
        for machine, name in enumerate("ab")
    ]
    job = JobView("new", curve, 1e6, 4, 1, 8, elastic=True)
    pool = Pool.uniform(2, 4)
    assert MinTime().allocate([*rigid, job], pool, 0.0) == {"a": 2, "b": 2, "new": 2}
    other = replace(job, id="other")
    allocated = MinTime().allocate([*rigid, job, other], pool, 0.0)
    assert allocated == {"a": 2, "b": 2, "new": 2, "other": 2}, (
        "the remaining GPUs must not stay idle"
    )


STEPS_OF_8 = Curve(np.array([0.01 * n + min(n // 8, 1) + 0.2 * (n >= 16) for n in range(65)]))


def test_gpus_left_by_whole_steps_are_used_for_parts_of_steps() -> None:
    jobs = [_job(f"job-{n}", 1000.0, STEPS_OF_8) for n in range(3)]
    allocated = MinTime().allocate(jobs, Pool.uniform(5, 4), 0.0)
    assert sorted(allocated.values()) == [4, 8, 8]


def test_no_job_is_restarted_for_a_part_of_a_step() -> None:
    jobs = [
        _job(f"job-{n}", 1e6, STEPS_OF_8, allocation=((2 * n, 4), (2 * n + 1, 4)), restart_s=30.0)
        for n in range(2)
    ]
    allocated = MinTime().allocate(jobs, Pool.uniform(5, 4), 0.0)
    assert allocated == {"job-0": 8, "job-1": 8}


def test_jobs_that_are_nearly_done_are_not_moved() -> None:
    halves = [tuple((machine, 4) for machine in range(8 * n, 8 * n + 8)) for n in range(2)]
    nearly = [
        _job(f"job-{n}", 600.0 + n, LINEAR, allocation=halves[n], restart_s=60.0) for n in range(2)
    ]
    pool = Pool.uniform(16, 4)
    assert MinTime().allocate(nearly, pool, 0.0) == {"job-0": 32, "job-1": 32}
    long = [replace(job, remaining_work=1000 * job.remaining_work) for job in nearly]
    assert MinTime().allocate(long, pool, 0.0) == {"job-0": 64}


def test_no_job_is_restarted_if_it_gains_less_than_the_restart_costs() -> None:
    slow = Curve(np.array([0.0, 1.0, 1.5, 1.8, 2.0]))
    job = JobView("a", slow, 100.0, max_gpus=4, elastic=True, restart_s=60.0, allocation=((0, 2),))
    assert MinTime().allocate([job], Pool.uniform(1, 4), 0.0) == {"a": 2}
    longer = JobView(
        "a", slow, 10_000.0, max_gpus=4, elastic=True, restart_s=60.0, allocation=((0, 2),)
    )
    assert MinTime().allocate([longer], Pool.uniform(1, 4), 0.0) == {"a": 4}
