"""Rates and step parts, checked against hand calculations and tables of Student's t."""

import pytest

from gpuyard.measure.training.records import Window
from gpuyard.measure.training.statistics import estimate_rate, student_t_quantile
from gpuyard.measure.training.timing import WindowSchedule, calculate_measured_step, plan_windows


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (30, 2.042)],
)
def test_t_quantiles_match_published_tables(degrees: int, quantile: float) -> None:
    assert student_t_quantile(degrees) == pytest.approx(quantile, abs=5e-4)


def test_t_quantile_at_another_confidence() -> None:
    assert student_t_quantile(5, confidence=0.99) == pytest.approx(4.032, abs=5e-4)


def test_interval_matches_a_hand_calculation() -> None:
    # mean 1 s, standard deviation 0.1 s: half width 4.3027 × 0.1 / √3 = 0.2484 s, so 24.84%
    rate = estimate_rate([0.9, 1.0, 1.1], count_per_window=200)
    assert rate.per_second == pytest.approx(200)
    assert rate.low == pytest.approx(200 * (1 - 0.24841), rel=1e-4)
    assert rate.high == pytest.approx(200 * (1 + 0.24841), rel=1e-4)


def test_rate_is_all_samples_over_all_time() -> None:
    # the mean of the windows' own rates would be (100 + 25) / 2 = 62.5
    assert estimate_rate([1.0, 4.0], count_per_window=100).per_second == pytest.approx(40)


def test_very_different_windows_never_give_a_negative_rate() -> None:
    assert estimate_rate([0.1, 10.0], count_per_window=1).low == 0


def test_equal_windows_give_a_point() -> None:
    rate = estimate_rate([2.0, 2.0, 2.0], count_per_window=10)
    assert (rate.low, rate.per_second, rate.high) == (5.0, 5.0, 5.0)


@pytest.mark.parametrize(
    ("step_seconds", "budget_seconds", "kinds", "expected"),
    [
        (0.01, 3.0, 1, WindowSchedule(10, 30, 0)),
        (0.01, 3.0, 2, WindowSchedule(10, 15, 10)),
        (0.5, 3.0, 1, WindowSchedule(6, 1, 0)),
        (0.4, 3.0, 2, WindowSchedule(3, 1, 3)),
        (20.0, 3.0, 2, WindowSchedule(3, 1, 1)),
        (0.0, 3.0, 1, WindowSchedule(10, 300_000_000, 0)),
    ],
)
def test_schedule_fills_the_budget_with_at_least_three_windows(
    step_seconds: float, budget_seconds: float, kinds: int, expected: WindowSchedule
) -> None:
    assert plan_windows(step_seconds, budget_seconds, kinds) == expected


def _window(seconds: float, input_seconds: float = 0.0) -> Window:
    return Window(steps=10, seconds=seconds, input_seconds=input_seconds)


def test_step_parts_add_up() -> None:
    parts = calculate_measured_step(
        (_window(1.0, 0.1), _window(2.0, 0.3)), (_window(0.9), _window(1.1))
    )
    assert parts.step_seconds == pytest.approx(0.15)
    assert parts.input_seconds == pytest.approx(0.02)
    assert parts.exposed_communication_seconds == pytest.approx(0.05)
    assert parts.compute_seconds == pytest.approx(0.08)


def test_noise_never_makes_communication_negative() -> None:
    parts = calculate_measured_step((_window(1.0, 0.1),), (_window(1.2),))
    assert parts.exposed_communication_seconds == 0
    assert parts.compute_seconds == pytest.approx(0.09)
