"""When to buy the next machine: by hand, against brute force, and inside a budget."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.economics.growth import Growth, NextMachine, plan_growth
from gpuyard.errors import UserMistake

MACHINE = NextMachine(
    gpus=4, price_usd=12_000, running_usd_per_month=100, rent_usd_per_gpu_hour=1.0, usable_share=1.0
)


def test_a_team_that_fills_one_machine_buys_it_at_once() -> None:
    # 2,922 GPU-hours a month is all that 4 GPUs have; renting them would be $2,922 a month
    plan = plan_growth(Growth(1, 0, 2922, months=12), MACHINE)
    assert [(p.number, p.month) for p in plan.purchases] == [(1, 0)]
    assert plan.total_usd == pytest.approx(12_000 + 12 * 100)
    assert plan.rent_all_usd == pytest.approx(12 * 2922)
    assert plan.purchases[0].saves_usd == pytest.approx(12 * 2922 - 13_200)


def test_a_small_team_rents_until_it_has_grown() -> None:
    plan = plan_growth(Growth(1, 6, 80, months=36), MACHINE)
    first = plan.purchases[0]
    assert first.month > 0
    assert first.people > 1
    assert list(plan.people[:3]) == [1, 1, 2]
    assert plan.total_usd < plan.rent_all_usd


def test_dear_money_and_falling_prices_make_one_wait() -> None:
    growth = Growth(4, 6, 80, months=48)
    now = plan_growth(growth, MACHINE).purchases[0].month
    dear = plan_growth(growth, replace(MACHINE, discount_per_year=0.3)).purchases[0].month
    falling = plan_growth(growth, replace(MACHINE, price_change_per_year=-0.5)).purchases[0].month
    assert now == 0
    assert dear > now
    assert falling > now


def test_months_that_cost_the_same_buy_latest() -> None:
    # the second machine has nothing to do until there are three people, and waiting costs nothing
    growth = Growth(2, 4, 600, months=36)
    machine = replace(MACHINE, running_usd_per_month=0, usable_share=0.5)
    plan = plan_growth(growth, machine)
    first, second = plan.purchases[:2]
    assert first.month == 0
    assert plan.demand_gpu_hours[second.month] > machine.gpu_hours_per_month
    assert all(
        wanted <= machine.gpu_hours_per_month for wanted in plan.demand_gpu_hours[: second.month]
    )


def test_a_tie_does_not_spend_what_another_machine_needs() -> None:
    # two machines a year; the second is wanted from month 15 on, the third and fourth in that year: it comes in the
    # first year, at its end
    machine = replace(
        MACHINE, running_usd_per_month=0, usable_share=0.5, rent_usd_per_gpu_hour=2.0,
        budget_usd_per_year=24_000,
    )  # fmt: skip
    plan = plan_growth(Growth(1, 0, 200, 4.0, months=36), machine)
    assert [bought.month for bought in plan.purchases] == [0, 11, 20, 23, 26, 27]


def test_nobody_buys_what_can_be_rented_for_less() -> None:
    plan = plan_growth(Growth(2, 0, 10, months=36), MACHINE)
    assert plan.purchases == ()
    assert plan.total_usd == plan.rent_all_usd == pytest.approx(720)


@settings(max_examples=30)
@given(
    st.integers(0, 4), st.floats(0, 12), st.floats(0, 900), st.floats(-0.3, 1), st.floats(0, 0.9)
)
def test_every_machine_comes_in_its_best_month(
    people: int, hires: float, hours: float, growing: float, kept: float
) -> None:
    growth = Growth(people, hires, hours, growing, months=8)
    machine = replace(MACHINE, price_usd=3000, value_kept_per_year=kept, price_change_per_year=-0.2)
    plan = plan_growth(growth, machine)
    demand = growth.gpu_hours_by_month()
    count = min(3, -int(-demand.max() // machine.gpu_hours_per_month))
    if count < 3:  # every schedule of up to two machines
        brute = min(
            _cost(demand.tolist(), [m for m in months if m < 8], machine)
            for months in product(range(9), repeat=count)
        )
        assert plan.total_usd == pytest.approx(brute, rel=1e-9, abs=1e-6)
    assert plan.total_usd <= plan.rent_all_usd + 1e-6


def _cost(demand: list[float], bought: list[int], machine: NextMachine) -> float:
    total = 0.0
    for month, wanted in enumerate(demand):
        have = sum(machine.gpu_hours_per_month for b in bought if b <= month)
        total += max(wanted - have, 0) * machine.rent_usd_per_gpu_hour
        total += machine.running_usd_per_month * sum(b <= month for b in bought)
    for b in bought:
        price = machine.price_usd * (1 + machine.price_change_per_year) ** (b / 12)
        total += price * (1 - machine.value_kept_per_year ** ((len(demand) - b) / 12))
    return total


def test_a_budget_spreads_purchases_over_years() -> None:
    growth = Growth(3, 0, 2922, months=36)
    free = plan_growth(growth, MACHINE)
    assert [p.month for p in free.purchases] == [0, 0, 0]
    tight = plan_growth(growth, replace(MACHINE, budget_usd_per_year=12_000))
    assert [p.month for p in tight.purchases] == [0, 12, 24]
    assert tight.held_back_by_budget == 2
    assert free.total_usd < tight.total_usd < tight.rent_all_usd


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Growth(-1, 0, 10), "people must be"),
        (lambda: Growth(1, 0, 10, -1.5), "above -100%"),
        (lambda: replace(MACHINE, gpus=0), "at least one GPU"),
        (lambda: replace(MACHINE, usable_share=1.3), "at most 100%"),
        (lambda: plan_growth(Growth(1e6, 0, 1e6), MACHINE), "10,000 machines"),
    ],
)
def test_nonsense_is_a_sentence(make: object, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        make()  # type: ignore[operator]
