"""Tests of number formats."""

import pytest

from gpuyard.report import formats


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1234.5, "1,234"),
        (0.01234, "0.0123"),
        (12.0, "12"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_numbers(value: float | None, expected: str) -> None:
    assert formats.number(value) == expected


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.5, "+50%"), (3.14, "× 3.1"), (0.9, "−10%"), (1.0, "+0%")]
)
def test_gains(factor: float, expected: str) -> None:
    assert formats.gain(factor) == expected


def test_times() -> None:
    assert formats.seconds(0.0032) == "3.2 ms"
    assert formats.seconds(0.0) == "0"
    assert formats.seconds(float("inf")) == "–"


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (12e9, "bytes/s", "12 GB/s"),
        (30e-6, "seconds per layer and GPU", "30 µs per layer and GPU"),
        (1 / 3, "of compute", "0.3333 of compute"),
    ],
)
def test_constants(value: float, unit: str, expected: str) -> None:
    assert formats.constant(value, unit) == expected


def test_dates() -> None:
    assert formats.date("2026-11-05T23:10:00+00:00") == "5 November 2026, 23:10 UTC"
    assert formats.date("2026-11-05T23:10:00+02:00") == "5 November 2026, 21:10 UTC"
    assert formats.date("some day") == "some day"
