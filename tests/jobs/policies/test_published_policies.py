"""Tiresias and Optimus as their papers and the Pollux paper's simulations have them."""

import numpy as np
import pytest

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies import JobView, Pool, policy_of

POOL = Pool.uniform(2, 4)


def _job(name: str, **more: object) -> JobView:
    curve = Curve(np.array([0.0, 1.0, 1.8, 2.4, 2.8, 2.0, 5.0, 5.0, 5.0]))
    fields = {"remaining_work": 1000.0, "most_gpus": 8, "elastic": True, "restart_s": 30.0} | more
    return JobView(name, curve, **fields)  # type: ignore[arg-type]


def test_tiresias_lets_a_job_that_had_16_gpu_hours_wait_for_new_ones() -> None:
    jobs = [
        _job("old", asked_gpus=8, attained_gpu_s=16 * 3600.0, allocation=((0, 4), (1, 4))),
        _job("new", asked_gpus=4, submitted_s=9.0),
    ]
    assert policy_of("tiresias").allocate(jobs, POOL, 10.0) == {"new": 4}
    younger = [_job("old", asked_gpus=8, attained_gpu_s=16 * 3600.0 - 1), jobs[1]]
    assert policy_of("tiresias").allocate(younger, POOL, 10.0) == {"old": 8}


def test_tiresias_passes_by_what_does_not_fit() -> None:
    jobs = [
        _job("a", asked_gpus=6),
        _job("b", asked_gpus=4, submitted_s=1.0),
        _job("c", asked_gpus=2, submitted_s=2.0),
    ]
    assert policy_of("tiresias").allocate(jobs, POOL, 10.0) == {"a": 6, "c": 2}


def test_tiresias_places_on_the_emptiest_machine() -> None:
    jobs = [_job("stays", asked_gpus=1, allocation=((0, 1),)), _job("new", asked_gpus=2)]
    tiresias = policy_of("tiresias")
    given = tiresias.allocate(jobs, POOL, 10.0)
    assert tiresias.place(given, jobs, POOL)["new"] == ((1, 2),)


def test_optimus_gives_one_each_and_then_where_it_saves_most() -> None:
    jobs = [_job("long", remaining_work=10_000.0), _job("short", remaining_work=100.0)]
    given = policy_of("optimus").allocate(jobs, POOL, 10.0)
    assert given == {"long": 4, "short": 4}, "nobody gains by the fifth alone"


def test_optimus_does_not_count_restarts() -> None:
    running = _job("a", remaining_work=100.0, allocation=((0, 1),))
    assert policy_of("optimus").allocate([running], POOL, 10.0) == {"a": 4}


@pytest.mark.parametrize("name", ["optimus", "tiresias"])
def test_what_can_t_go_on_is_left_alone(name: str) -> None:
    rigid = _job(
        "rigid",
        asked_gpus=6,
        least_gpus=6,
        most_gpus=6,
        elastic=False,
        allocation=((0, 4), (1, 2)),
        attained_gpu_s=1e9,
    )
    jobs = [rigid, _job("new", asked_gpus=2)]
    assert policy_of(name).allocate(jobs, POOL, 10.0) == {"rigid": 6, "new": 2}
