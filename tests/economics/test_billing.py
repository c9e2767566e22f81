"""Bills: the founding invoice, increments, commitments, and that more never costs less."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.economics.billing import (
    INCREMENTS,
    billed_hours,
    committed_usd,
    egress_usd,
    fitting_increments,
    on_demand_usd,
    reserved_cash_by_month,
    reserved_usd,
    storage_usd,
    to_cents,
)
from gpuyard.economics.goodput import spot_usd
from gpuyard.errors import UserMistake

HOURS = st.floats(0, 1e5)
PRICE = st.floats(0, 1e3)


def test_the_founding_invoice_within_a_cent() -> None:
    hours = np.array([0.67, 1.28, 0.75, 0.97, 1.31, 0.86])
    printed = np.array([1.01, 1.92, 1.12, 1.45, 1.96, 1.30])
    for increment in ("second", "1/100 h"):
        usd = on_demand_usd(hours, 1.50, increment_hours=INCREMENTS[increment])
        assert np.abs(usd - printed).max() <= 0.01 + 1e-9


def test_only_billing_by_the_second_explains_the_founding_invoice() -> None:
    hours = ["0.67", "1.28", "0.75", "0.97", "1.31", "0.86"]
    printed = [1.01, 1.92, 1.12, 1.45, 1.96, 1.30]
    # 0.86 h printed can be 0.864 h billed; as 0.86 h it would be $1.29, and 0.67 h is no whole minute
    assert fitting_increments(hours, printed, 1.50) == ["second"]
    assert fitting_increments(["1.00", "2.00"], [1.5, 3.0], 1.50) == [
        "hour", "minute", "1/100 h", "second",
    ]  # fmt: skip
    assert fitting_increments(["1.00"], [9.99], 1.50) == []
    with pytest.raises(UserMistake, match="each line needs both"):
        fitting_increments(["1.00"], [], 1.50)


@pytest.mark.parametrize(
    ("hours", "increment", "minimum", "billed"),
    [
        (0.0, "hour", 1.0, 0.0),
        (0.1, "hour", 0.0, 1.0),
        (2.0, "hour", 0.0, 2.0),
        (0.67, "1/100 h", 0.0, 0.67),
        (0.671, "1/100 h", 0.0, 0.68),
        (40.2 / 60, "minute", 0.0, 41 / 60),
        (10 / 3600, "second", 1 / 60, 1 / 60),
    ],
)
def test_increments_and_minimums(
    hours: float, increment: str, minimum: float, billed: float
) -> None:
    assert billed_hours(hours, INCREMENTS[increment], minimum) == pytest.approx(billed)


def test_half_a_cent_goes_up() -> None:
    assert [to_cents(usd) for usd in (1.005, 1.125, 1.0049)] == [1.01, 1.13, 1.0]


@given(HOURS, HOURS, PRICE, PRICE, st.sampled_from(sorted(INCREMENTS)), st.floats(0, 2))
def test_more_hours_or_a_higher_price_never_cost_less(
    one: float, other: float, price: float, dearer: float, increment: str, minimum: float
) -> None:
    low, high = sorted((one, other))
    cheap, dear = sorted((price, dearer))
    terms = {"increment_hours": INCREMENTS[increment], "minimum_hours": minimum}
    assert on_demand_usd(low, cheap, **terms) <= on_demand_usd(high, dear, **terms)
    assert on_demand_usd(low, cheap, **terms) >= low * cheap * (1 - 1e-12)
    commitment = {"committed_hours": 100.0, "discount": 0.3}
    assert committed_usd(low, cheap, **commitment) <= committed_usd(high, dear, **commitment)


def test_a_commitment_by_hand() -> None:
    # 500 h at $2 less 40% are paid in any case; 100 more at $2
    assert committed_usd(600, 2.0, committed_hours=500, discount=0.4) == pytest.approx(800)
    assert committed_usd(0, 2.0, committed_hours=500, discount=0.4) == pytest.approx(600)


def test_storage_and_egress_by_hand() -> None:
    assert storage_usd(1000, 3, 0.023) == pytest.approx(69)
    assert egress_usd(150, 0.09, free_gigabytes=100) == pytest.approx(4.5)
    assert egress_usd(50, 0.09, free_gigabytes=100) == 0


def test_reserved_terms_that_fit_cost_their_years() -> None:
    assert reserved_usd(3, 160_308, term_years=3) == pytest.approx(480_924)
    assert reserved_usd(3, 160_308, term_years=1) == pytest.approx(480_924)


def test_a_term_past_the_horizon_needs_a_word() -> None:
    with pytest.raises(UserMistake, match=r"3 years.*2 years.*1 year.*'pay'"):
        reserved_usd(1, 1000, term_years=3)
    assert reserved_usd(1, 1000, term_years=3, rest="pay") == pytest.approx(3000)
    assert reserved_usd(1, 1000, term_years=3, rest="resell", resale_share=0.4) == pytest.approx(
        2200
    )


@given(
    st.integers(1, 72),
    st.floats(0, 1e6),
    st.sampled_from([1.0, 3.0]),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_reserved_cash_adds_up(
    months: int, yearly: float, term: float, upfront: float, resale: float
) -> None:
    for rest in ("pay", "resell"):
        cash = reserved_cash_by_month(
            months, yearly, term_years=term, upfront_share=upfront, rest=rest, resale_share=resale
        )
        total = reserved_usd(months / 12, yearly, term_years=term, rest=rest, resale_share=resale)
        assert cash.shape == (months + 1,)
        assert cash.sum() == pytest.approx(float(total), rel=1e-9, abs=1e-6)


def test_all_upfront_is_paid_at_the_start_of_each_term() -> None:
    cash = reserved_cash_by_month(24, 1200, term_years=1, upfront_share=1.0)
    assert cash[0] == cash[12] == 1200
    assert cash.sum() == 2400
    cash = reserved_cash_by_month(24, 1200, term_years=1, upfront_share=0.5)
    assert (cash[0], cash[1], cash[12], cash[24]) == (600, 50, 650, 50)


def test_arrays_broadcast() -> None:
    hours, prices = np.arange(4.0)[:, None], np.array([1.0, 2.0, 3.0])
    assert on_demand_usd(hours, prices).shape == (4, 3)
    rates = np.array([0.0, 0.1])
    assert spot_usd(1.0, prices[:, None], interruptions_per_hour=rates).shape == (3, 2)
    assert reserved_usd(np.array([1.0, 2.0]), 100.0).tolist() == [100, 200]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: on_demand_usd(-1, 1.5), "hours must be zero or more, and finite, got -1"),
        (lambda: on_demand_usd(float("nan"), 1.5), "hours must be zero or more"),
        (lambda: on_demand_usd(1, -1.5), "the price must be zero or more"),
        (lambda: on_demand_usd(1, 1.5, discount=1.3), "between 0% and 100%, got 130%"),
        (lambda: billed_hours(1, 0.0), "increment must be above zero"),
        (lambda: spot_usd(1, 1, interruptions_per_hour=-0.1), "interruption rate"),
        (lambda: reserved_usd(0, 1), "above zero"),
    ],
)
def test_nonsense_is_a_sentence(make: object, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        make()  # type: ignore[operator]
