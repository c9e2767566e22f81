"""Phases are as even as brute force can make them, and no breaker or outlet is ever asked for more."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.facility.power.phases import CordLoad, PhaseBalance, balance
from gpuyard.facility.power.rack_pdu import Bank

VOLTS = 208.0


def banks_of(per_leg: int, c13: int, c19: int, amps: float = 16.0) -> list[Bank]:
    outlets = (("c13", c13), ("c19", c19))
    return [Bank(index % 3, outlets, amps) for index in range(3 * per_leg)]


def load(va: float, outlet: str = "c19") -> CordLoad:
    return CordLoad(va, va, (outlet,))


def brute_force(loads: list[CordLoad], banks: list[Bank]) -> float | None:
    """The least difference over every assignment of every load to every bank."""
    best = None
    for places in itertools.product(range(len(banks)), repeat=len(loads)):
        if _fits(loads, banks, [(b, one.outlets[0]) for b, one in zip(places, loads, strict=True)]):
            legs = [0.0, 0.0, 0.0]
            for place, one in zip(places, loads, strict=True):
                legs[banks[place].leg] += one.leg_va
            difference = max(legs) - min(legs)
            best = difference if best is None else min(best, difference)
    return best


def _fits(loads: list[CordLoad], banks: list[Bank], places: list[tuple[int, str]]) -> bool:
    va: Counter[int] = Counter()
    used: Counter[tuple[int, str]] = Counter()
    for one, (bank, face) in zip(loads, places, strict=True):
        va[bank] += round(one.bank_va * 1000)
        used[bank, face] += 1
    within = all(va[b] <= round(banks[b].usable_amps * VOLTS * 1000) + 1 for b in va)
    return within and all(n <= dict(banks[b].outlets)[face] for (b, face), n in used.items())


def checked(loads: list[CordLoad], banks: list[Bank]) -> PhaseBalance | None:
    found = balance(loads, banks, VOLTS)
    if found is not None:
        assert _fits(loads, banks, list(found.plugged))
        legs = [0.0, 0.0, 0.0]
        for one, (bank, face) in zip(loads, found.plugged, strict=True):
            assert face in one.outlets
            legs[banks[bank].leg] += one.leg_va
        assert found.leg_va == pytest.approx(legs)
    return found


def test_eight_alike_on_three_legs_by_hand() -> None:
    found = checked([load(1600)] * 8, banks_of(2, 5, 2))
    assert found is not None
    assert sorted(found.leg_va) == [3200, 4800, 4800]
    assert found.proven


def test_no_room_is_no_answer() -> None:
    assert balance([load(1600)] * 13, banks_of(2, 5, 2), VOLTS) is None  # 12 outlets
    assert balance([load(3400)], banks_of(2, 5, 2), VOLTS) is None  # 16 A are 3328 VA


@settings(max_examples=80, deadline=None)
@given(
    loads=st.lists(st.sampled_from([load(900), load(1600), load(400, "c13"), load(2500)]), min_size=1, max_size=5),
    per_leg=st.integers(1, 2),
    c13=st.integers(0, 2),
    c19=st.integers(1, 2),
)  # fmt: skip
def test_as_even_as_brute_force(loads: list[CordLoad], per_leg: int, c13: int, c19: int) -> None:
    banks = banks_of(per_leg, c13, c19)
    found = checked(loads, banks)
    best = brute_force(loads, banks)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert found.difference_va == pytest.approx(best, abs=1e-5)
        assert found.least_va <= best + 1e-5, "the bound holds"
        assert found.proven


def test_a_cord_is_taken_back_where_it_leaves_none_for_another() -> None:
    # the largest into the emptiest of two banks of 2800 VA: 1500 + 900 and 1300 + 1000 leave 400 and 500
    loads = [load(va) for va in (1500, 1300, 1000, 900, 900)]
    banks = [Bank(0, (("c19", 4),), 2800 / VOLTS)] * 2
    found = balance(loads, banks, VOLTS)
    assert found is not None
    assert _fits(loads, banks, list(found.plugged))


def test_ways_past_counting_are_even_too() -> None:
    # 12, 4 and 15 cords of a rack with 60 machines: 185,640 ways
    loads = [load(1224)] * 12 + [load(480)] * 4 + [load(102, "c13")] * 15
    found = checked(loads, banks_of(2, 5, 4))
    assert found is not None
    assert found.proven
    assert found.difference_va <= 102 + 1e-6


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(100, 3000), min_size=1, max_size=24), st.integers(1, 3))
def test_many_different_loads_never_overload(sizes: list[float], per_leg: int) -> None:
    checked([load(round(size, 1)) for size in sizes], banks_of(per_leg, 0, 8))
