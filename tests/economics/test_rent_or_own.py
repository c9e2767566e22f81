"""The founding comparisons, and what must hold for any: monotone, and a free machine always wins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.economics.offers import price_offers
from gpuyard.economics.ownership import OwnedHardware
from gpuyard.economics.rent_or_own import (
    RentOrOwn,
    break_even,
    break_even_months,
    paid_by_month,
    rented_cash_by_month,
    saving_usd,
)
from gpuyard.economics.sensitivity import monte_carlo, ranges_around, tornado
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.specs.offers import Offers
from tests.economics.test_ownership import owned_machines


@pytest.mark.parametrize(
    ("reserved", "hardware", "months", "months_with_colocation"),
    [(160_308, 109_008, 8.2, 9.0), (139_371, 28_389, 2.4, 2.7), (69_729, 12_472, 2.1, 2.7)],
)
def test_the_founding_comparisons(
    reserved: float, hardware: float, months: float, months_with_colocation: float
) -> None:
    alone = RentOrOwn(OwnedHardware(hardware), reserved_usd_per_year=reserved)
    housed = RentOrOwn(
        OwnedHardware(hardware, colocation_usd_per_year=15_000), reserved_usd_per_year=reserved
    )
    assert float(break_even_months(alone)) == pytest.approx(months, abs=0.05)
    assert float(break_even_months(housed)) == pytest.approx(months_with_colocation, abs=0.05)


def test_the_simple_rule_is_a_special_case() -> None:
    simple = break_even(1.50, 8000, 2000, speed_lead=0.30)
    full = RentOrOwn(
        OwnedHardware(8000), rent_usd_per_hour=1.50, hours_per_year=2000, speed_lead=0.30
    )
    assert 0.7 * float(break_even_months(full)) / 12 == pytest.approx(simple.break_even_years)


def test_a_speed_lead_takes_nothing_off_what_is_paid() -> None:
    case = RentOrOwn(
        OwnedHardware(8000), rent_usd_per_hour=1.50, hours_per_year=2000, speed_lead=0.30
    )
    assert paid_by_month(case)[0] == 8000
    assert float(saving_usd(case)) == pytest.approx(9000 - 8000)
    assert float(break_even_months(case)) == pytest.approx(12 * 8000 / 3000)


@given(lead=st.floats(0, 0.9), hours=st.floats(100, 8000))
def test_a_faster_machine_costs_what_the_same_offer_costs(lead: float, hours: float) -> None:
    # 30% faster is a speed of 1.3: it is under load for fewer hours, and everything else is paid whole
    power = {"power": "3.5 kW", "idle_power": "700 W", "electricity": "$0.12/kWh", "pue": 1.5}
    offered = Offers.model_validate(
        {"name": "the same work", "hours_per_year": hours,
         "offers": [{"name": "bought", "kind": "own", "hardware": "$8000", "speed": 1 + lead, **power}]}
    )  # fmt: skip
    machine = OwnedHardware(8000, watts=3500, idle_watts=700, pue=1.5, usd_per_kwh=0.12)
    case = RentOrOwn(machine, rent_usd_per_hour=1.5, hours_per_year=hours, speed_lead=lead)
    (priced,) = price_offers(offered)
    assert paid_by_month(case) == pytest.approx(np.array(priced.cash_by_month))


@given(
    hardware=st.floats(1000, 50_000),
    colocation=st.floats(0, 10_000),
    above=st.floats(0.2, 5),
    lead=st.floats(0, 0.9),
    financed=st.sampled_from([0.0, 0.5, 1.0]),
    loan_years=st.integers(1, 5),
)
def test_at_break_even_both_have_cost_the_same(
    hardware: float, colocation: float, above: float, lead: float, financed: float, loan_years: int
) -> None:
    machine = OwnedHardware(
        hardware,
        colocation_usd_per_year=colocation,
        financed_share=financed,
        interest_per_year=0.06,
        loan_years=loan_years,
    )
    yearly = colocation + hardware * above  # even within about five years
    case = RentOrOwn(machine, reserved_usd_per_year=yearly, speed_lead=lead, months=120)
    even = float(break_even_months(case))
    gap = np.cumsum(rented_cash_by_month(case) - paid_by_month(case))
    if even > 0:
        assert np.interp(even, np.arange(121), gap) == pytest.approx(0, abs=1e-6 * hardware)
    assert np.all(gap[int(np.ceil(even)) :] >= -1e-6 * hardware)


@given(owned_machines(), st.floats(0, 50), st.floats(0, 50), st.floats(0, 8784))
def test_a_dearer_rent_never_makes_owning_worse(
    machine: OwnedHardware, one: float, other: float, hours: float
) -> None:
    cheap, dear = (RentOrOwn(machine, rent, hours) for rent in sorted((one, other)))
    assert saving_usd(dear) >= saving_usd(cheap) - 1e-6
    assert break_even_months(dear) <= break_even_months(cheap) * (1 + 1e-9)


@given(st.floats(0.01, 100), st.floats(1, 8784), st.integers(1, 120), st.floats(0, 0.3))
def test_a_free_machine_always_wins(rent: float, hours: float, months: int, rate: float) -> None:
    case = RentOrOwn(OwnedHardware(0), rent, hours, discount_per_year=rate, months=months)
    assert float(break_even_months(case)) == 0
    assert saving_usd(case) > 0


def test_next_to_nothing_that_is_saved_is_never_even() -> None:
    case = RentOrOwn(OwnedHardware(1.0), rent_usd_per_hour=2e-309, hours_per_year=12)
    assert break_even_months(case) == np.inf


def test_what_runs_dearer_than_the_rent_is_never_even() -> None:
    case = RentOrOwn(OwnedHardware(1000, colocation_usd_per_year=5000), 1.0, 2000)
    assert np.isinf(break_even_months(case))


def test_a_loan_moves_the_break_even_to_its_end_or_before_it() -> None:
    # all borrowed: nothing is paid first, so renting is dearer from the start if a payment is below it
    financed = OwnedHardware(3600, financed_share=1.0, loan_years=3)
    assert float(break_even_months(RentOrOwn(financed, reserved_usd_per_year=2400))) == 0
    # payment $100 a month against a rent of $50: after 36 months $1,800 behind, then 36 months more
    assert float(
        break_even_months(RentOrOwn(financed, reserved_usd_per_year=600))
    ) == pytest.approx(72)


CASE = RentOrOwn(
    OwnedHardware(
        109_008, watts=3500, idle_watts=700, pue=1.5, usd_per_kwh=0.12, value_kept_per_year=0.6,
        colocation_usd_per_year=15_000, staff_hours_per_month=8, staff_usd_per_hour=60,
    ),
    rent_usd_per_hour=31.212, hours_per_year=4000, discount_per_year=0.05,
)  # fmt: skip


def test_tornado_is_sorted_and_each_bar_is_a_recomputation() -> None:
    bars = tornado(CASE, ranges_around(CASE, 0.2))
    swings = [bar.swing_usd for bar in bars]
    assert swings == sorted(swings, reverse=True)
    assert {bars[0].name, bars[1].name} == {"rent_usd_per_hour", "hours_per_year"}
    for bar in bars:
        alone = CASE.with_inputs({bar.name: bar.low})
        assert float(saving_usd(alone)) == pytest.approx(bar.saving_at_low_usd)
    names = {bar.name for bar in bars}
    assert "spares_share" not in names  # it is zero
    assert "gpu_hours_per_failure" not in names  # no failure costs anything here


def test_monte_carlo_repeats_with_its_seed_and_stays_inside_the_corners() -> None:
    ranges = ranges_around(CASE, 0.2)
    one, same, other = (monte_carlo(CASE, ranges, 20_000, seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    best = CASE.with_inputs({"rent_usd_per_hour": 31.212 * 1.2, "hours_per_year": 4800.0})
    assert one.edges_usd[-1] < float(saving_usd(best)) * 1.5
    assert sum(one.counts) == 20_000
    assert one.saving_usd[0] < float(saving_usd(CASE)) < one.saving_usd[2]
    assert one.owning_is_cheaper > 0.95


def test_one_uncertain_input_has_the_quantiles_of_its_triangle() -> None:
    case = RentOrOwn(OwnedHardware(0), rent_usd_per_hour=1.0, hours_per_year=1000, months=12)
    spread = monte_carlo(case, {"rent_usd_per_hour": (0.0, 2.0)}, 200_000)
    # triangle 0..1..2: half lies below 1, 5% below sqrt(0.1)
    assert spread.saving_usd[1] == pytest.approx(1000, rel=0.01)
    assert spread.saving_usd[0] == pytest.approx(1000 * np.sqrt(0.1), rel=0.02)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: RentOrOwn(OwnedHardware(1), 1.0, -5), "hours per year.*-5"),
        (lambda: RentOrOwn(OwnedHardware(1), 1.0, 9000), "0 to 8,784"),
        (lambda: RentOrOwn(OwnedHardware(1), 1.0, months=0), "1 month to 50 years"),
        (lambda: ranges_around(CASE, 1.5), "below 100%"),
        (lambda: monte_carlo(CASE, {}, 1), "expected 100 to"),
        (lambda: tornado(CASE, {"rent_usd_per_hour": (2.0, 1.0)}), "from 2 down to 1"),
    ],
)
def test_nonsense_is_a_sentence(make: object, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        make()  # type: ignore[operator]


def test_an_unknown_input_names_the_closest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'hours_per_year'"):
        CASE.with_inputs({"hours_per_yaer": 1.0})


def test_the_rest_of_a_term_is_owed_after_the_horizon() -> None:
    # $160,308 a year signed for three years and needed for one: twelve payments of $13,359, and two years
    # more, $320,616. The monthly price stays what it is, so owning is even after 8.2 months, not 2.7
    kept = RentOrOwn(
        OwnedHardware(109_008), reserved_usd_per_year=160_308, rest_years=2.0, months=12
    )
    cash = rented_cash_by_month(kept)
    assert cash[1] == pytest.approx(13_359)
    assert cash[12] == pytest.approx(13_359 + 320_616)
    assert cash.sum() == pytest.approx(480_924)
    assert float(break_even_months(kept)) == pytest.approx(8.16, abs=0.01)
    # sold on for half of its price
    resold = kept.with_inputs({"rest_resold": 0.5})
    assert rented_cash_by_month(resold).sum() == pytest.approx(160_308 + 160_308)
    # a price that is 10% off is off for the rest too
    low = kept.with_inputs({"reserved_usd_per_year": 0.9 * 160_308})
    assert rented_cash_by_month(low).sum() == pytest.approx(0.9 * 480_924)
