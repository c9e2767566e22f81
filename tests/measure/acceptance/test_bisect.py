"""Halving the nodes finds those that make a collective slow, in about 2 log₂ n runs."""

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.measure.acceptance.bisect import bisect


@given(st.integers(3, 64), st.data())
def test_one_bad_node_is_found_in_logarithmic_time(nodes: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, nodes - 1))
    found = bisect(range(nodes), lambda group: 0.4 if bad in group else 0.95)
    assert found.nodes == (bad,)
    assert found.runs <= 2 * math.ceil(math.log2(nodes)) + 2


@given(st.integers(6, 64), st.data())
def test_two_bad_nodes_are_found(nodes: int, data: st.DataObject) -> None:
    # without a fast group, there is nothing to compare two nodes with
    half = data.draw(st.sampled_from([range(nodes // 2), range(nodes // 2, nodes)]))
    bad = data.draw(st.lists(st.sampled_from(list(half)), min_size=2, max_size=2, unique=True))
    found = bisect(range(nodes), lambda group: 0.4 if set(bad) & set(group) else 1.0)
    assert found.nodes == tuple(sorted(bad))


def test_groups_that_are_slow_only_together_are_named_as_groups() -> None:
    def measure(group: Sequence[int]) -> float:
        return 0.3 if min(group) < 4 <= max(group) else 0.9

    found = bisect(range(8), measure)
    assert found.nodes == ()
    assert found.between == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert found.runs == 2
