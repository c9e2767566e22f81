"""The formulas, by numbers that were worked out by hand."""

import math

import pytest

from gpuyard.facility.power.electricity import (
    airflow_cfm,
    btu_per_hour,
    continuous_load_in,
    cooling_tons,
    leg_volts,
    line_amps,
    usable_va,
)
from gpuyard.facility.power.wall_power import efficiency, most_at_once, wall_watts


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
def test_what_a_circuit_carries(
    volts: float, amps: float, phases: int, share: float, va: float
) -> None:
    assert usable_va(volts, amps, phases, share) == pytest.approx(va, rel=1e-4)


def test_the_share_of_a_breaker_depends_on_the_country() -> None:
    assert continuous_load_in("US") == 0.8
    assert continuous_load_in("DE") == 1.0
    assert continuous_load_in("XX") == 0.8, "where the rule is not known, the careful one holds"


def test_outlets_sit_between_lines_at_208_and_to_neutral_at_400() -> None:
    assert leg_volts(208, 3) == 208
    assert leg_volts(400, 3) == pytest.approx(230.9, abs=0.1)
    assert leg_volts(230, 1) == 230


def test_line_currents_from_leg_currents() -> None:
    assert line_amps((10.0, 10.0, 10.0), 208) == pytest.approx((17.32,) * 3, abs=0.01)
    # one leg alone: its two lines carry it, the third nothing
    assert line_amps((10.0, 0.0, 0.0), 208) == pytest.approx((10.0, 10.0, 0.0))
    # √(10² + 5² + 50) = √175
    assert line_amps((10.0, 5.0, 0.0), 208)[1] == pytest.approx(math.sqrt(175))
    assert line_amps((10.0, 5.0, 0.0), 400) == (10.0, 5.0, 0.0)


def test_heat_air_and_tons() -> None:
    assert btu_per_hour(10_000) == pytest.approx(34_121, abs=1)
    # 20 °F is 11.11 K: 34,121 / (1.08 × 20)
    assert airflow_cfm(10_000, 100 / 9) == pytest.approx(1579.7, abs=0.1)
    assert cooling_tons(3516.853) == pytest.approx(1.0)


def test_efficiency_is_on_the_80_plus_curve() -> None:
    assert efficiency("platinum", 0.2) == pytest.approx(0.90)
    assert efficiency("platinum", 0.35) == pytest.approx(0.92)  # half way from 90 to 94 %
    assert efficiency("titanium", 1.0) == pytest.approx(0.91)
    assert efficiency("gold", 0.01) == pytest.approx(0.80)
    assert efficiency("gold", 1.4) == pytest.approx(0.88)


def test_supplies_take_more_than_they_give() -> None:
    # 2 × 2000 W at half load give 2000 W at 94 %
    assert wall_watts(2000, "platinum", 2, 2000) == pytest.approx(2127.66, abs=0.01)


def test_a_breaker_takes_so_many_cold_supplies_at_once() -> None:
    assert most_at_once(60) == 8  # 5 × 60 A over 35 A each
    assert most_at_once(5) == 1
