"""Test the split between owning and renting: by hand, against brute force, and never worse than all or nothing."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.economics.capacity_mix import CapacityTier, best_mix
from gpuyard.economics.demand import Demand, create_demand, demand_from_load
from gpuyard.economics.hybrid import HybridPrices, best_hybrid, price_mix
from gpuyard.errors import MissingRequirement, UserMistake

PRICES = st.builds(
    HybridPrices, owned_usd=st.floats(0, 3), rented_usd=st.floats(0, 5), running_usd=st.floats(0, 1)
)
DEMANDS = st.lists(st.integers(0, 40), min_size=1, max_size=60).map(
    lambda gpus: create_demand(np.array(gpus, dtype=np.float64), 1.0, "drawn")
)


def test_by_hand() -> None:
    # 10 GPUs for 45 of 168 h, else 1. A GPU costs $0.40 an hour to own and $1.00 to rent: it pays from
    # 40% of all hours, so one is owned and nine are rented for 45 h a week.
    found = best_hybrid(
        demand_from_load("working-hours", 10, base_share=0.1), HybridPrices(0.40, 1.00)
    )
    assert found.best.own_gpus == 1
    assert found.quantile == pytest.approx(0.6)
    assert found.best.usd_per_year == pytest.approx((0.40 + 9 * 45 / 168) * 8766)
    assert found.rent_all.usd_per_year == pytest.approx((1 + 9 * 45 / 168) * 8766)
    assert found.own_all.usd_per_year == pytest.approx(10 * 0.40 * 8766)
    # at $0.25 it pays from 25% of the hours, and 45 of 168 are 26.8%: own all ten
    cheap = best_hybrid(
        demand_from_load("working-hours", 10, base_share=0.1), HybridPrices(0.25, 1.00)
    )
    assert cheap.best.own_gpus == 10


@given(DEMANDS, PRICES, st.integers(1, 8))
def test_it_is_the_best_of_all_sizes(demand: Demand, prices: HybridPrices, each: int) -> None:
    found = best_hybrid(demand, prices, gpus_per_machine=each)
    brute = min(price_mix(demand, prices, size).usd_per_year for size in range(0, 60, each))
    assert found.best.usd_per_year <= brute + 1e-6
    assert found.best.own_gpus % each == 0


@given(DEMANDS, PRICES, st.integers(1, 8), st.floats(0, 0.9))
def test_never_worse_than_all_or_nothing(
    demand: Demand, prices: HybridPrices, each: int, error: float
) -> None:
    found = best_hybrid(demand, prices, gpus_per_machine=each, error=error)
    slack = 1e-9 * (1 + found.rent_all.usd_per_year)
    assert found.best.usd_per_year <= found.rent_all.usd_per_year + slack
    assert found.best.usd_per_year <= found.own_all.usd_per_year + slack
    assert all(wrong.regret_usd_per_year >= -slack for wrong in found.if_wrong)


@given(st.floats(0.1, 40), st.floats(0.01, 5))
def test_free_machines_serve_it_all(gpus: float, rent: float) -> None:
    found = best_hybrid(demand_from_load("working-hours", gpus), HybridPrices(0.0, rent))
    assert found.best.usd_per_year == pytest.approx(0, abs=1e-6)


@settings(max_examples=40)
@given(DEMANDS, PRICES, st.integers(1, 4))
def test_the_program_agrees_with_the_newsvendor(
    demand: Demand, prices: HybridPrices, each: int
) -> None:
    pytest.importorskip("scipy")
    owned = CapacityTier("owned", prices.owned_usd, prices.running_usd, gpus_per_machine=each)
    mix = best_mix(demand, (owned,), prices.rented_usd)
    best = best_hybrid(demand, prices, gpus_per_machine=each).best
    served = mix.usd_per_year
    if prices.running_usd <= prices.rented_usd:
        assert served == pytest.approx(best.usd_per_year, rel=1e-6, abs=0.05)
    else:
        assert served <= best.usd_per_year + 0.05


@settings(max_examples=25)
@given(DEMANDS, st.floats(0.05, 1), st.floats(0.05, 1), st.floats(0, 0.3), st.integers(1, 4))
def test_three_kinds_against_brute_force(
    demand: Demand, owned: float, reserved: float, running: float, each: int
) -> None:
    pytest.importorskip("scipy")
    tiers = (
        CapacityTier("owned", owned, running, gpus_per_machine=each),
        CapacityTier("reserved", reserved),
    )
    mix = best_mix(demand, tiers, 1.0)
    wanted = demand.gpus
    brute = min(
        owned * own
        + reserved * held
        + running * np.minimum(np.maximum(wanted - held, 0), own).mean()
        + np.maximum(wanted - held - own, 0).mean()
        for own in range(0, 44, each)
        for held in range(41)
    )
    assert mix.usd_per_year / 8766 == pytest.approx(brute, rel=1e-6, abs=1e-5)
    assert mix.exact


def test_many_levels_are_merged_and_said_so() -> None:
    pytest.importorskip("scipy")
    random = np.random.default_rng(3)
    demand = create_demand(random.gamma(2.0, 10.0, 50_000), 1.0, "drawn")
    mix = best_mix(demand, (CapacityTier("owned", 0.4),), 1.0)
    assert not mix.exact
    best = best_hybrid(demand, HybridPrices(0.4, 1.0)).best
    assert mix.usd_per_year == pytest.approx(best.usd_per_year, rel=1e-4)


def test_without_scipy_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingRequirement, match="gpuyard\\[plan\\]"):
        best_mix(demand_from_load("steady", 4), (CapacityTier("owned", 0.4),), 1.0)


def test_a_million_hours() -> None:
    gpus = np.random.default_rng(1).poisson(20, 1_000_000).astype(np.float64)
    found = best_hybrid(create_demand(gpus, 1.0, "drawn"), HybridPrices(0.3, 1.0))
    assert found.best.own_gpus == np.quantile(gpus, 0.7, method="inverted_cdf")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: HybridPrices(-1, 1), "owning a GPU must be zero or more"),
        (
            lambda: best_hybrid(
                demand_from_load("steady", 1), HybridPrices(1, 1), gpus_per_machine=0
            ),
            "at least one GPU",
        ),
        (
            lambda: best_hybrid(demand_from_load("steady", 1), HybridPrices(1, 1), error=1.0),
            "below 100%",
        ),
    ],
)
def test_nonsense_is_a_sentence(make: object, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        make()  # type: ignore[operator]
