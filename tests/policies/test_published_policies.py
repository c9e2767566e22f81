"""Tiresias and Optimus as in their papers and in the Pollux paper's simulations."""

import numpy as np
import pytest

from gpuyard.policies import JobView, Pool, get_policy
from gpuyard.policies.curve import Curve

POOL = Pool.uniform(2, 4)


def _job(name: str, **more: object) -> JobView:
    curve = Curve(np.array([0.0, 1.0, 1.8, 2.4, 2.8, 2.0, 5.0, 5.0, 5.0]))
    fields = {"remaining_work": 1000.0, "max_gpus": 8, "elastic": True, "restart_s": 30.0} | more
    return JobView(name, curve, **fields)  # type: ignore[arg-type]


def test_tiresias_puts_a_job_with_16_gpu_hours_behind_new_ones() -> None:
    jobs = [
        _job("old", requested_gpus=8, attained_gpu_s=16 * 3600.0, allocation=((0, 4), (1, 4))),
        _job("new", requested_gpus=4, submitted_s=9.0),
    ]
    assert get_policy("tiresias").allocate(jobs, POOL, 10.0) == {"new": 4}
    younger = [_job("old", requested_gpus=8, attained_gpu_s=16 * 3600.0 - 1), jobs[1]]
    assert get_policy("tiresias").allocate(younger, POOL, 10.0) == {"old": 8}


def test_tiresias_skips_jobs_that_do_not_fit() -> None:
    jobs = [
        _job("a", requested_gpus=6),
        _job("b", requested_gpus=4, submitted_s=1.0),
        _job("c", requested_gpus=2, submitted_s=2.0),
    ]
    assert get_policy("tiresias").allocate(jobs, POOL, 10.0) == {"a": 6, "c": 2}


def test_tiresias_places_on_the_emptiest_machine() -> None:
    jobs = [_job("stays", requested_gpus=1, allocation=((0, 1),)), _job("new", requested_gpus=2)]
    tiresias = get_policy("tiresias")
    allocated = tiresias.allocate(jobs, POOL, 10.0)
    assert tiresias.place(allocated, jobs, POOL)["new"] == ((1, 2),)


def test_optimus_gives_one_gpu_each_and_then_more_where_it_saves_most() -> None:
    jobs = [_job("long", remaining_work=10_000.0), _job("short", remaining_work=100.0)]
    allocated = get_policy("optimus").allocate(jobs, POOL, 10.0)
    assert allocated == {"long": 4, "short": 4}, "a fifth GPU alone helps no job"


def test_optimus_does_not_count_restarts() -> None:
    running = _job("a", remaining_work=100.0, allocation=((0, 1),))
    assert get_policy("optimus").allocate([running], POOL, 10.0) == {"a": 4}


@pytest.mark.parametrize("name", ["optimus", "tiresias"])
def test_a_job_that_cannot_resume_keeps_its_gpus(name: str) -> None:
    rigid = _job(
        "rigid",
        requested_gpus=6,
        min_gpus=6,
        max_gpus=6,
        elastic=False,
        allocation=((0, 4), (1, 2)),
        attained_gpu_s=1e9,
    )
    jobs = [rigid, _job("new", requested_gpus=2)]
    assert get_policy(name).allocate(jobs, POOL, 10.0) == {"rigid": 6, "new": 2}
