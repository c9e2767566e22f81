"""Test the best size to own for many cases at once, against brute force and each case alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.economics.ownership import best_owned_size

USD = st.floats(0, 5)
WANTED = st.lists(st.floats(0, 12), min_size=1, max_size=40).map(np.array)


def test_by_hand() -> None:
    # 1 is wanted always and 3 a quarter of the time. Owning costs $0.40 and renting $1 an hour, so the
    # first pays and the others don't: 0.40 + 2 × 0.25 × 1.00
    size = best_owned_size(np.array([1.0, 1.0, 1.0, 3.0]), owned_usd=0.40, rented_usd=1.00)
    assert float(size.own) == 1
    assert float(size.usd_per_hour) == pytest.approx(0.90)
    assert (float(size.served), float(size.rented)) == (1.0, 0.5)
    # where renting anything costs $0.35 an hour more, owning all three for $1.20 is better than $1.25
    size = best_owned_size(
        np.array([1.0, 1.0, 1.0, 3.0]), owned_usd=0.40, rented_usd=1.00, renting_usd=0.35
    )
    assert float(size.own) == float(size.own_all) == 3
    assert float(size.usd_per_hour) == pytest.approx(1.20)


@given(WANTED, USD, USD, USD, st.floats(0, 3), st.integers(1, 4), st.integers(0, 15))
def test_nothing_costs_less(
    wanted: np.ndarray, owned: float, rented: float, running: float, fixed: float, each: int, most: int
) -> None:  # fmt: skip
    size = best_owned_size(
        wanted, owned_usd=owned, rented_usd=rented, running_usd=running, renting_usd=fixed,
        each=float(each), maximum=float(most),
    )  # fmt: skip

    def usd(own: float) -> float:
        served = np.minimum(wanted, own).mean()
        renting = fixed if own < wanted.max() - 1e-9 else 0.0
        return float(owned * own + running * served + rented * (wanted.mean() - served) + renting)

    brute = min(usd(own) for own in range(0, most + 1, each))
    if running <= rented:  # else what is owned would be left unused, and nothing is owned
        assert float(size.usd_per_hour) <= brute + 1e-6
    assert float(size.usd_per_hour) == pytest.approx(usd(float(size.own)), abs=1e-6)
    assert float(size.own) <= most and float(size.own) % each == 0


@given(WANTED, st.lists(st.tuples(USD, USD, st.floats(0.1, 4)), min_size=1, max_size=8))
def test_many_are_as_one(wanted: np.ndarray, cases: list[tuple[float, float, float]]) -> None:
    owned, rented, scale = (np.array(column) for column in zip(*cases, strict=True))
    together = best_owned_size(wanted, owned_usd=owned, rented_usd=rented, scale=scale)
    for i, (own_usd, rent_usd, factor) in enumerate(cases):
        alone = best_owned_size(wanted * factor, owned_usd=own_usd, rented_usd=rent_usd)
        assert together.usd_per_hour[i] == pytest.approx(float(alone.usd_per_hour), abs=1e-6)
