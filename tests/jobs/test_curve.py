"""Scaling curves: between measured numbers of GPUs, past them, and split over machines."""

import math

import numpy as np
import pytest

from gpuyard.jobs.curve import Curve


def test_between_two_measurements_a_gpu_does_neither_more_nor_less_than_at_them() -> None:
    curve = Curve.of_points({1: 10.0, 4: 32.0})
    assert curve.packed.tolist() == pytest.approx([0, 10, 2 * 28 / 3, 3 * 26 / 3, 32])


def test_past_the_last_measurement_it_gets_no_faster() -> None:
    curve = Curve.of_points({1: 10.0, 2: 18.0}, most=4)
    assert curve.packed.tolist() == [0, 10, 18, 18, 18]
    assert curve.speed(100) == 18


def test_gpus_that_slow_a_job_are_left_idle_in_its_best() -> None:
    curve = Curve(np.array([0.0, 5, 8, 7]))
    assert curve.best.tolist() == [0, 5, 8, 8]


def test_a_rigid_job_runs_on_its_own_number_only() -> None:
    curve = Curve.rigid(4)
    assert curve.seconds(100, 4) == 100
    assert math.isinf(curve.seconds(100, 2))


def test_a_split_is_asked_for_the_gpus_of_each_machine_the_largest_first() -> None:
    asked = []
    curve = Curve(np.arange(5.0), split=lambda by_machine: asked.append(by_machine) or 1.5)  # type: ignore[func-returns-value]
    assert curve.speed_on([1, 0, 3]) == 1.5
    assert asked == [(3, 1)]
    assert curve.speed_on([]) == 0


@pytest.mark.parametrize("packed", [[0.0], [1.0, 2.0], [[0.0, 1.0]]])
def test_what_is_no_curve_is_refused(packed: list[float]) -> None:
    with pytest.raises(ValueError, match="one for each number"):
        Curve(np.array(packed))
