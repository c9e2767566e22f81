"""Scaling curves: interpolated, beyond the last measurement, and split over machines."""

import math

import numpy as np
import pytest

from gpuyard.policies.curve import Curve


def test_efficiency_is_interpolated_between_measurements() -> None:
    curve = Curve.from_points({1: 10.0, 4: 32.0})
    assert curve.packed.tolist() == pytest.approx([0, 10, 2 * 28 / 3, 3 * 26 / 3, 32])


def test_speed_stays_the_same_beyond_the_last_measurement() -> None:
    curve = Curve.from_points({1: 10.0, 2: 18.0}, max_gpus=4)
    assert curve.packed.tolist() == [0, 10, 18, 18, 18]
    assert curve.speed(100) == 18


def test_best_speed_leaves_gpus_that_slow_the_job_idle() -> None:
    curve = Curve(np.array([0.0, 5, 8, 7]))
    assert curve.best.tolist() == [0, 5, 8, 8]


def test_a_rigid_job_runs_on_exactly_its_number_of_gpus() -> None:
    curve = Curve.rigid(4)
    assert curve.seconds(100, 4) == 100
    assert math.isinf(curve.seconds(100, 2))


def test_split_speed_gets_the_gpus_by_machine_largest_first() -> None:
    shapes = []
    curve = Curve(np.arange(5.0), split=lambda by_machine: shapes.append(by_machine) or 1.5)  # type: ignore[func-returns-value]
    assert curve.speed_on([1, 0, 3]) == 1.5
    assert shapes == [(3, 1)]
    assert curve.speed_on([]) == 0


@pytest.mark.parametrize("packed", [[0.0], [1.0, 2.0], [[0.0, 1.0]]])
def test_invalid_speeds_are_rejected(packed: list[float]) -> None:
    with pytest.raises(ValueError, match="packed"):
        Curve(np.array(packed))
