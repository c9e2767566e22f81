"""The formulas against numbers worked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.predictor import collectives as c


def test_pipelined_broadcast() -> None:
    # 4 members, 100 MB in 10 messages at 10 GB/s: 100 MB · (10 + 4 − 2) / (10 · 10 GB/s) = 12 ms
    assert c.pipelined_broadcast_seconds(4, 100e6, 10e9, 10) == pytest.approx(0.012)


def test_a_broadcast_of_one_message_forwards_all_of_it() -> None:
    # 4 members, 100 MB, 10 GB/s: 3 hops of 10 ms
    assert c.pipelined_broadcast_seconds(4, 100e6, 10e9, 1) == pytest.approx(0.030)


def test_ring_all_reduce() -> None:
    # 4 members, 100 MB, 1 GB/s, 10 µs: 2·3·10 µs + 2·3/4·0.1 s
    assert c.ring_all_reduce_seconds(4, 100e6, 1e9, 10e-6) == pytest.approx(60e-6 + 0.150)


def test_hierarchical_all_reduce() -> None:
    # 2 machines of 4: inside 2·3/4·N/100 GB/s, between 2·1/2·N/10 GB/s, N = 100 MB, no latency
    seconds = c.hierarchical_all_reduce_seconds(
        4,
        2,
        100e6,
        intra_bytes_per_second=100e9,
        intra_latency_seconds=0.0,
        inter_bytes_per_second=10e9,
        inter_latency_seconds=0.0,
    )
    assert seconds == pytest.approx(1.5e-3 + 10e-3)


def test_parameter_server() -> None:
    # 8 workers on 4 nodes: each server takes in and gives out 8·N/4, three quarters of it by network
    assert c.parameter_server_seconds(8, 4, 100e6, 1e9) == pytest.approx(2 * 8 * 0.1 / 4 * 0.75)


@given(
    members=st.integers(2, 4096),
    size=st.floats(1, 1e12),
    rate=st.floats(1e6, 1e12),
    messages=st.integers(1, 10_000),
)
def test_pipelining_never_hurts_and_never_beats_the_wire(
    members: int, size: float, rate: float, messages: int
) -> None:
    seconds = c.pipelined_broadcast_seconds(members, size, rate, messages)
    assert seconds <= (members - 1) * size / rate * (1 + 1e-12)
    assert seconds >= size / rate * (1 - 1e-12)


@given(members=st.integers(1, 4096), size=st.floats(1, 1e12), rate=st.floats(1e6, 1e12))
def test_ring_is_between_one_and_two_messages(members: int, size: float, rate: float) -> None:
    seconds = c.ring_all_reduce_seconds(members, size, rate)
    if members == 1:
        assert seconds == 0
    else:
        assert size / rate * (1 - 1e-12) <= seconds < 2 * size / rate


def test_arrays_give_the_same_as_numbers() -> None:
    members = np.array([1.0, 2.0, 8.0])
    many = c.ring_all_reduce_seconds(members, 1e6, 1e9, 1e-6)
    assert list(np.asarray(many)) == [c.ring_all_reduce_seconds(k, 1e6, 1e9, 1e-6) for k in members]


def test_half_a_ring() -> None:
    # 4 members, 100 MB in all, 1 GB/s: 3/4 of 0.1 s; two halves are an all-reduce
    assert c.ring_half_seconds(4, 100e6, 1e9) == pytest.approx(0.075)
    assert 2 * c.ring_half_seconds(4, 100e6, 1e9) == c.ring_all_reduce_seconds(4, 100e6, 1e9)


@pytest.mark.parametrize(
    ("members", "messages"), [(1, 0), (2, 1), (3, 2), (4, 3), (8, 6), (16, 10)]
)
def test_binomial_broadcast_to_all_children_at_once(members: int, messages: int) -> None:
    # 8 members: the root's 3 copies share its link (3 N/B), then 2 of member 1, then 1 of member 3.
    # 3 members: the root has 2 children, and neither has one.
    assert c.binomial_broadcast_seconds(members, 100e6, 1e9) == pytest.approx(messages * 0.1)


@given(members=st.integers(2, 200))
def test_a_binomial_tree_is_never_faster_than_its_depth(members: int) -> None:
    depth = c.binomial_depth(members)
    assert 2 ** (depth - 1) < members <= 2**depth
    assert c.binomial_broadcast_seconds(members, 1.0, 1.0) >= depth
