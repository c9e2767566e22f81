"""Phase balancing matches brute force, and no breaker or outlet exceeds its limit."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.facilities.power.phases import CordLoad, PhaseBalance, balance_phases
from gpuyard.facilities.power.rack_pdu import Bank

VOLTS = 208.0


def build_banks(per_leg: int, c13: int, c19: int, amps: float = 16.0) -> list[Bank]:
    outlets = (("c13", c13), ("c19", c19))
    return [Bank(index % 3, outlets, amps) for index in range(3 * per_leg)]


def load(va: float, outlet: str = "c19") -> CordLoad:
    return CordLoad(va, va, (outlet,))


def brute_force(loads: list[CordLoad], banks: list[Bank]) -> float | None:
    """Return the smallest difference over every assignment of loads to banks."""
    best = None
    for places in itertools.product(range(len(banks)), repeat=len(loads)):
        if _fits(
            loads, banks, [(b, cord.outlets[0]) for b, cord in zip(places, loads, strict=True)]
        ):
            legs = [0.0, 0.0, 0.0]
            for place, cord in zip(places, loads, strict=True):
                legs[banks[place].leg] += cord.leg_va
            difference = max(legs) - min(legs)
            best = difference if best is None else min(best, difference)
    return best


def _fits(loads: list[CordLoad], banks: list[Bank], places: list[tuple[int, str]]) -> bool:
    va: Counter[int] = Counter()
    used: Counter[tuple[int, str]] = Counter()
    for cord, (bank, face) in zip(loads, places, strict=True):
        va[bank] += round(cord.bank_va * 1000)
        used[bank, face] += 1
    within = all(va[b] <= round(banks[b].usable_amps * VOLTS * 1000) + 1 for b in va)
    return within and all(n <= dict(banks[b].outlets)[face] for (b, face), n in used.items())


def check_balance(loads: list[CordLoad], banks: list[Bank]) -> PhaseBalance | None:
    balance = balance_phases(loads, banks, VOLTS)
    if balance is not None:
        assert _fits(loads, banks, list(balance.outlets))
        legs = [0.0, 0.0, 0.0]
        for cord, (bank, face) in zip(loads, balance.outlets, strict=True):
            assert face in cord.outlets
            legs[banks[bank].leg] += cord.leg_va
        assert balance.leg_va == pytest.approx(legs)
    return balance


def test_eight_equal_cords_on_three_legs_by_hand() -> None:
    balance = check_balance([load(1600)] * 8, build_banks(2, 5, 2))
    assert balance is not None
    assert sorted(balance.leg_va) == [3200, 4800, 4800]
    assert balance.proven


def test_impossible_loads_have_no_balance() -> None:
    assert balance_phases([load(1600)] * 13, build_banks(2, 5, 2), VOLTS) is None  # 12 outlets
    assert balance_phases([load(3400)], build_banks(2, 5, 2), VOLTS) is None  # 16 A are 3328 VA


@settings(max_examples=80, deadline=None)
@given(
    loads=st.lists(st.sampled_from([load(900), load(1600), load(400, "c13"), load(2500)]), min_size=1, max_size=5),
    per_leg=st.integers(1, 2),
    c13=st.integers(0, 2),
    c19=st.integers(1, 2),
)  # fmt: skip
def test_matches_brute_force(loads: list[CordLoad], per_leg: int, c13: int, c19: int) -> None:
    banks = build_banks(per_leg, c13, c19)
    balance = check_balance(loads, banks)
    best = brute_force(loads, banks)
    assert (balance is None) == (best is None)
    if balance is not None and best is not None:
        assert balance.difference_va == pytest.approx(best, abs=1e-5)
        assert balance.min_difference_va <= best + 1e-5, "the lower bound must hold"
        assert balance.proven


def test_search_backtracks_if_a_cord_does_not_fit() -> None:
    # two banks of 2800 VA, filled largest cord first: 1500 + 900 and 1300 + 1000 leave 400 and 500 VA
    loads = [load(va) for va in (1500, 1300, 1000, 900, 900)]
    banks = [Bank(0, (("c19", 4),), 2800 / VOLTS)] * 2
    balance = balance_phases(loads, banks, VOLTS)
    assert balance is not None
    assert _fits(loads, banks, list(balance.outlets))


def test_truncated_search_is_even_too() -> None:
    # 12, 4, and 15 cords of a rack with 60 machines: 185,640 splits
    loads = [load(1224)] * 12 + [load(480)] * 4 + [load(102, "c13")] * 15
    balance = check_balance(loads, build_banks(2, 5, 4))
    assert balance is not None
    assert balance.proven
    assert balance.difference_va <= 102 + 1e-6


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(100, 3000), min_size=1, max_size=24), st.integers(1, 3))
def test_many_different_loads_never_overload_a_bank(sizes: list[float], per_leg: int) -> None:
    check_balance([load(round(size, 1)) for size in sizes], build_banks(per_leg, 0, 8))
