"""Estimated prices are ranges: they widen the interval of a cost, and the verdict says that it rests on them."""

import math

import pytest

from gpuyard.planner import Choice, PlanResult, make_plan
from gpuyard.planner.choices import combine_errors
from tests.planner.builder import offer, plan

BUILD = "workstation-4/4x-rtx-4090"


def _search(*ways: str, **keys: object) -> PlanResult:
    search = {"offers": [BUILD, "mine"], "ways": list(ways), "nodes": [1]}
    return make_plan(plan(search=search, **keys))


def _winner(result: PlanResult) -> Choice:
    assert result.winner is not None
    return result.winner


def test_an_estimated_price_widens_the_interval_more_than_the_speed_alone() -> None:
    estimated = _winner(_search("buy"))
    quoted = _winner(
        _search("buy", prices={"servers": [], "gpus": [{"gpu": "rtx-4090", "price": "$1825"}]})
    )
    assert estimated.machine_usd_range is not None and quoted.machine_usd_range is not None
    wide, narrow = (
        math.log(choice.usd_per_run_high / choice.usd_per_run_low) for choice in (estimated, quoted)
    )
    assert wide > narrow
    assert estimated.machine_usd_range[0] < quoted.machine_usd_range[0]


def test_the_first_line_says_that_the_price_is_estimated() -> None:
    result = _search("buy")
    assert "estimated price" in result.price_basis
    assert result.verdict.endswith(result.price_basis)
    assert any(change.startswith("A quote") for change in result.would_change)


def test_a_quote_does_not_rest_on_an_estimate() -> None:
    mine = offer(name="mine", gpu="rtx-4090", gpus=4, buy="$20000")
    result = make_plan(
        plan(offers=[mine], search={"offers": ["mine"], "ways": ["buy"], "nodes": [1]})
    )
    assert not result.price_basis
    assert _winner(result).machine_usd_range == (20000, 20000)


def test_a_firm_winner_names_the_estimate_that_may_beat_it() -> None:
    typical = _winner(_search("buy"))
    mine = offer(
        name="mine", gpu="rtx-4090", gpus=4, buy=f"${0.98 * (typical.machine_usd or 0):.0f}"
    )
    result = make_plan(
        plan(offers=[mine], search={"offers": [BUILD, "mine"], "ways": ["buy"], "nodes": [1]})
    )
    assert _winner(result).offer == "mine"
    assert "low end" in result.price_basis
    assert any("A quote for" in change for change in result.would_change)


@pytest.mark.parametrize("low", [2.0, 4.0, 8.0])
def test_errors_add_as_squares(low: float) -> None:
    assert combine_errors(8.0, 8.0, low) == pytest.approx(low)
    combined = combine_errors(8.0, low, low)
    assert math.log(8 / combined) == pytest.approx(math.sqrt(2) * math.log(8 / low))
    assert combine_errors(1.0, 2.0, 2.0) > 2.0
