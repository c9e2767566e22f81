"""`min-time` against brute force on small cases, and what it does in cases that people can check."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies import JobView, Pool
from gpuyard.jobs.policies.min_time import MinTime
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import SteadyWork

INFINITE = float("inf")


class AtOnce(MinTime):
    """Decides at every end, as brute force does, and not only in rounds."""

    round_s = None


def _ways(jobs: int, gpus: int) -> Iterator[tuple[int, ...]]:
    if jobs == 0:
        yield ()
        return
    for first in range(gpus + 1):
        for rest in _ways(jobs - 1, gpus - first):
            yield (first, *rest)


def best_mean(works: list[float], curves: list[Curve], gpus: int, restart_s: float) -> float:
    """The least mean completion time of all ways to deal GPUs at the start and at each end."""
    least = INFINITE

    def follow(
        left: dict[int, float],
        has: dict[int, int],
        ready: dict[int, float],
        now: float,
        total: float,
    ) -> None:
        nonlocal least
        if not left:
            least = min(least, total)
            return
        if total + sum(now + work / curves[i].best[-1] for i, work in left.items()) >= least:
            return
        for way in _ways(len(left), gpus):
            given = dict(zip(left, way, strict=True))
            starts = {
                i: max(now, ready[i]) if given[i] == has[i] else now + restart_s for i in left
            }
            ends = {i: starts[i] + curves[i].seconds(left[i], given[i]) for i in left}
            first = min(ends.values())
            if first == INFINITE:
                continue
            rest = {
                i: left[i] - curves[i].speed(given[i]) * max(0.0, first - starts[i])
                for i in left
                if ends[i] > first + 1e-9
            }
            follow(rest, given, starts, first, total + first * (len(left) - len(rest)))

    everyone = range(len(works))
    follow(
        dict(enumerate(works)), dict.fromkeys(everyone, 0), dict.fromkeys(everyone, 0.0), 0.0, 0.0
    )
    return least / len(works)


def _worst_of(seeds: Iterable[int], counts: Sequence[int]) -> float:
    return max(_beside_the_best(random.Random(seed), counts) for seed in seeds)


def test_within_5_percent_of_the_best_of_all_ways_however_long_a_restart_takes() -> None:
    assert _worst_of(range(120), (2, 3)) <= 1.05
    assert _worst_of(range(8), (4,)) <= 1.05


@pytest.mark.soak
def test_within_5_percent_of_the_best_of_all_ways_in_many_cases() -> None:
    assert _worst_of(range(3000), (2, 3)) <= 1.05
    assert _worst_of(range(200), (4,)) <= 1.05


def _beside_the_best(chance: random.Random, counts: Sequence[int]) -> float:
    """The mean completion time beside that of the best of all ways, for jobs and curves at random."""
    gpus = chance.choice((2, 3, 4))
    count = chance.choice(counts)
    restart_s = 20_000 * chance.choice((0.0, 0.001, 0.01, 0.1, 0.3, 1.0, 3.0))
    curves = []
    for _ in range(count):
        power = chance.uniform(0.3, 1.0)
        speeds = np.array([n**power for n in range(gpus + 1)])
        if chance.random() < 0.3:
            speeds[chance.randrange(2, gpus + 1)] *= 0.7  # a split that doesn't pay
        curves.append(Curve(speeds))
    works = [chance.uniform(2_000, 40_000) for _ in range(count)]
    jobs = tuple(
        TraceJob(
            str(i), 0.0, SteadyWork(work, curve), most_gpus=gpus, elastic=True, restart_s=restart_s
        )
        for i, (work, curve) in enumerate(zip(works, curves, strict=True))
    )
    reached = simulate(Trace("", jobs), AtOnce(), Pool.uniform(1, gpus)).completion_seconds.mean()
    best = best_mean(works, curves, gpus, restart_s)
    assert reached >= best * (1 - 1e-9)
    return float(reached / best)


def _job(name: str, work: float, curve: Curve, **more: object) -> JobView:
    return JobView(name, curve, work, most_gpus=64, elastic=True, **more)  # type: ignore[arg-type]


LINEAR = Curve(np.arange(65.0))


def test_where_all_scale_linearly_the_shortest_has_everything() -> None:
    jobs = [_job(f"job-{n}", 1000.0 * n, LINEAR) for n in range(1, 9)]
    assert MinTime().allocate(jobs, Pool.uniform(16, 4), 0.0) == {"job-1": 64}


def test_a_step_past_a_plateau_is_seen() -> None:
    speeds = np.minimum(np.arange(65.0), 1) + (np.arange(65) >= 4) * 3.0
    jobs = [_job(f"job-{n}", 1000.0, Curve(speeds)) for n in range(5)]
    given = MinTime().allocate(jobs, Pool.uniform(5, 4), 0.0)
    assert sorted(given.values()) == [4, 4, 4, 4, 4]


def test_a_heavier_job_is_served_like_a_shorter_one() -> None:
    jobs = [_job(f"job-{n}", 1000.0 + n, LINEAR) for n in range(8)]
    jobs.append(_job("heavy", 5000.0, LINEAR, weight=10.0))
    assert MinTime().allocate(jobs, Pool.uniform(16, 4), 0.0) == {"heavy": 64}


def test_a_higher_priority_comes_first() -> None:
    jobs = [_job("short", 10.0, LINEAR), _job("urgent", 1e6, LINEAR, priority=1)]
    assert MinTime().allocate(jobs, Pool.uniform(16, 4), 0.0) == {"urgent": 64}

    few = Pool.uniform(1, 4)
    jobs = [replace(job, most_gpus=4) for job in jobs]
    assert MinTime().allocate(jobs, few, 0.0) == {"urgent": 4}


def test_nobody_gets_gpus_on_more_machines_that_only_slow_it() -> None:
    def over_a_slow_network(by_machine: tuple[int, ...]) -> float:
        return sum(by_machine) * (0.3 if len(by_machine) > 1 else 1.0)

    speeds = [over_a_slow_network((gpus,) if gpus <= 4 else (4, gpus - 4)) for gpus in range(9)]
    curve = Curve(np.array(speeds), over_a_slow_network)
    rigid = [
        JobView(name, Curve.rigid(2), 1e6, 2, 2, 2, allocation=((machine, 2),))
        for machine, name in enumerate("ab")
    ]
    job = JobView("new", curve, 1e6, 4, 1, 8, elastic=True)
    pool = Pool.uniform(2, 4)
    assert MinTime().allocate([*rigid, job], pool, 0.0) == {"a": 2, "b": 2, "new": 2}
    other = replace(job, id="other")
    given = MinTime().allocate([*rigid, job, other], pool, 0.0)
    assert given == {"a": 2, "b": 2, "new": 2, "other": 2}, "what it leaves is not left idle"


STEPS_OF_8 = Curve(np.array([0.01 * n + min(n // 8, 1) + 0.2 * (n >= 16) for n in range(65)]))


def test_what_a_whole_step_leaves_over_goes_to_whom_it_helps() -> None:
    jobs = [_job(f"job-{n}", 1000.0, STEPS_OF_8) for n in range(3)]
    given = MinTime().allocate(jobs, Pool.uniform(5, 4), 0.0)
    assert sorted(given.values()) == [4, 8, 8]


def test_nobody_is_restarted_for_a_part_of_a_step() -> None:
    jobs = [
        _job(f"job-{n}", 1e6, STEPS_OF_8, allocation=((2 * n, 4), (2 * n + 1, 4)), restart_s=30.0)
        for n in range(2)
    ]
    given = MinTime().allocate(jobs, Pool.uniform(5, 4), 0.0)
    assert given == {"job-0": 8, "job-1": 8}


def test_jobs_that_are_nearly_done_are_left_where_they_are() -> None:
    halves = [tuple((machine, 4) for machine in range(8 * n, 8 * n + 8)) for n in range(2)]
    nearly = [
        _job(f"job-{n}", 600.0 + n, LINEAR, allocation=halves[n], restart_s=60.0) for n in range(2)
    ]
    pool = Pool.uniform(16, 4)
    assert MinTime().allocate(nearly, pool, 0.0) == {"job-0": 32, "job-1": 32}
    long = [replace(job, remaining_work=1000 * job.remaining_work) for job in nearly]
    assert MinTime().allocate(long, pool, 0.0) == {"job-0": 64}


def test_nobody_is_restarted_for_less_than_the_restart_costs() -> None:
    slow = Curve(np.array([0.0, 1.0, 1.5, 1.8, 2.0]))
    job = JobView("a", slow, 100.0, most_gpus=4, elastic=True, restart_s=60.0, allocation=((0, 2),))
    assert MinTime().allocate([job], Pool.uniform(1, 4), 0.0) == {"a": 2}
    longer = JobView(
        "a", slow, 10_000.0, most_gpus=4, elastic=True, restart_s=60.0, allocation=((0, 2),)
    )
    assert MinTime().allocate([longer], Pool.uniform(1, 4), 0.0) == {"a": 4}
