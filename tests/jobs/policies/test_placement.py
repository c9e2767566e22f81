"""Where a job's GPUs are: as few machines as hold them, and large gaps are left to large jobs."""

import numpy as np
import pytest

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies import Allocation, JobView, Pool
from gpuyard.jobs.policies.placement import choose, place


def _view(name: str, allocation: Allocation | None = None) -> JobView:
    curve = Curve.of_points({1: 1.0})
    return JobView(name, curve, 1.0, most_gpus=32, allocation=allocation, elastic=True)


@pytest.mark.parametrize(
    ("free", "gpus", "where"),
    [
        ([4, 2, 3], 2, ((1, 2),)),  # the fullest that has room
        ([4, 4, 1], 6, ((0, 4), (1, 2))),
        ([4, 4, 2], 6, ((0, 4), (2, 2))),  # the rest where it fits exactly
        ([1, 1, 1], 3, ((0, 1), (1, 1), (2, 1))),
    ],
)
def test_as_few_machines_as_hold_them(free: list[int], gpus: int, where: Allocation) -> None:
    assert choose(np.array(free), gpus) == where


def test_one_rack_is_better_than_fewer_machines_in_two() -> None:
    free = np.array([4, 0, 3, 1, 1])
    racks = np.array([0, 0, 1, 1, 1])
    assert choose(free, 5, racks) == ((2, 3), (3, 1), (4, 1))
    assert choose(free, 6, racks) == ((0, 4), (2, 2)), "no rack has six"


def test_fewer_gpus_of_one_rack_are_taken_where_two_racks_only_slow_a_job() -> None:
    def in_one(by_machine: tuple[int, ...]) -> float:
        return float(sum(by_machine))

    curve = Curve(np.arange(17.0), in_one, lambda by_machine: 0.4 * sum(by_machine))
    job = JobView("new", curve, 1.0, most_gpus=12)
    other = JobView("other", Curve.rigid(4), 1.0, allocation=((0, 4),))
    racks = Pool.uniform(4, 4, per_rack=2)
    placed = place({"new": 12, "other": 4}, [job, other], racks, shrink=True)
    assert placed["new"] == ((2, 4), (3, 4)), "12 would be in both racks, at 4.8"
    whole = place({"new": 12, "other": 4}, [job, other], Pool.uniform(4, 4), shrink=True)
    assert sum(gpus for _, gpus in whole["new"]) == 12


def test_more_than_is_free_is_refused() -> None:
    with pytest.raises(ValueError, match="5 GPUs are more than the 4"):
        choose(np.array([2, 2]), 5)


def test_who_keeps_its_number_stays_where_it_is_and_the_largest_chooses_first() -> None:
    pool = Pool.uniform(3, 4)
    jobs = [_view("stays", ((1, 2),)), _view("small"), _view("large")]
    placed = place({"stays": 2, "small": 2, "large": 8}, jobs, pool)
    assert placed == {"stays": ((1, 2),), "large": ((0, 4), (2, 4)), "small": ((1, 2),)}


def test_small_jobs_leave_whole_machines_to_those_that_need_them() -> None:
    placed = place(
        {"a": 1, "b": 1, "c": 3, "d": 3}, [_view(name) for name in "abcd"], Pool.uniform(2, 4)
    )
    assert all(len(where) == 1 for where in placed.values())


def test_published_simulations_take_the_emptiest_machines_in_the_order_of_jobs() -> None:
    jobs = [_view("stays", ((0, 3),)), _view("one"), _view("six")]
    placed = place({"stays": 3, "one": 1, "six": 6}, jobs, Pool.uniform(3, 4), emptiest=True)
    assert placed == {"stays": ((0, 3),), "one": ((1, 1),), "six": ((1, 2), (2, 4))}


def test_a_job_that_grows_stays_on_its_machine_where_there_is_room() -> None:
    pool = Pool.uniform(2, 4)
    placed = place({"grows": 4}, [_view("grows", ((1, 1),))], pool)
    assert placed == {"grows": ((1, 4),)}


def test_a_job_that_gets_nothing_is_nowhere() -> None:
    assert place({"stopped": 0}, [_view("stopped", ((0, 1),))], Pool.uniform(1, 4)) == {}
