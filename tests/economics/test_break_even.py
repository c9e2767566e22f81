"""The founding comparison, and what makes no sense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.economics.rent_or_own import break_even
from gpuyard.errors import UserMistake


def test_founding_figures() -> None:
    plain = break_even(1.50, 8000, 2000)
    assert plain.break_even_hours == pytest.approx(5333.3, abs=0.1)
    assert plain.break_even_years == pytest.approx(2.67, abs=0.005)
    faster = break_even(1.50, 8000, 2000, speed_lead=0.30)
    assert faster.comparable_buy_usd == pytest.approx(5600)
    assert faster.break_even_hours == pytest.approx(3733.3, abs=0.1)
    assert faster.break_even_years == pytest.approx(1.87, abs=0.005)


@given(
    rent=st.floats(0.01, 1000),
    buy=st.floats(1, 1e7),
    hours=st.floats(1, 8784),
    lead=st.floats(0, 0.95),
)
def test_at_break_even_renting_has_cost_as_much_as_buying(
    rent: float, buy: float, hours: float, lead: float
) -> None:
    result = break_even(rent, buy, hours, lead)
    assert result.rented_usd(result.break_even_years) == pytest.approx(result.comparable_buy_usd)


@pytest.mark.parametrize(
    ("rent", "hours", "lead", "sentence"),
    [
        (0, 2000, 0, "above \\$0"),
        (1, 9000, 0, "8,784"),
        (1, 0, 0, "8,784"),
        (1, 2000, 1, "below 100"),
    ],
)
def test_nonsense_is_refused(rent: float, hours: float, lead: float, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        break_even(rent, 8000, hours, lead)
