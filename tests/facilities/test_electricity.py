"""The formulas against numbers calculated by hand."""

import math

import pytest

from gpuyard.facilities.power.electricity import (
    airflow_cfm,
    btu_per_hour,
    cooling_tons,
    find_continuous_load,
    leg_volts,
    line_amps,
    usable_va,
)
from gpuyard.facilities.power.wall_power import (
    count_simultaneous_starts,
    find_efficiency,
    wall_watts,
)


@pytest.mark.parametrize(
    ("volts", "amps", "phases", "share", "va"),
    [
        (120, 20, 1, 0.8, 1920),  # an office circuit
        (208, 30, 1, 0.8, 4992),  # L6-30
        (208, 60, 3, 0.8, 17_293),  # the AP8966: √3 × 208 × 48
        (208, 30, 3, 0.8, 8646),  # L21-30: 8.6 kVA on the AP8865
        (400, 32, 3, 1.0, 22_170),  # the AP8886: 22 kVA
        (230, 16, 1, 1.0, 3680),
    ],
)
def test_usable_power_of_circuits(
    volts: float, amps: float, phases: int, share: float, va: float
) -> None:
    assert usable_va(volts, amps, phases, share) == pytest.approx(va, rel=1e-4)


def test_continuous_load_depends_on_the_country() -> None:
    assert find_continuous_load("US") == 0.8
    assert find_continuous_load("DE") == 1.0
    assert find_continuous_load("XX") == 0.8, "an unknown country uses the cautious rule"


def test_outlets_are_between_lines_at_208_v_and_to_neutral_at_400_v() -> None:
    assert leg_volts(208, 3) == 208
    assert leg_volts(400, 3) == pytest.approx(230.9, abs=0.1)
    assert leg_volts(230, 1) == 230


def test_line_currents_from_leg_currents() -> None:
    assert line_amps((10.0, 10.0, 10.0), 208) == pytest.approx((17.32,) * 3, abs=0.01)
    # with load on one leg, its two lines carry the current and the third carries none
    assert line_amps((10.0, 0.0, 0.0), 208) == pytest.approx((10.0, 10.0, 0.0))
    # √(10² + 5² + 50) = √175
    assert line_amps((10.0, 5.0, 0.0), 208)[1] == pytest.approx(math.sqrt(175))
    assert line_amps((10.0, 5.0, 0.0), 400) == (10.0, 5.0, 0.0)


def test_heat_airflow_and_tons() -> None:
    assert btu_per_hour(10_000) == pytest.approx(34_121, abs=1)
    # 20 °F is 11.11 K: 34,121 / (1.08 × 20)
    assert airflow_cfm(10_000, 100 / 9) == pytest.approx(1579.7, abs=0.1)
    assert cooling_tons(3516.853) == pytest.approx(1.0)


def test_efficiency_follows_the_80_plus_curve() -> None:
    assert find_efficiency("platinum", 0.2) == pytest.approx(0.90)
    assert find_efficiency("platinum", 0.35) == pytest.approx(0.92)  # halfway from 90% to 94%
    assert find_efficiency("titanium", 1.0) == pytest.approx(0.91)
    assert find_efficiency("gold", 0.01) == pytest.approx(0.80)
    assert find_efficiency("gold", 1.4) == pytest.approx(0.88)


def test_supplies_draw_more_than_they_deliver() -> None:
    # 2 × 2000 W at half load deliver 2000 W at 94%
    assert wall_watts(2000, "platinum", 2, 2000) == pytest.approx(2127.66, abs=0.01)


def test_simultaneous_starts_on_one_breaker() -> None:
    assert count_simultaneous_starts(60) == 8  # 5 × 60 A divided by 35 A each
    assert count_simultaneous_starts(5) == 1
