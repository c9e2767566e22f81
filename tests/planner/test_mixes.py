"""Own some, rent the rest, in a plan: by hand, never worse than all or nothing, and ruled out cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.planner import PlanResult
from gpuyard.planner.mixes import find_mixes
from gpuyard.planner.ranking import rank
from gpuyard.planner.recommendation import build_result
from gpuyard.specs.plan import Plan
from tests.planner.builder import candidates, offer, plan, workload

FREE = {"owning": {"staff": "$0/h"}, "site": {"electricity": "$0/kWh"}}


def both(buy: str, rent: str = "$1/h", **changes: object) -> Plan:
    """A hundred runs a month of ten hours: 1.71 machines that work 80% of 730.5 h."""
    ways = {"ways": ["on-demand", "buy", "hybrid"]}
    return plan(
        offer("own", buy=buy), offer("cloud", rent=rent), **{"runs_per_month": 100, **FREE, "search": ways, **changes}
    )  # fmt: skip


def solve(spec: Plan) -> PlanResult:
    return build_result(candidates(spec), workload())


def test_by_hand() -> None:
    # one machine does 0.8 × 730.5 / 10 = 58.44 of 100 runs a month; 41.56 × 36 at $10 are $14,961.60,
    # less than a second machine
    result = solve(both("$16000"))
    chosen = result.winner
    assert chosen is not None and chosen.rest is not None
    assert (chosen.way, chosen.owned_way, chosen.offer, chosen.clusters) == (
        "hybrid",
        "buy",
        "own",
        1,
    )
    assert chosen.total_usd == pytest.approx(16_000 + 41.56 * 36 * 10)
    assert chosen.usd_per_run == pytest.approx(30_961.6 / 3600)
    assert chosen.rest.share_of_runs == pytest.approx(0.4156)
    assert chosen.rest.usd_per_run == pytest.approx(10.0)
    assert chosen.utilization == pytest.approx(0.8)
    assert chosen.usd_per_run_low < chosen.usd_per_run < chosen.usd_per_run_high
    assert result.front == (chosen,)  # as fast as the others, and cheaper
    assert "42% of the runs on cloud" in result.verdict
    assert any("58%" in reason and "busy 80%" in reason for reason in result.reasons)


@pytest.mark.parametrize(("buy", "way"), [("$14000", "buy"), ("$40000", "on-demand")])
def test_a_useless_mix_is_called_useless(buy: str, way: str) -> None:
    result = solve(both(buy))
    assert result.winner is not None and result.winner.way == way
    other = result.alternatives[-1]
    assert "A mix saves nothing" in other.sentence
    # one machine and the rest rented is shown beside them all the same
    assert other.choice is not None
    assert other.choice.total_usd == pytest.approx(float(buy[1:]) + 41.56 * 36 * 10)


def test_a_losing_mix_shows_its_extra_cost() -> None:
    expensive, cheap = offer("own", buy="$16000"), offer("other", buy="$1000")
    ways = {"ways": ["on-demand", "buy", "hybrid"], "offers": ["own", "cloud", "other"]}
    result = solve(
        plan(expensive, cheap, offer("cloud", rent="$1/h"), runs_per_month=100, **FREE, search=ways)
    )
    assert result.winner is not None and result.winner.offer == "other"
    other = result.alternatives[-1]
    assert other.choice is not None and other.choice.rest is not None
    assert "costs" in other.sentence and "× as much" in other.sentence


def test_data_that_may_not_leave_rules_it_out() -> None:
    result = solve(both("$16000", policy={"data_stays": True}))
    assert result.winner is not None and result.winner.way == "buy"
    assert result.alternatives[-1].choice is None
    assert "data may not leave the building" in result.alternatives[-1].sentence


def test_without_it_in_the_ways_it_is_not_tried() -> None:
    result = solve(both("$16000", search={"ways": ["on-demand", "buy"]}))
    assert result.winner is not None and result.winner.rest is None
    assert all("mix" not in other.name for other in result.alternatives)


def test_a_room_for_one_machine_limits_ownership_to_one() -> None:
    owns = {"electricity": "$0/kWh", "power": "1.7 kW", "pue": 1.5}
    own = offer("own", buy="$1000", power="1 kW")
    ways = {"ways": ["on-demand", "buy", "hybrid"]}
    result = solve(
        plan(own, offer("cloud", rent="$1/h"), runs_per_month=100,
             owning={"staff": "$0/h"}, site=owns, search=ways)
    )  # fmt: skip
    assert result.winner is not None and result.winner.rest is not None
    assert result.winner.clusters == 1
    assert result.winner.watts == pytest.approx(1500)
    assert result.winner.broken_rules == ()


def test_the_rest_must_be_in_time() -> None:
    slow = offer("slow cloud", rent="$0.01/h") | {"gpu": "t4"}
    spec = plan(
        offer("own", buy="$16000"), offer("cloud", rent="$1/h"), slow, runs_per_month=100,
        time_per_run="11 h", **FREE, search={"ways": ["on-demand", "buy", "hybrid"]},
    )  # fmt: skip
    chosen = solve(spec).winner
    assert chosen is not None and chosen.rest is not None
    assert chosen.rest.offer == "cloud"
    assert chosen.run_seconds <= 11 * 3600


@settings(max_examples=40, deadline=None)
@given(
    buy=st.integers(100, 100_000),
    rent=st.floats(0.05, 5),
    runs=st.floats(1, 400),
    hires=st.floats(0, 10),
    data=st.integers(0, 100),
    busy=st.sampled_from(["40%", "80%", "100%"]),
)
def test_never_worse_than_owning_or_renting_all(
    buy: int, rent: float, runs: float, hires: float, data: int, busy: str
) -> None:
    spec = both(
        f"${buy}",
        f"${rent:.3f}/h",
        runs_per_month=runs,
        people={"researchers": 4, "hires_per_year": hires},
        renting={"start": "5 min", "data": f"{data} TB"},
        owning={"busy_at_most": busy},
        site={"electricity": "$0.12/kWh"},
    )
    table = candidates(spec)
    mixes = find_mixes(table, rank(table))
    assert mixes.usd_per_run.min() <= table.costs.usd_per_run.min() * (1 + 1e-9)
    # all owned and all rented are what the other ways come to
    whole = mixes.owned == mixes.own_all
    assert np.allclose(mixes.total_usd[whole], table.costs.total_usd[mixes.base[whole]])
    none = mixes.owned == 0
    assert np.allclose(mixes.total_usd[none], table.costs.total_usd[mixes.rest[none]])
