"""Rings share what they cross, and the best choice of GPUs is the best."""

import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.catalog import gpus
from gpuyard.catalog.hardware import staged_copies
from gpuyard.errors import UserMistake
from gpuyard.hardware import PRESETS, MachineGraph, all_reduce, best_gpus, build_preset, worst_gpus
from gpuyard.hardware.rings import (
    STAGED_BOTH_WAYS_SHARE,
    STAGED_SHARE,
    simultaneous_bandwidth,
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


def gigabytes(graph: MachineGraph, *numbers: int) -> float:
    return all_reduce(graph, [f"GPU{i}" for i in numbers]).bytes_per_second / 1e9


def test_nvlink_rings_of_a_dgx_1() -> None:
    v100 = machine("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8)
    # 20 GB/s a link: all six links of each GPU in three rings run both ways; a quad has two such rings
    assert gigabytes(v100, *range(8)) == pytest.approx(120)
    assert gigabytes(v100, 0, 1, 2, 3) == pytest.approx(80)
    assert gigabytes(v100, 0, 3) == pytest.approx(40)
    assert gigabytes(v100, 0, 1) == pytest.approx(20)
    p100 = machine("nvlink-hybrid-cube-mesh", "p100-sxm2-16gb", 8)
    assert gigabytes(p100, *range(8)) == pytest.approx(4 * 18)


def test_nvswitch_gives_every_set_the_whole_rate() -> None:
    graph = machine("nvswitch", "a100-sxm4-80gb", 8)
    assert gigabytes(graph, 0, 5) == gigabytes(graph, *range(8)) == pytest.approx(12 * 20)


def test_a_ring_over_two_sockets_runs_at_the_socket_link() -> None:
    graph = machine("dual-root", "gtx-1080-ti", 8)
    assert gigabytes(graph, 0, 1, 2, 3) == pytest.approx(12)
    assert gigabytes(graph, *range(8)) == pytest.approx(6)  # QPI, as NCCL plans with it


def test_a_bad_order_crosses_the_socket_link_more_often() -> None:
    graph = machine("dual-root", "gtx-1080-ti", 8)
    zigzag = ("GPU0", "GPU4", "GPU1", "GPU5")
    straight = ("GPU0", "GPU1", "GPU4", "GPU5")
    assert simultaneous_bandwidth(graph, [zigzag]) == simultaneous_bandwidth(graph, [straight]) / 2


def test_two_rings_on_one_link_share_it() -> None:
    graph = machine("dual-root", "gtx-1080-ti", 8)
    one = simultaneous_bandwidth(graph, [("GPU0", "GPU4")])
    both = simultaneous_bandwidth(graph, [("GPU0", "GPU4"), ("GPU1", "GPU5")])
    assert both == pytest.approx(one)  # together no more than the link
    apart = simultaneous_bandwidth(graph, [("GPU0", "GPU1"), ("GPU4", "GPU5")])
    assert apart == pytest.approx(2 * 12e9)


def test_staging_through_one_uplink_divides_it() -> None:
    graph = machine("cascaded", "rtx-2080-ti", 8)
    # all eight send up and receive down through the first switch's single uplink of 12 GB/s
    assert gigabytes(graph, *range(8)) == pytest.approx(12 / 8 * STAGED_BOTH_WAYS_SHARE)


def test_a_gpu_that_hangs_on_one_neighbour_stays_on_nvlink() -> None:
    # the fifth of a DGX-1 has its two links to GPU0 only: one ring goes there and back again, run both
    # ways over 20 GB/s a link. Published for these five: 37 GB/s
    graph = machine("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8)
    five = all_reduce(graph, ["GPU0", "GPU1", "GPU2", "GPU3", "GPU4"])
    assert five.bytes_per_second == pytest.approx(40e9)
    assert five.kind == "nvlink"
    (ring,) = five.rings
    assert sorted(ring) == ["GPU0", "GPU0", "GPU1", "GPU2", "GPU3", "GPU4"]
    # five that close a ring by themselves are as fast, and preferred
    assert [len(ring) for ring in best_gpus(graph, 5).rings] == [5]


def test_no_detour_where_nvlinks_only_pair() -> None:
    graph = machine("nvlink-pairs", "rtx-3090", 4)
    assert all_reduce(graph, graph.gpus).kind != "nvlink"


def test_best_and_worst_of_a_dgx_1() -> None:
    graph = machine("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8)
    assert best_gpus(graph, 4).gpus == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert best_gpus(graph, 4, ["GPU1", "GPU3", "GPU5", "GPU7"]).bytes_per_second < 80e9
    assert worst_gpus(graph, 2).bytes_per_second == pytest.approx(6e9)


@pytest.mark.parametrize(("name", "gpu", "count"), PRESET_GPUS)
def test_no_random_choice_beats_the_best(name: str, gpu: str, count: int) -> None:
    """10,000 tries over all machines, among all GPUs and among those that happen to be free."""
    graph = machine(name, gpu, count)
    dice = random.Random(1)
    for _ in range(10_000 // len(PRESET_GPUS) + 1):
        free = dice.sample(graph.gpus, dice.randint(2, count))
        n = dice.randint(2, len(free))
        rate = all_reduce(graph, dice.sample(free, n)).bytes_per_second
        assert rate <= best_gpus(graph, n, free).bytes_per_second * (1 + 1e-9)
        assert rate >= worst_gpus(graph, n, free).bytes_per_second * (1 - 1e-9)


@settings(max_examples=200)
@given(graph=machines, data=st.data())
def test_a_ring_is_never_faster_than_its_slowest_link(
    graph: MachineGraph, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, len(graph.gpus)))
    ring = tuple(data.draw(st.permutations(graph.gpus)))[:size]
    rate = simultaneous_bandwidth(graph, [ring])
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
    assert all_reduce(graph, ring).bytes_per_second >= simultaneous_bandwidth(graph, [ring]) * (
        1 - 1e-9
    )


def test_impossible_choices_are_sentences() -> None:
    graph = machine("workstation", "gtx-1080-ti", 4)
    with pytest.raises(UserMistake, match="5 GPUs were requested; 4 are free"):
        best_gpus(graph, 5)
    with pytest.raises(UserMistake, match="needs distinct GPUs"):
        all_reduce(graph, ["GPU0", "GPU0"])


def test_sixteen_gpus_are_searched_through() -> None:
    graph = build_preset("nvswitch", gpus().get("v100-sxm3-32gb"), 16)
    assert best_gpus(graph, 8).bytes_per_second == pytest.approx(6 * 20e9)


def test_every_preset_is_covered() -> None:
    assert {name for name, _, _ in PRESET_GPUS} == set(PRESETS)


def test_what_staging_leaves_is_the_median_of_what_is_published() -> None:
    both_ways = [copy.both_ways_share for copy in staged_copies()]
    assert round(median(copy.one_way_share for copy in staged_copies()), 2) == STAGED_SHARE
    assert round(median(share for share in both_ways if share), 2) == STAGED_BOTH_WAYS_SHARE


def test_a_staged_ring_has_its_share_of_what_the_wires_carry() -> None:
    staged = all_reduce(machine("workstation", "rtx-4090", 4), ["GPU0", "GPU1", "GPU2", "GPU3"])
    assert staged.bytes_per_second == pytest.approx(STAGED_BOTH_WAYS_SHARE * 24e9)
    direct = all_reduce(machine("workstation", "gtx-1080-ti", 4), ["GPU0", "GPU1"])
    assert direct.bytes_per_second == pytest.approx(12e9)
