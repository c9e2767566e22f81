"""Ranking: no candidate beats the front, and the cheapest one that meets the goal wins."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.planner.ranking import SIMPLICITY_TOLERANCE, find_simplest_setting, pareto_front, rank
from gpuyard.planner.recommendation import build_result
from gpuyard.specs.plan import Plan
from tests.planner.builder import candidates, offer, plan, workload

POINTS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40)


@given(points=POINTS, drop=st.sets(st.integers(0, 39)))
def test_the_front_is_exactly_the_undominated_points(
    points: list[tuple[int, int]], drop: set[int]
) -> None:
    first = np.array([p[0] for p in points], dtype=float)
    second = np.array([p[1] for p in points], dtype=float)
    chosen = [i for i in range(len(points)) if i not in drop]
    front = pareto_front(first, second, np.array(chosen, dtype=np.int64))
    on_front = {points[i] for i in front}

    def beaten(p: tuple[int, int]) -> bool:
        return any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in (points[i] for i in chosen))

    assert on_front == {points[i] for i in chosen if not beaten(points[i])}
    assert len(front) == len(on_front)  # of equals, one
    assert all(first[a] < first[b] for a, b in itertools.pairwise(front))


def create_plan(prices: list[float], limit_hours: float = 20.0) -> Plan:
    offers = [
        offer(f"o{i}", rent=f"${p:.4f}/h", gpus=2 ** (i % 4), network={"link": "ethernet-100g"})
        for i, p in enumerate(prices)
    ]
    return plan(
        *offers,
        time_per_run=f"{limit_hours} h",
        search={"ways": ["on-demand"], "nodes": [1, 2], "batch": [32, 64], "remedies": ["none", "powersgd"]},
    )  # fmt: skip


PRICES = st.lists(st.floats(0.01, 50), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(prices=PRICES, limit=st.floats(0.5, 20))
def test_the_winner_is_the_cheapest_that_meets_the_goal(prices: list[float], limit: float) -> None:
    table = candidates(create_plan(prices, limit))
    ranking = rank(table)
    usd, seconds = table.costs.usd_per_run, table.costs.run_seconds
    meets = [i for i in range(len(table)) if seconds[i] <= limit * 3600]
    assert (ranking.winner is None) == (not meets)
    if ranking.winner is not None:
        assert usd[ranking.winner] == min(usd[i] for i in meets)
        simple = find_simplest_setting(table, ranking, ranking.winner)
        assert usd[simple] <= usd[ranking.winner] * (1 + SIMPLICITY_TOLERANCE)
        assert simple in meets
        assert table.offer[simple] == table.offer[ranking.winner]


@settings(max_examples=25, deadline=None)
@given(prices=PRICES, which=st.integers(0, 5), factor=st.floats(1, 10))
def test_a_higher_price_never_makes_the_plan_cheaper(
    prices: list[float], which: int, factor: float
) -> None:
    raised = [p * factor if i == which else p for i, p in enumerate(prices)]
    before, after = (candidates(create_plan(these)) for these in (prices, raised))
    rank_before, rank_after = rank(before), rank(after)
    assert rank_before.winner is not None and rank_after.winner is not None
    cost_before = before.costs.usd_per_run[rank_before.winner]
    assert after.costs.usd_per_run[rank_after.winner] >= cost_before * (1 - 1e-3)
    assert np.all(after.costs.usd_per_run >= before.costs.usd_per_run * (1 - 1e-3))


@settings(max_examples=25, deadline=None)
@given(prices=PRICES, which=st.integers(0, 5))
def test_a_free_machine_always_wins(prices: list[float], which: int) -> None:
    which %= len(prices)
    free = [0.0 if i == which else p for i, p in enumerate(prices)]
    result = build_result(candidates(create_plan(free)), workload())
    assert result.winner is not None
    assert result.winner.offer == f"o{which}"
    assert result.winner.usd_per_run == 0


def test_a_free_machine_beats_one_with_a_price() -> None:
    result = build_result(
        candidates(
            plan(
                offer("given", buy="$0", power="500 W"),
                offer("sold", buy="$5000", power="500 W"),
                search={"ways": ["buy"]},
            )
        ),
        workload(),
    )
    assert result.winner is not None and result.winner.offer == "given"


def test_no_remedy_for_one_percent() -> None:
    fast = offer("a", rent="$1/h", gpus=8, topology="nvlink-hybrid-cube-mesh")
    spec = plan(fast, search={"ways": ["on-demand"], "nodes": [1],
                               "remedies": ["none", "fp16-gradients", "accumulation"]})  # fmt: skip
    result = build_result(candidates(spec), workload())
    assert result.winner is not None and result.winner.remedy == "none"


def test_a_remedy_where_it_pays() -> None:
    slow = offer("a", rent="$1/h", gpus=8, topology="nvlink-hybrid-cube-mesh",
                 network={"link": "ethernet-1g"})  # fmt: skip
    spec = plan(
        slow, search={"ways": ["on-demand"], "nodes": [4], "remedies": ["none", "powersgd"]}
    )
    result = build_result(candidates(spec), workload())
    assert result.winner is not None and result.winner.remedy == "powersgd"
    assert result.winner.effective_gpus < 32


def test_a_simple_setting_never_costs_more_than_other_machines() -> None:
    # a batch of 128 is 2% cheaper than the workload's own of 64, and other machines are in between
    known = workload(
        measured=[
            {"gpu": gpu, "batch_per_gpu": batch, "samples_per_second": speed}
            for gpu, at_64, at_128 in (("v100-sxm2-16gb", 1000, 1020), ("a100-pcie-40gb", 1000, 1000))
            for batch, speed in ((64, at_64), (128, at_128))
        ]
    )  # fmt: skip
    ours, other = offer("ours", rent="$1/h"), offer("other", rent="$0.99/h", gpu="a100-pcie-40gb")
    search = {"ways": ["on-demand"], "nodes": [1], "batch": [64, 128]}
    alone = plan(ours, workload=known, search=search)
    both = plan(ours, other, workload=known, search=search)
    plain, chosen = (build_result(candidates(spec), known).winner for spec in (alone, both))
    assert plain is not None and (plain.offer, plain.batch_per_gpu) == ("ours", 64)
    assert chosen is not None and (chosen.offer, chosen.batch_per_gpu) == ("ours", 128)
    assert chosen.usd_per_run < 9.9  # of the other machines
