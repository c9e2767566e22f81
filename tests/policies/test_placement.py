"""Placement: jobs use as few machines as possible and leave large gaps to large jobs."""

import numpy as np
import pytest

from gpuyard.policies import Allocation, JobView, Pool
from gpuyard.policies.curve import Curve
from gpuyard.policies.placement import choose_gpus, place


def _view(name: str, allocation: Allocation | None = None) -> JobView:
    curve = Curve.from_points({1: 1.0})
    return JobView(name, curve, 1.0, max_gpus=32, allocation=allocation, elastic=True)


@pytest.mark.parametrize(
    ("free", "gpus", "allocation"),
    [
        ([4, 2, 3], 2, ((1, 2),)),  # the fullest that has room
        ([4, 4, 1], 6, ((0, 4), (1, 2))),
        ([4, 4, 2], 6, ((0, 4), (2, 2))),  # the remainder where it fits exactly
        ([1, 1, 1], 3, ((0, 1), (1, 1), (2, 1))),
    ],
)
def test_as_few_machines_as_possible(free: list[int], gpus: int, allocation: Allocation) -> None:
    assert choose_gpus(np.array(free), gpus) == allocation


def test_one_rack_is_better_than_fewer_machines_in_two() -> None:
    free = np.array([4, 0, 3, 1, 1])
    racks = np.array([0, 0, 1, 1, 1])
    assert choose_gpus(free, 5, racks) == ((2, 3), (3, 1), (4, 1))
    assert choose_gpus(free, 6, racks) == ((0, 4), (2, 2)), "no rack has six"


def test_a_job_uses_fewer_gpus_in_one_rack_if_two_racks_make_it_slower() -> None:
    def speed_in_rack(by_machine: tuple[int, ...]) -> float:
        return float(sum(by_machine))

    curve = Curve(np.arange(17.0), speed_in_rack, lambda by_machine: 0.4 * sum(by_machine))
    job = JobView("new", curve, 1.0, max_gpus=12)
    other = JobView("other", Curve.rigid(4), 1.0, allocation=((0, 4),))
    racks = Pool.uniform(4, 4, per_rack=2)
    placed = place({"new": 12, "other": 4}, [job, other], racks, shrink=True)
    assert placed["new"] == ((2, 4), (3, 4)), "12 would be in both racks, at 4.8"
    whole = place({"new": 12, "other": 4}, [job, other], Pool.uniform(4, 4), shrink=True)
    assert sum(gpus for _, gpus in whole["new"]) == 12


def test_more_gpus_than_are_free_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"5 GPUs .* only 4"):
        choose_gpus(np.array([2, 2]), 5)


def test_a_job_with_the_same_number_stays_and_the_largest_chooses_first() -> None:
    pool = Pool.uniform(3, 4)
    jobs = [_view("stays", ((1, 2),)), _view("small"), _view("large")]
    placed = place({"stays": 2, "small": 2, "large": 8}, jobs, pool)
    assert placed == {"stays": ((1, 2),), "large": ((0, 4), (2, 4)), "small": ((1, 2),)}


def test_small_jobs_leave_whole_machines_to_those_that_need_them() -> None:
    placed = place(
        {"a": 1, "b": 1, "c": 3, "d": 3}, [_view(name) for name in "abcd"], Pool.uniform(2, 4)
    )
    assert all(len(allocation) == 1 for allocation in placed.values())


def test_published_simulations_use_the_emptiest_machines_in_the_order_of_jobs() -> None:
    jobs = [_view("stays", ((0, 3),)), _view("one"), _view("six")]
    placed = place({"stays": 3, "one": 1, "six": 6}, jobs, Pool.uniform(3, 4), emptiest=True)
    assert placed == {"stays": ((0, 3),), "one": ((1, 1),), "six": ((1, 2), (2, 4))}


def test_a_growing_job_stays_on_its_machine_if_there_is_room() -> None:
    pool = Pool.uniform(2, 4)
    placed = place({"grows": 4}, [_view("grows", ((1, 1),))], pool)
    assert placed == {"grows": ((1, 4),)}


def test_a_job_without_gpus_is_not_placed() -> None:
    assert place({"stopped": 0}, [_view("stopped", ((0, 1),))], Pool.uniform(1, 4)) == {}
