"""Slow links are named from the rates of log₂ n rounds of pairs, whichever nodes have them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.measure.acceptance.pairs import (
    find_slow_pairs,
    judge_pairs,
    merge_rates,
    plan_rounds,
    split_disjoint,
)
from gpuyard.measure.acceptance.records import PairRate

FULL = 100.0


def measure(nodes: int, capacity: dict[int, float], noise: float = 1.0) -> list[PairRate]:
    """Return the rates of all planned pairs: each end limits both directions."""
    return [
        PairRate(a=a, b=b, forward=rate * noise, backward=rate)
        for pairs in plan_rounds(nodes)
        for a, b in pairs
        for rate in [min(capacity.get(a, FULL), capacity.get(b, FULL))]
    ]


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 9, 16, 31, 100])
def test_every_node_is_in_a_pair_of_every_round_or_has_more_later(nodes: int) -> None:
    rounds = plan_rounds(nodes)
    assert len(rounds) == math.ceil(math.log2(nodes))
    pairs = [pair for planned in rounds for pair in planned]
    assert len(set(pairs)) == len(pairs)
    partners = [sum(node in pair for pair in pairs) for node in range(nodes)]
    assert min(partners) >= min(len(rounds), nodes - 1)
    assert len(pairs) <= nodes * len(rounds)


def test_pairs_of_a_group_are_disjoint() -> None:
    for pairs in plan_rounds(13):
        groups = split_disjoint(pairs, one_at_a_time=False)
        assert sorted(pair for group in groups for pair in group) == sorted(pairs)
        for group in groups:
            ends = [node for pair in group for node in pair]
            assert len(set(ends)) == len(ends)
    assert all(len(g) == 1 for g in split_disjoint(plan_rounds(8)[0], one_at_a_time=True))


@given(st.integers(4, 40), st.data())
def test_one_slow_link_is_named_and_nobody_else(nodes: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, nodes - 1))
    share = data.draw(st.floats(0.05, 0.6))
    verdict = judge_pairs(measure(nodes, {bad: share * FULL}, 0.95), FULL, nodes)
    assert [slow.node for slow in verdict.nodes] == [bad]
    assert verdict.paths == ()


@given(st.integers(8, 40), st.data())
def test_two_slow_links_are_named_even_if_they_are_partners(
    nodes: int, data: st.DataObject
) -> None:
    bad = data.draw(st.lists(st.integers(0, nodes - 1), min_size=2, max_size=2, unique=True))
    verdict = judge_pairs(measure(nodes, dict.fromkeys(bad, FULL / 2)), FULL, nodes)
    assert [slow.node for slow in verdict.nodes] == sorted(bad)


@given(st.integers(2, 40), st.floats(0.8, 1.0))
def test_a_healthy_cluster_has_no_slow_pair(nodes: int, noise: float) -> None:
    rates = measure(nodes, {}, noise)
    verdict = judge_pairs(rates, FULL, nodes)
    assert (verdict.nodes, verdict.paths, find_slow_pairs(rates, FULL)) == ((), (), [])


def test_one_direction_is_enough() -> None:
    rates = [
        rate.model_copy(update={"forward": FULL / 2}) if rate.a == 4 else
        rate.model_copy(update={"backward": FULL / 2}) if rate.b == 4 else rate
        for rate in measure(8, {})
    ]  # fmt: skip
    (slow,) = judge_pairs(rates, FULL, 8).nodes
    assert (slow.node, slow.direction) == (4, "sends")


def test_a_slow_path_between_two_fast_nodes_is_no_node() -> None:
    rates = [
        rate.model_copy(update={"forward": 30.0, "backward": 30.0}) if (rate.a, rate.b) == (2, 6) else rate
        for rate in measure(8, {})
    ]  # fmt: skip
    verdict = judge_pairs(rates, FULL, 8)
    assert verdict.nodes == ()
    (path,) = verdict.paths
    assert (path.pairs, path.halves) == (((2, 6),), None)


def test_all_pairs_of_a_round_are_the_uplink_between_two_halves() -> None:
    rates = [
        rate.model_copy(update={"forward": 40.0, "backward": 40.0}) if rate.b - rate.a == 4 else rate
        for rate in measure(8, {})
    ]  # fmt: skip
    verdict = judge_pairs(rates, FULL, 8)
    assert verdict.nodes == ()
    (path,) = verdict.paths
    assert path.halves == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_a_disturbed_measurement_is_forgotten_once_the_pair_was_fast() -> None:
    slow, fast = (PairRate(a=0, b=1, forward=rate, backward=rate) for rate in (10.0, 99.0))
    assert merge_rates([slow, fast]) == merge_rates([fast, slow]) == [fast]


def test_the_spec_counts_if_most_links_are_slow() -> None:
    bad = dict.fromkeys([0, 2, 3, 6, 7], FULL / 2)
    named = {slow.node for slow in judge_pairs(measure(8, bad), FULL, 8).nodes}
    # all partners of node 2 are slow, so nothing is known about it
    assert named == {0, 3, 6, 7}
