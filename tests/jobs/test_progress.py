"""A job's reports correct its curve and predict its end."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.jobs.curve_correction import correct_curve
from gpuyard.jobs.progress import estimate_progress
from gpuyard.policies.curve import Curve
from gpuyard.reporting.windows import StepWindow

# 100 samples per second for each of 8 GPUs, within roughly 25%
CURVE = Curve(np.linspace(0.0, 800.0, 9), low=0.75, high=1.3)


def reports(speed: float, count: int = 10, **more: Any) -> list[StepWindow]:
    """Create reports of ten seconds each."""
    fields = {"gpus": 4, "start": "a", **more}
    return [
        StepWindow(
            steps=100,
            samples=10 * speed,
            seconds=10.0,
            step_seconds=0.1,
            at=1000.0 + 10 * (i + 1),
            **fields,
        )
        for i in range(count)
    ]


def get_speed(curve: Curve | None, gpus: int) -> float:
    assert curve is not None
    return curve.speed(gpus)


def test_reports_of_absurdly_many_gpu_counts_are_still_estimated() -> None:
    windows = [window for gpus in range(1, 20_000) for window in reports(9, count=1, gpus=gpus)]
    largest = reports(9, count=1, gpus=200_000, nodes=200_000)
    for curve in (CURVE, None):
        progress = estimate_progress([*windows, *largest], curve=curve, gpus=4, now=2000.0)
        assert progress.curve is not None
        assert np.isfinite(progress.curve.packed).all()


@given(
    st.lists(st.tuples(st.integers(1, 20), st.floats(1e-3, 1e6)), min_size=1, max_size=8),
    st.integers(1, 30),
)
def test_without_a_curve_the_speed_is_that_of_the_curve_of_the_reports(
    runs: list[tuple[int, float]], gpus: int
) -> None:
    windows = [w for count, speed in runs for w in reports(speed, count=2, gpus=count)]
    progress = estimate_progress(windows, curve=None, gpus=gpus, now=2000.0)
    assert progress.samples_per_second == pytest.approx(get_speed(progress.curve, gpus))


def test_without_reports_the_curve_alone_counts() -> None:
    progress = estimate_progress([], curve=CURVE, gpus=4, now=1000.0, total_samples=40_000)
    assert progress.curve is CURVE
    assert (progress.done_samples, progress.samples_per_second, progress.share) == (0, 400, 0)
    assert progress.expected_end == 1100
    assert progress.speed_basis == "predicted"


def test_a_speed_is_measured_only_on_the_gpus_that_the_job_has_now() -> None:
    """A warm-up or another number of GPUs says something about the speed, but does not measure it."""

    def basis(windows: list[StepWindow]) -> str | None:
        return estimate_progress(windows, curve=CURVE, gpus=4, now=1200.0).speed_basis

    assert basis(reports(200)) == "measured"
    assert basis(reports(200, warmup=True)) == "predicted"
    assert basis(reports(200, gpus=2)) == "predicted"
    assert estimate_progress([], curve=None, gpus=4, now=1200.0).speed_basis is None


def test_a_job_slower_than_its_curve_ends_later_and_with_more_certainty() -> None:
    progress = estimate_progress(
        reports(200), curve=CURVE, gpus=4, now=1101.0, total_samples=40_000
    )
    assert progress.done_samples == 20_000
    assert progress.samples_per_second == pytest.approx(200, rel=0.02)
    assert progress.expected_end == pytest.approx(1200, abs=5)
    assert progress.curve is not None
    assert progress.curve.high / progress.curve.low < 1.3 / 0.75


def test_reports_with_four_gpus_correct_five_more_than_one() -> None:
    corrected = correct_curve(CURVE, reports(200), gpus=4)
    factors = [get_speed(corrected, gpus) / CURVE.speed(gpus) for gpus in (4, 5, 2, 1)]
    assert factors == sorted(factors)
    assert factors[0] == pytest.approx(0.5, rel=0.02)
    assert factors[-1] < 0.85


def test_every_observed_number_of_gpus_counts() -> None:
    windows = [*reports(90, gpus=1), *reports(200, gpus=4, start="b")]
    corrected = correct_curve(CURVE, windows, gpus=4)
    assert get_speed(corrected, 1) == pytest.approx(90, rel=0.02)
    assert get_speed(corrected, 4) == pytest.approx(200, rel=0.02)


def test_one_window_counts_less_than_ten() -> None:
    single = correct_curve(CURVE, reports(380, count=1), gpus=4)
    ten = correct_curve(CURVE, reports(380, count=10), gpus=4)
    assert 380 < get_speed(ten, 4) < get_speed(single, 4) < 400


def test_warmup_counts_as_work_but_not_as_speed() -> None:
    slow = reports(10, count=1, warmup=True)
    progress = estimate_progress(slow, curve=CURVE, gpus=4, now=1010.0, total_samples=40_000)
    assert progress.curve is CURVE
    assert progress.done_samples == 100


def test_without_a_curve_the_reports_are_the_curve() -> None:
    progress = estimate_progress(reports(200), curve=None, gpus=4, now=1100.0, total_samples=40_000)
    assert progress.expected_end == pytest.approx(1200)
    assert get_speed(progress.curve, 4) == 200
    unknown = estimate_progress([], curve=None, gpus=4, now=1100.0, total_samples=40_000)
    assert (unknown.curve, unknown.expected_end, unknown.samples_per_second) == (None, None, None)


def test_the_split_over_machines_is_corrected_too() -> None:
    split = Curve(CURVE.packed, split=lambda counts: 80.0 * sum(counts), low=0.75, high=1.3)
    corrected = correct_curve(split, reports(160, nodes=2), gpus=4)
    assert corrected is not None
    assert corrected.speed_on([2, 2]) == pytest.approx(160, rel=0.02)
    assert corrected.speed_on([4]) == corrected.speed_on(
        [2, 2]
    )  # as this split function defines it
    assert corrected.speed(4) == pytest.approx(200, rel=0.02)


def test_a_start_from_a_checkpoint_continues_and_one_without_starts_over() -> None:
    windows = [*reports(400), *reports(200, start="b", count=5)]
    restarted = estimate_progress(windows, curve=CURVE, gpus=4, now=1100.0, total_samples=100_000)
    assert restarted.done_samples == 10_000
    resumed = estimate_progress(
        windows, curve=CURVE, gpus=4, now=1100.0, total_samples=100_000, resumes=True
    )
    assert resumed.done_samples == 50_000


def test_numbered_steps_give_the_progress() -> None:
    windows = reports(200, number=750, total=1000, start="c")
    progress = estimate_progress(windows, curve=CURVE, gpus=4, now=1100.0)
    assert (progress.total_samples, progress.done_samples, progress.share) == (20_000, 15_000, 0.75)
    assert progress.expected_end == pytest.approx(1100 + 25, abs=1)


def test_an_end_is_never_in_the_past() -> None:
    progress = estimate_progress(
        reports(400), curve=CURVE, gpus=4, now=5000.0, total_samples=40_000
    )
    assert progress.expected_end == 5000
    assert progress.share == 1


def test_an_end_in_a_thousand_years_is_not_reported() -> None:
    progress = estimate_progress(reports(1e-9), curve=None, gpus=4, now=1100.0, total_samples=1e15)
    assert progress.expected_end is None
    assert progress.samples_per_second == pytest.approx(1e-9)


def test_a_rigid_curve_learns_a_new_number_of_gpus() -> None:
    corrected = correct_curve(Curve.rigid(4, 400.0), reports(100, gpus=2), gpus=2)
    assert get_speed(corrected, 2) == pytest.approx(100)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 10_000),
            st.just(0.0) | st.floats(1e-12, 1e15),
            st.floats(1e-12, 1e15),
            st.integers(1, 100),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_any_reports_give_a_curve(
    reported: list[tuple[int, float, float, int, bool]],
) -> None:
    windows = [
        StepWindow(
            1, samples, seconds, seconds, gpus=gpus, nodes=min(nodes, gpus), warmup=warmup, at=5.0
        )
        for gpus, samples, seconds, nodes, warmup in reported
    ]
    progress = estimate_progress(windows, curve=CURVE, gpus=4, now=10.0, total_samples=1000)
    assert progress.curve is not None
    assert np.isfinite(progress.curve.packed).all()
    assert 0 < progress.curve.low <= 1 <= progress.curve.high
    assert progress.expected_end is None or (
        progress.expected_end >= 10 and not math.isnan(progress.expected_end)
    )
