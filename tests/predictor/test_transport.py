"""Link rates of an exchange: flows, copies through host memory, and the slowest of many."""

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.predictor.constants import Tuning
from gpuyard.predictor.strategies.ddp import all_reduce
from gpuyard.predictor.table import Paths, expected_maximum
from gpuyard.predictor.transport import between_rate, inside_rate

TUNING = Tuning()
GBIT = 1e9 / 8


def tcp_rate(gbit: float, nodes: int, flow_gbit: float = np.inf) -> float:
    single = np.ones(1)
    rate = between_rate(
        gbit * GBIT * single, np.array([True]), flow_gbit * GBIT * single, nodes * single, TUNING
    )
    return float(rate[0])


def test_tcp_fills_a_slow_wire_and_not_a_fast_one() -> None:
    assert tcp_rate(1, 2) / GBIT == pytest.approx(0.92, abs=0.01)
    # the best that was obtained at 32 Gbit/s was 0.6 (NVIDIA/nccl issue 209)
    assert tcp_rate(32, 2) / (32 * GBIT) == pytest.approx(0.6, abs=0.01)
    assert tcp_rate(100, 2) > tcp_rate(32, 2)


def test_a_capped_flow_counts_once_for_two_machines_and_twice_for_more() -> None:
    two, three, four = (tcp_rate(50, nodes, 5) for nodes in (2, 3, 4))
    assert two < 5 * GBIT
    assert 1.5 < three / two < 2
    assert four < three  # the slowest of more flows
    assert tcp_rate(50, 4) > 3 * four


def test_one_machine_needs_no_network() -> None:
    assert tcp_rate(1, 1) == np.inf


def test_host_memory_copies_limit_a_staged_ring() -> None:
    slots = np.array([12e9, 24e9, 24e9])
    staged, across = np.array([True, True, True]), np.array([False, False, True])
    third, fourth, split = inside_rate(slots, staged, across, TUNING)
    assert third == fourth == TUNING.staged_bytes_per_second
    assert split == fourth * TUNING.staged_socket_share
    assert inside_rate(slots, ~staged, across, TUNING).tolist() == slots.tolist()


def test_expected_maximum_grows_and_is_nothing_for_one() -> None:
    maxima = expected_maximum(np.array([1.0, 2.0, 8.0, 64.0, 8192.0]))
    assert maxima[0] == 0
    assert np.all(np.diff(maxima) > 0)
    assert maxima[2] == pytest.approx(1.42, abs=0.02)  # 1.4236 exactly
    beyond = expected_maximum(np.array([100_000.0]))
    assert beyond[0] > maxima[-1]


def paths(nodes: float, per_node: float) -> Paths:
    single = np.ones(1)
    return Paths(
        nodes=nodes * single,
        gpus_per_node=per_node * single,
        inside_bytes_per_second=2e11 * single,
        inside_latency_seconds=3e-6 * single,
        between_bytes_per_second=(1e10 if nodes > 1 else np.inf) * single,
        between_latency_seconds=1e-5 * single,
    )


def test_the_bandwidth_that_a_message_sees_grows_with_its_size() -> None:
    sizes = 2.0 ** np.arange(10, 31)
    rates = [size / all_reduce(paths(1, 8), 3e-5)(np.array(size))[0] for size in sizes]
    assert np.all(np.diff(rates) > 0)
    assert rates[-1] == pytest.approx(2e11 * 8 / 14, rel=0.02)


def test_many_machines_take_the_tree_for_a_small_message() -> None:
    small, many = np.array(1024.0), paths(512, 8)
    tree = all_reduce(many, 0.0)(small)[0]
    ring_hops = 2 * (511 * 1e-5 + (4096 - 512) * 3e-6)
    assert tree < ring_hops / 10


def test_the_links_of_a_ring_work_at_once() -> None:
    size, slow = np.array(1e9), np.array([1e10])
    evenly = replace(paths(2, 4), inside_bytes_per_second=slow)
    assert all_reduce(evenly, 0.0)(size) == all_reduce(paths(2, 4), 0.0)(size)
