"""Link rates of an exchange: flows, copies through host memory, and the slowest of many."""

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.catalog import gpus
from gpuyard.hardware import build_preset, estimate_all_reduce
from gpuyard.predictor.constants import Tuning, load_tuning
from gpuyard.predictor.strategies.ddp import all_reduce
from gpuyard.predictor.table import TREE_GAIN, Paths, expected_maximum
from gpuyard.predictor.topology import summarize_topology
from gpuyard.predictor.transport import MachineLinks, between_rate, inside_rate, ring_rate

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


def test_a_staged_ring_needs_wires_and_host_memory() -> None:
    wires, memory = np.array([6e9, 12e9, 12e9]), np.array([1e11, 1e11, 2e11])
    slow_slot, slow_memory, fast = inside_rate(wires, memory, TUNING)
    assert slow_slot == 6e9
    assert slow_memory == TUNING.staged_memory_share * 1e11
    assert fast == 12e9
    unstaged = np.full(3, np.inf)
    assert inside_rate(wires, unstaged, TUNING).tolist() == wires.tolist()
    assert inside_rate(unstaged, unstaged, TUNING).tolist() == [np.inf] * 3  # a single GPU


def test_threads_of_each_port_copy_tcp() -> None:
    # A3 High over plain TCP: a bus bandwidth of 20 GB/s over four cards of 200 Gbit/s
    wire, tcp = np.array([1e11]), np.array([True])
    rate = between_rate(wire, tcp, np.array([np.inf]), np.array([2.0]), load_tuning(), ports=4.0)
    assert rate[0] == pytest.approx(20e9, rel=0.1)


def test_trees_let_two_machines_send_every_byte_once() -> None:
    size, two, three = np.array(1e10), paths(2, 8), paths(3, 8)
    trees = {"trees": np.array([True]), "switch_gain": np.array([1.3])}
    gain = all_reduce(two, 0.0)(size) / all_reduce(replace(two, **trees), 0.0)(size)
    assert gain == pytest.approx(TREE_GAIN, rel=0.01)
    # rings over more machines use neither trees nor the switches
    slow = {"inside_bytes_per_second": np.array([1.2e10])}
    ring = all_reduce(replace(three, **slow), 0.0)(size)
    assert all_reduce(replace(three, **slow, **trees), 0.0)(size) > ring


@pytest.mark.parametrize(
    ("gpu", "topology", "gb_per_second"),
    [
        ("h200-sxm5-141gb", "nvswitch", {2: 365, 4: 363, 5: 414, 6: 436, 7: 460, 8: 473}),
        ("b200-sxm", "nvswitch", {4: 673, 5: 678, 6: 778, 7: 811, 8: 838}),
        ("a100-sxm4-80gb", "nvswitch", {8: 232}),
        ("mi300x", "full-mesh", {2: 48, 8: 313}),
    ],
)
def test_measured_bus_bandwidths_of_linked_gpus(
    gpu: str, topology: str, gb_per_second: dict[int, float]
) -> None:
    links = MachineLinks.from_topology(gpus().get(gpu), 8, topology)
    for count, published in gb_per_second.items():
        assert links.pipe(count).bytes_per_second / 1e9 == pytest.approx(published, rel=0.025)


def test_only_an_all_reduce_gains_from_switches() -> None:
    pipe = MachineLinks.from_topology(gpus().get("h200-sxm5-141gb"), 8, "nvswitch").pipe(8)
    # all-gather and reduce-scatter over eight H200: 361 and 363 GB/s
    assert pipe.bytes_per_second / pipe.switch_gain == pytest.approx(362e9, rel=0.02)


@pytest.mark.parametrize("gpu", ["rtx-2080-ti", "rtx-3090", "rtx-4090", "rtx-5090"])
@pytest.mark.parametrize("topology", ["workstation", "dual-socket", "dual-root", "single-root"])
def test_no_recommended_gpus_are_slower_than_those_to_avoid(gpu: str, topology: str) -> None:
    graph = build_preset(topology, gpus().get(gpu), 8)
    for choice in summarize_topology(graph).choices:
        assert choice.ratio >= 1
        assert ring_rate(choice.best) >= ring_rate(choice.worst)


def test_staged_rates_follow_pcie_uplinks_and_memory() -> None:
    def rate(gpu: str, topology: str, count: int, used: int) -> float:
        return (
            MachineLinks(build_preset(topology, gpus().get(gpu), count)).pipe(used).bytes_per_second
        )

    third, fourth, fifth = (
        rate(gpu, "workstation", 4, 4) for gpu in ("rtx-2080-ti", "rtx-4090", "rtx-5090")
    )
    # published training is no faster on PCIe 4
    assert third == fourth < fifth
    # two GPUs behind one switch share its uplink
    graph = build_preset("single-root", gpus().get("rtx-2080-ti"), 4)
    pair = estimate_all_reduce(graph, ["GPU0", "GPU1"])
    assert ring_rate(pair) < rate("rtx-2080-ti", "workstation", 2, 2)
    assert rate("rtx-2080-ti", "single-root", 8, 8) < rate("rtx-2080-ti", "workstation", 8, 8)
    assert rate("rtx-4090", "workstation", 8, 8) < rate("rtx-4090", "dual-socket", 8, 8)  # memory


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
