"""Rings share the wires that they cross, and the search finds the best GPUs."""

import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.catalog import gpus
from gpuyard.catalog.hardware import staged_copies
from gpuyard.errors import UserMistake
from gpuyard.hardware import (
    PRESETS,
    MachineGraph,
    build_preset,
    estimate_all_reduce,
    find_best_gpus,
    find_worst_gpus,
)
from gpuyard.hardware.rings import (
    STAGED_BOTH_WAYS_SHARE,
    STAGED_SHARE,
    sum_ring_rates,
)

PRESET_GPUS = [
    ("workstation", "gtx-1080-ti", 4),
    ("workstation", "rtx-2080-ti", 4),
    ("dual-socket", "rtx-a6000", 8),
    ("dual-root", "gtx-1080-ti", 8),
    ("dual-root", "rtx-4090", 8),
    ("single-root", "rtx-2080-ti", 8),
    ("cascaded", "gtx-1080-ti", 8),
    ("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8),
    ("nvlink-hybrid-cube-mesh", "p100-sxm2-16gb", 8),
    ("nvlink-pairs", "rtx-3090", 4),
    ("nvlink-pairs", "a100-pcie-80gb", 8),
    ("nvswitch", "a100-sxm4-80gb", 8),
    ("full-mesh", "mi300x", 8),
    ("torus", "trainium-1", 8),
    ("consumer", "rtx-4090", 3),
]
machines = st.sampled_from(PRESET_GPUS).map(lambda m: machine(*m))


def machine(name: str, gpu: str, count: int) -> MachineGraph:
    return build_preset(name, gpus().get(gpu), count)


def gb_per_second(graph: MachineGraph, *numbers: int) -> float:
    return estimate_all_reduce(graph, [f"GPU{i}" for i in numbers]).bytes_per_second / 1e9


def test_nvlink_rings_of_a_dgx_1() -> None:
    v100 = machine("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8)
    # 20 GB/s per link: all six links of each GPU in three rings run both ways; a quad has two such rings
    assert gb_per_second(v100, *range(8)) == pytest.approx(120)
    assert gb_per_second(v100, 0, 1, 2, 3) == pytest.approx(80)
    assert gb_per_second(v100, 0, 3) == pytest.approx(40)
    assert gb_per_second(v100, 0, 1) == pytest.approx(20)
    p100 = machine("nvlink-hybrid-cube-mesh", "p100-sxm2-16gb", 8)
    assert gb_per_second(p100, *range(8)) == pytest.approx(4 * 18)


def test_nvswitch_gives_all_gpus_the_full_rate() -> None:
    graph = machine("nvswitch", "a100-sxm4-80gb", 8)
    assert gb_per_second(graph, 0, 5) == gb_per_second(graph, *range(8)) == pytest.approx(12 * 19.4)


def test_a_ring_over_two_sockets_runs_at_the_socket_link() -> None:
    graph = machine("dual-root", "gtx-1080-ti", 8)
    assert gb_per_second(graph, 0, 1, 2, 3) == pytest.approx(12)
    assert gb_per_second(graph, *range(8)) == pytest.approx(6)  # QPI, as NCCL plans with it


def test_a_bad_order_crosses_the_socket_link_more_often() -> None:
    graph = machine("dual-root", "gtx-1080-ti", 8)
    zigzag = ("GPU0", "GPU4", "GPU1", "GPU5")
    straight = ("GPU0", "GPU1", "GPU4", "GPU5")
    assert sum_ring_rates(graph, [zigzag]) == sum_ring_rates(graph, [straight]) / 2


def test_two_rings_on_one_link_share_it() -> None:
    graph = machine("dual-root", "gtx-1080-ti", 8)
    single = sum_ring_rates(graph, [("GPU0", "GPU4")])
    both = sum_ring_rates(graph, [("GPU0", "GPU4"), ("GPU1", "GPU5")])
    assert both == pytest.approx(single)  # limited by the link
    apart = sum_ring_rates(graph, [("GPU0", "GPU1"), ("GPU4", "GPU5")])
    assert apart == pytest.approx(2 * 12e9)


def test_staging_through_one_uplink_divides_it() -> None:
    graph = machine("cascaded", "rtx-2080-ti", 8)
    # all eight send up and receive down through the first switch's single uplink of 12 GB/s
    assert gb_per_second(graph, *range(8)) == pytest.approx(12 / 8 * STAGED_BOTH_WAYS_SHARE)


def test_a_gpu_with_one_neighbor_stays_on_nvlink() -> None:
    # the fifth of a DGX-1 has its two links to GPU0 only: one ring goes there and back again, run both
    # ways over 20 GB/s per link. Published for these five: 37 GB/s
    graph = machine("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8)
    five = estimate_all_reduce(graph, ["GPU0", "GPU1", "GPU2", "GPU3", "GPU4"])
    assert five.bytes_per_second == pytest.approx(40e9)
    assert five.kind == "nvlink"
    (ring,) = five.rings
    assert sorted(ring) == ["GPU0", "GPU0", "GPU1", "GPU2", "GPU3", "GPU4"]
    # five that close a ring by themselves are as fast, and preferred
    assert [len(ring) for ring in find_best_gpus(graph, 5).rings] == [5]


def test_nvlink_pairs_have_no_detour() -> None:
    graph = machine("nvlink-pairs", "rtx-3090", 4)
    assert estimate_all_reduce(graph, graph.gpus).kind != "nvlink"


def test_best_and_worst_of_a_dgx_1() -> None:
    graph = machine("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8)
    assert find_best_gpus(graph, 4).gpus == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert find_best_gpus(graph, 4, ["GPU1", "GPU3", "GPU5", "GPU7"]).bytes_per_second < 80e9
    assert find_worst_gpus(graph, 2).bytes_per_second == pytest.approx(6e9)


@pytest.mark.parametrize(("name", "gpu", "count"), PRESET_GPUS)
def test_no_random_choice_beats_the_best(name: str, gpu: str, count: int) -> None:
    """Try 10,000 random choices over all machines, among random sets of free GPUs."""
    graph = machine(name, gpu, count)
    rng = random.Random(1)
    for _ in range(10_000 // len(PRESET_GPUS) + 1):
        free = rng.sample(graph.gpus, rng.randint(2, count))
        n = rng.randint(2, len(free))
        rate = estimate_all_reduce(graph, rng.sample(free, n)).bytes_per_second
        assert rate <= find_best_gpus(graph, n, free).bytes_per_second * (1 + 1e-9)
        assert rate >= find_worst_gpus(graph, n, free).bytes_per_second * (1 - 1e-9)


@settings(max_examples=200)
@given(graph=machines, data=st.data())
def test_a_ring_is_never_faster_than_its_slowest_link(
    graph: MachineGraph, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, len(graph.gpus)))
    ring = tuple(data.draw(st.permutations(graph.gpus)))[:size]
    rate = sum_ring_rates(graph, [ring])
    for a, b in zip(ring, (*ring[1:], ring[0]), strict=True):
        for hop in graph.transfer_path(a, b):
            assert rate <= hop.wire.bytes_per_second * (1 + 1e-9)


@settings(max_examples=100)
@given(graph=machines, data=st.data())
def test_the_chosen_order_is_no_worse_than_any_other(
    graph: MachineGraph, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, len(graph.gpus)))
    ring = tuple(data.draw(st.permutations(graph.gpus)))[:size]
    assert estimate_all_reduce(graph, ring).bytes_per_second >= sum_ring_rates(graph, [ring]) * (
        1 - 1e-9
    )


def test_impossible_choices_are_refused() -> None:
    graph = machine("workstation", "gtx-1080-ti", 4)
    with pytest.raises(UserMistake, match="5 GPUs were requested; 4 are free"):
        find_best_gpus(graph, 5)
    with pytest.raises(UserMistake, match="needs distinct GPUs"):
        estimate_all_reduce(graph, ["GPU0", "GPU0"])


def test_sixteen_gpus_are_searched() -> None:
    graph = build_preset("nvswitch", gpus().get("v100-sxm3-32gb"), 16)
    assert find_best_gpus(graph, 8).bytes_per_second == pytest.approx(6 * 20e9)


def test_every_preset_is_covered() -> None:
    assert {name for name, _, _ in PRESET_GPUS} == set(PRESETS)


def test_staged_shares_are_the_medians_of_published_copies() -> None:
    both_ways = [copy.both_ways_share for copy in staged_copies()]
    assert round(median(copy.one_way_share for copy in staged_copies()), 2) == STAGED_SHARE
    assert round(median(share for share in both_ways if share), 2) == STAGED_BOTH_WAYS_SHARE


def test_a_staged_ring_gets_a_share_of_the_wires() -> None:
    staged = estimate_all_reduce(
        machine("workstation", "rtx-4090", 4), ["GPU0", "GPU1", "GPU2", "GPU3"]
    )
    assert staged.bytes_per_second == pytest.approx(STAGED_BOTH_WAYS_SHARE * 24e9)
    direct = estimate_all_reduce(machine("workstation", "gtx-1080-ti", 4), ["GPU0", "GPU1"])
    assert direct.bytes_per_second == pytest.approx(12e9)
