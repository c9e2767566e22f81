"""What a job reports corrects its curve and says when it ends."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.progress import corrected_curve, progress_of
from gpuyard.steps.windows import StepWindow

# 100 samples a second for each of 8 GPUs, to 20 % or so
CURVE = Curve(np.linspace(0.0, 800.0, 9), low=0.75, high=1.3)


def reports(speed: float, count: int = 10, **said: Any) -> list[StepWindow]:
    """Of ten seconds each."""
    changed = {"gpus": 4, "start": "a", **said}
    return [
        StepWindow(
            steps=100,
            samples=10 * speed,
            seconds=10.0,
            step_seconds=0.1,
            at=1000.0 + 10 * (i + 1),
            **changed,
        )
        for i in range(count)
    ]


def speed_of(curve: Curve | None, gpus: int) -> float:
    assert curve is not None
    return curve.speed(gpus)


def test_without_a_report_the_curve_is_all_there_is() -> None:
    found = progress_of([], curve=CURVE, gpus=4, now=1000.0, total_samples=40_000)
    assert found.curve is CURVE
    assert (found.done_samples, found.samples_per_second, found.share) == (0, 400, 0)
    assert found.expected_end == 1100


def test_a_job_that_is_slower_than_its_curve_ends_later_and_that_is_more_certain() -> None:
    found = progress_of(reports(200), curve=CURVE, gpus=4, now=1101.0, total_samples=40_000)
    assert found.done_samples == 20_000
    assert found.samples_per_second == pytest.approx(200, rel=0.02)
    assert found.expected_end == pytest.approx(1200, abs=5)
    assert found.curve is not None
    assert found.curve.high / found.curve.low < 1.3 / 0.75


def test_what_is_seen_with_four_gpus_says_more_of_five_than_of_one() -> None:
    corrected = corrected_curve(CURVE, reports(200), gpus=4)
    factors = [speed_of(corrected, gpus) / CURVE.speed(gpus) for gpus in (4, 5, 2, 1)]
    assert factors == sorted(factors)
    assert factors[0] == pytest.approx(0.5, rel=0.02)
    assert factors[-1] < 0.85


def test_each_number_of_gpus_that_it_has_run_on_counts() -> None:
    seen = [*reports(90, gpus=1), *reports(200, gpus=4, start="b")]
    corrected = corrected_curve(CURVE, seen, gpus=4)
    assert speed_of(corrected, 1) == pytest.approx(90, rel=0.02)
    assert speed_of(corrected, 4) == pytest.approx(200, rel=0.02)


def test_one_window_is_believed_less_than_ten() -> None:
    one = corrected_curve(CURVE, reports(380, count=1), gpus=4)
    ten = corrected_curve(CURVE, reports(380, count=10), gpus=4)
    assert 380 < speed_of(ten, 4) < speed_of(one, 4) < 400


def test_warming_up_counts_as_work_and_not_as_speed() -> None:
    slow = reports(10, count=1, warmup=True)
    found = progress_of(slow, curve=CURVE, gpus=4, now=1010.0, total_samples=40_000)
    assert found.curve is CURVE
    assert found.done_samples == 100


def test_without_a_curve_what_was_seen_is_one() -> None:
    found = progress_of(reports(200), curve=None, gpus=4, now=1100.0, total_samples=40_000)
    assert found.expected_end == pytest.approx(1200)
    assert speed_of(found.curve, 4) == 200
    nothing = progress_of([], curve=None, gpus=4, now=1100.0, total_samples=40_000)
    assert (nothing.curve, nothing.expected_end, nothing.samples_per_second) == (None, None, None)


def test_the_split_over_machines_is_corrected_too() -> None:
    split = Curve(CURVE.packed, split=lambda counts: 80.0 * sum(counts), low=0.75, high=1.3)
    corrected = corrected_curve(split, reports(160, nodes=2), gpus=4)
    assert corrected is not None
    assert corrected.speed_on([2, 2]) == pytest.approx(160, rel=0.02)
    assert corrected.speed_on([4]) == corrected.speed_on([2, 2])  # as its own split says it
    assert corrected.speed(4) == pytest.approx(200, rel=0.02)


def test_a_start_from_a_checkpoint_goes_on_and_one_without_begins_again() -> None:
    seen = [*reports(400), *reports(200, start="b", count=5)]
    again = progress_of(seen, curve=CURVE, gpus=4, now=1100.0, total_samples=100_000)
    assert again.done_samples == 10_000
    on = progress_of(seen, curve=CURVE, gpus=4, now=1100.0, total_samples=100_000, resumes=True)
    assert on.done_samples == 50_000


def test_numbered_steps_know_how_far_it_is() -> None:
    seen = reports(200, number=750, total=1000, start="c")
    found = progress_of(seen, curve=CURVE, gpus=4, now=1100.0)
    assert (found.total_samples, found.done_samples, found.share) == (20_000, 15_000, 0.75)
    assert found.expected_end == pytest.approx(1100 + 25, abs=1)


def test_an_end_is_never_in_the_past() -> None:
    found = progress_of(reports(400), curve=CURVE, gpus=4, now=5000.0, total_samples=40_000)
    assert found.expected_end == 5000
    assert found.share == 1


def test_an_end_in_a_thousand_years_is_none() -> None:
    found = progress_of(reports(1e-9), curve=None, gpus=4, now=1100.0, total_samples=1e15)
    assert found.expected_end is None
    assert found.samples_per_second == pytest.approx(1e-9)


def test_a_rigid_curve_learns_of_a_number_that_it_did_not_know() -> None:
    corrected = corrected_curve(Curve.rigid(4, 400.0), reports(100, gpus=2), gpus=2)
    assert speed_of(corrected, 2) == pytest.approx(100)


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
def test_whatever_is_reported_gives_a_curve(
    said: list[tuple[int, float, float, int, bool]],
) -> None:
    windows = [
        StepWindow(
            1, samples, seconds, seconds, gpus=gpus, nodes=min(nodes, gpus), warmup=warmup, at=5.0
        )
        for gpus, samples, seconds, nodes, warmup in said
    ]
    found = progress_of(windows, curve=CURVE, gpus=4, now=10.0, total_samples=1000)
    assert found.curve is not None
    assert np.isfinite(found.curve.packed).all()
    assert 0 < found.curve.low <= 1 <= found.curve.high
    assert found.expected_end is None or (
        found.expected_end >= 10 and not math.isnan(found.expected_end)
    )
