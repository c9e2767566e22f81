"""Owning: hand-worked bills, cash that adds up to the total, and that more never costs less."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.economics.ownership import (
    LLAMA3_GPU_HOURS_PER_FAILURE,
    OwnedHardware,
    loan_payment_usd,
    monthly_parts_usd,
    monthly_usd,
    owned_cash_by_month,
    owned_usd,
    present_value_usd,
    resale_usd,
    upfront_usd,
)
from gpuyard.errors import UserMistake

SHARE = st.floats(0, 1)


@st.composite
def owned_machines(draw: st.DrawFn) -> OwnedHardware:
    watts = draw(st.floats(0, 1e5))
    return OwnedHardware(
        hardware_usd=draw(st.floats(0, 1e6)),
        spares_share=draw(SHARE),
        installation_usd=draw(st.floats(0, 1e4)),
        network_usd=draw(st.floats(0, 1e4)),
        watts=watts,
        idle_watts=draw(SHARE) * watts,
        utilization=draw(SHARE),
        pue=draw(st.floats(1, 2)),
        usd_per_kwh=draw(SHARE),
        colocation_usd_per_year=draw(st.floats(0, 1e5)),
        colocation_usd_per_kw_month=draw(st.floats(0, 300)),
        support_share_per_year=draw(SHARE),
        staff_hours_per_month=draw(st.floats(0, 100)),
        staff_usd_per_hour=draw(st.floats(0, 100)),
        gpus=draw(st.integers(0, 1000)),
        usd_per_failure=draw(st.floats(0, 1e4)),
        financed_share=draw(SHARE),
        interest_per_year=draw(st.floats(0, 0.3)),
        loan_years=draw(st.floats(0.5, 8)),
        value_kept_per_year=draw(SHARE),
    )


def test_a_month_by_hand() -> None:
    machine = OwnedHardware(
        10_000, watts=2000, idle_watts=400, utilization=0.5, pue=1.5, usd_per_kwh=0.12,
        colocation_usd_per_kw_month=150, support_share_per_year=0.06, staff_hours_per_month=4,
        staff_usd_per_hour=60, gpus=8, usd_per_failure=500, gpu_hours_per_failure=50_700,
    )  # fmt: skip
    parts = {name: float(usd) for name, usd in monthly_parts_usd(machine).items()}
    assert parts["power"] == pytest.approx(1.2 * 1.5 * 730.5 * 0.12)  # kW at the plug × h × $/kWh
    assert parts["colocation"] == pytest.approx(300)
    assert parts["support"] == pytest.approx(50)
    assert parts["staff"] == pytest.approx(240)
    assert parts["failures"] == pytest.approx(0.5 * 8 * 730.5 / 50_700 * 500)
    assert float(monthly_usd(machine)) == pytest.approx(sum(parts.values()))


def test_llama_3_failed_once_in_50_700_gpu_hours() -> None:
    assert pytest.approx(50_700, rel=1e-3) == LLAMA3_GPU_HOURS_PER_FAILURE


def test_a_loan_by_hand() -> None:
    # $10,000 at 12% a year over 12 months: 1% a month, $888.49 a month by the annuity formula
    loan = OwnedHardware(10_000, financed_share=1.0, interest_per_year=0.12, loan_years=1)
    assert float(loan_payment_usd(loan)) == pytest.approx(888.49, abs=0.005)
    assert float(owned_usd(loan, 3)) == pytest.approx(12 * 888.4879, abs=0.01)
    cash = owned_cash_by_month(loan, 36)
    assert cash[0] == 0
    assert cash[13] == pytest.approx(0)
    # discounted at the loan's own rate, a loan costs what was borrowed
    assert float(present_value_usd(cash, 1.01**12 - 1)) == pytest.approx(10_000)


def test_value_falls_by_a_share_or_in_a_straight_line() -> None:
    assert float(owned_usd(OwnedHardware(1000, value_kept_per_year=0.7), 2)) == pytest.approx(510)
    values = resale_usd(OwnedHardware(1000, straight_line_years=5), np.array([0.0, 2.5, 5.0, 9.0]))
    assert values.tolist() == pytest.approx([1000, 500, 0, 0])
    assert float(owned_usd(OwnedHardware(1000, straight_line_years=4), 3)) == pytest.approx(750)


@given(owned_machines(), st.integers(1, 96))
def test_cash_by_month_adds_up_to_the_total(machine: OwnedHardware, months: int) -> None:
    cash = owned_cash_by_month(machine, months)
    assert cash.shape == (months + 1,)
    assert cash.sum() == pytest.approx(float(owned_usd(machine, months / 12)), rel=1e-9, abs=1e-3)
    assert float(present_value_usd(cash, 0.0)) == pytest.approx(cash.sum())


@given(
    owned_machines(),
    st.sampled_from(["hardware_usd", "utilization", "pue", "usd_per_kwh", "colocation_usd_per_year",
                     "staff_usd_per_hour", "usd_per_failure", "interest_per_year"]),
    SHARE,
)  # fmt: skip
def test_more_of_anything_never_costs_less(machine: OwnedHardware, name: str, more: float) -> None:
    before = getattr(machine, name)
    after = before + more if name not in {"utilization", "interest_per_year"} else max(before, more)
    dearer = replace(machine, **{name: after})
    assert owned_usd(dearer, 3) >= owned_usd(machine, 3) - 1e-3


def test_many_machines_at_once_are_each_alone() -> None:
    prices, watts = np.array([1e4, 2e4, 3e4]), np.array([500.0, 1000.0, 2000.0])
    shared = {"usd_per_kwh": 0.15, "pue": 1.4, "financed_share": 0.5, "interest_per_year": 0.06}
    together = OwnedHardware(prices, watts=watts, value_kept_per_year=0.6, **shared)
    alone = [
        OwnedHardware(p, watts=w, value_kept_per_year=0.6, **shared)
        for p, w in zip(prices, watts, strict=True)
    ]
    assert owned_usd(together, 3).tolist() == pytest.approx([float(owned_usd(a, 3)) for a in alone])
    cash = owned_cash_by_month(together, 36)
    assert cash.shape == (3, 37)
    assert cash[1] == pytest.approx(owned_cash_by_month(alone[1], 36))


def test_spares_and_installation_are_paid_once() -> None:
    machine = OwnedHardware(1000, spares_share=0.1, installation_usd=50, network_usd=25)
    assert float(upfront_usd(machine)) == pytest.approx(1175)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"utilization": 1.3}, "utilization must be between 0% and 100%, got 130%"),
        ({"hardware_usd": -1}, "hardware must be zero or more"),
        ({"pue": 0.9}, "PUE must be 1 or more"),
        ({"idle_watts": 10}, "idle power"),
        ({"straight_line_years": 5, "value_kept_per_year": 0.5}, "straight-line"),
        ({"loan_years": 0}, "loan years must be above zero"),
        ({"watts": float("nan")}, "watts must be zero or more"),
    ],
)
def test_nonsense_is_a_sentence(wrong: dict[str, float], sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        OwnedHardware(**{"hardware_usd": 1000.0, **wrong})


def test_a_horizon_is_needed() -> None:
    with pytest.raises(UserMistake, match="above zero years"):
        owned_usd(OwnedHardware(1000), 0)
