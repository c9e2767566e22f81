"""Slow links are found, with the cause that the host's facts suggest; others are not reported."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuyard.catalog import gpus
from gpuyard.catalog.hardware import staged_copies
from gpuyard.hardware import Device, MachineGraph, build_preset
from gpuyard.hardware.pairs import compute_bandwidth_matrix
from gpuyard.hardware.rings import STAGED_BOTH_WAYS_SHARE, STAGED_SHARE
from gpuyard.measure.links.compare import (
    SLOW_BELOW,
    STAGED_SLOW_BELOW,
    compare,
    find_slow_links,
)
from gpuyard.measure.links.expected import build_rated_machine, expected_bytes_per_second
from gpuyard.measure.links.records import (
    GpuSlot,
    HostFacts,
    LinkMeasurement,
    PlannedLink,
    SlowLink,
)

Measured = Callable[..., LinkMeasurement]
SLOT = 12e9  # PCIe 3.0 x16 in the catalog
NVLINK_3 = 19.4e9


def find(graph: MachineGraph, facts: HostFacts, *measured: LinkMeasurement) -> tuple[SlowLink, ...]:
    return find_slow_links(graph, compare(graph, measured), facts)


def causes(finding: SlowLink) -> list[str]:
    return [cause.name for cause in finding.causes]


def slot(**changed: object) -> GpuSlot:
    plain = {
        "gpu": "GPU1",
        "address": "0000:04:00.0",
        "width": 16,
        "max_width": 16,
        "speed": 8.0,
        "max_speed": 8.0,
        "port_max_width": 16,
        "port_max_speed": 8.0,
    }
    return GpuSlot.model_validate(plain | changed)


def test_one_way_is_the_slowest_wire(graph: MachineGraph, measured: Measured) -> None:
    assert expected_bytes_per_second(graph, measured("host", "GPU0", 1)) == SLOT
    assert expected_bytes_per_second(graph, measured("GPU0", "host", 1)) == SLOT
    assert expected_bytes_per_second(graph, measured("GPU0", "GPU3", 1, peer=True)) == SLOT


def test_staged_gets_a_share_of_it(graph: MachineGraph, measured: Measured) -> None:
    staged = expected_bytes_per_second(graph, measured("GPU0", "GPU1", 1, peer=False))
    assert staged == STAGED_SHARE * SLOT


def test_both_ways_share_the_wires_that_they_both_cross(
    graph: MachineGraph, measured: Measured
) -> None:
    both = {"direction": "both-ways"}
    assert expected_bytes_per_second(graph, measured("host", "GPU0", 1, **both)) == 2 * SLOT
    assert (
        expected_bytes_per_second(graph, measured("GPU0", "GPU1", 1, peer=True, **both)) == 2 * SLOT
    )
    # under one switch both staged messages go up through its one uplink, and both come down
    staged = expected_bytes_per_second(graph, measured("GPU0", "GPU1", 1, peer=False, **both))
    assert staged == STAGED_BOTH_WAYS_SHARE * SLOT


def test_nvlinks_count_together(measured: Measured) -> None:
    mesh = build_preset("nvlink-hybrid-cube-mesh", gpus().get("v100-sxm2-16gb"), 8)
    assert expected_bytes_per_second(mesh, measured("GPU0", "GPU3", 1, peer=True)) == 2 * 20e9
    switched = build_preset("nvswitch", gpus().get("a100-sxm4-80gb"), 8)
    assert (
        expected_bytes_per_second(switched, measured("GPU0", "GPU5", 1, peer=True)) == 12 * NVLINK_3
    )


def test_a_card_on_half_of_its_lanes_is_judged_by_all_of_them(
    graph: MachineGraph, healthy: HostFacts, measured: Measured
) -> None:
    """Discovery finds the lanes that work, so a loose card would be as fast as its graph says."""
    half = replace(
        graph,
        wires=tuple(
            replace(w, width=8, bytes_per_second=SLOT / 2) if w.b == "GPU1" else w
            for w in graph.wires
        ),
    )
    facts = healthy.model_copy(update={"slots": (slot(gpu="GPU0"), slot(width=8))})
    link = measured("host", "GPU1", 5.9)
    assert find(half, facts, link) == ()
    (finding,) = find(build_rated_machine(half, facts), facts, link)
    assert finding.expected_bytes_per_second == SLOT
    assert causes(finding) == ["narrow-slot"]


def test_nvlinks_to_a_switch_that_are_down_are_missed(
    healthy: HostFacts, measured: Measured
) -> None:
    whole = build_preset("nvswitch", gpus().get("a100-sxm4-80gb"), 4)
    hurt = replace(
        whole,
        wires=tuple(
            replace(w, width=6, bytes_per_second=6 * NVLINK_3)
            if w.kind == "nvlink" and w.a == "GPU2"
            else w
            for w in whole.wires
        ),
    )
    link = measured("GPU0", "GPU2", 118, peer=True)
    assert find(hurt, healthy, link) == ()
    (finding,) = find(build_rated_machine(hurt, healthy), healthy, link)
    assert finding.expected_bytes_per_second == pytest.approx(12 * NVLINK_3)
    assert causes(finding) == ["nvlink"]


def test_peer_access_is_expected_where_it_is_sold_and_under_one_socket(
    healthy: HostFacts,
) -> None:
    boxed = build_preset("dual-root", gpus().get("gtx-1080-ti"), 8)
    rated = build_rated_machine(replace(boxed, pcie_peers=frozenset()), healthy)
    assert rated.has_peer_access("GPU0", "GPU3")
    assert not rated.has_peer_access("GPU0", "GPU4")  # on the other socket
    desktop = build_preset("consumer", gpus().get("rtx-4090"), 2)
    assert not build_rated_machine(desktop, healthy).has_peer_access("GPU0", "GPU1")


@pytest.mark.parametrize(
    ("preset", "gpu", "count"),
    [
        ("dual-root", "gtx-1080-ti", 8),
        ("consumer", "rtx-4090", 4),
        ("nvswitch", "a100-sxm4-80gb", 4),
    ],
)
def test_one_way_agrees_with_the_matrix_of_the_machine(
    measured: Measured, preset: str, gpu: str, count: int
) -> None:
    machine = build_preset(preset, gpus().get(gpu), count)
    for a, row in zip(machine.gpus, compute_bandwidth_matrix(machine), strict=True):
        for b, rate in zip(machine.gpus, row, strict=True):
            if a != b:
                link = measured(a, b, 1, peer=machine.has_peer_access(a, b))
                assert expected_bytes_per_second(machine, link) == rate


def test_a_gpu_that_nothing_joins_has_no_expected_rate(measured: Measured) -> None:
    loose = MachineGraph("partly read", (Device("CPU0", "socket"), Device("GPU0", "gpu")), ())
    assert expected_bytes_per_second(loose, measured("host", "GPU0", 1)) is None
    bare = MachineGraph("no socket", (Device("GPU0", "gpu"), Device("GPU1", "gpu")), ())
    assert expected_bytes_per_second(bare, measured("GPU0", "GPU1", 1, peer=False)) is None


def test_unknown_links_are_not_judged(
    graph: MachineGraph, healthy: HostFacts, measured: Measured
) -> None:
    memory = measured("memory", "memory", 0.001, kind="memory", cores=1)
    elsewhere = measured("host", "GPU9", 0.001)
    links = compare(graph, [memory, elsewhere])
    assert [link.verdict for link in links] == ["no model", "no model"]
    assert find_slow_links(graph, links, healthy) == ()
    assert [link.verdict for link in compare(None, [measured("host", "GPU0", 1)])] == ["no model"]


def test_slow_is_more_than_a_quarter_below(
    graph: MachineGraph, healthy: HostFacts, measured: Measured
) -> None:
    good, bad = measured("host", "GPU0", 9.0), measured("host", "GPU1", 8.99)
    links = compare(graph, [good, bad])
    assert [link.verdict for link in links] == ["as expected", "slow"]
    (finding,) = find_slow_links(graph, links, healthy)
    assert (finding.target, finding.expected_bytes_per_second) == ("GPU1", SLOT)
    assert finding.ratio == pytest.approx(8.99 / 12)
    assert causes(finding) == ["unknown"]


@pytest.mark.parametrize(
    ("changed", "cause", "part"),
    [
        ({"width": 8}, "narrow-slot", "GPU1 (0000:04:00.0) runs on 8 of its 16 lanes"),
        ({"width": 4, "port_max_width": 4}, "narrow-slot", "the slot has 4"),
        ({"speed": 2.5}, "power-saving", "ran at 2.5 of 8 GT/s"),
        ({"max_speed": 16.0}, "old-slot", "16 GT/s per lane, its slot 8"),
    ],
)
def test_the_slot_is_to_blame(
    graph: MachineGraph,
    healthy: HostFacts,
    measured: Measured,
    changed: dict[str, object],
    cause: str,
    part: str,
) -> None:
    facts = healthy.model_copy(update={"slots": (slot(gpu="GPU0"), slot(**changed))})
    finding, other = find(graph, facts, measured("host", "GPU1", 5.9), measured("GPU0", "host", 5))
    assert causes(finding) == [cause]
    assert part in finding.causes[0].why
    assert causes(other) == ["unknown"]  # the slot of another GPU explains nothing


def test_a_narrow_slot_and_a_loose_card_get_different_advice(
    graph: MachineGraph, healthy: HostFacts, measured: Measured
) -> None:
    steps = []
    for port in (16, 8):
        facts = healthy.model_copy(update={"slots": (slot(width=8, port_max_width=port),)})
        (finding,) = find(graph, facts, measured("host", "GPU1", 5.9))
        steps.append(finding.causes[0].next_step)
    assert "reseat" in steps[0]
    assert "move it" in steps[1]


def test_unknown_widths_give_no_finding(
    graph: MachineGraph, healthy: HostFacts, measured: Measured
) -> None:
    unknown = slot(width=None, max_width=None, speed=None, port_max_speed=None)
    facts = healthy.model_copy(update={"slots": (unknown,), "iommu": None, "acs_bridges": None})
    (finding,) = find(graph, facts, measured("GPU0", "GPU1", 5.9, peer=True))
    assert causes(finding) == ["unknown"]


def test_acs_and_iommu_slow_peers_only(
    graph: MachineGraph, healthy: HostFacts, measured: Measured
) -> None:
    facts = healthy.model_copy(update={"acs_bridges": ("0000:02:08.0",), "iommu": "translating"})
    peers, host = find(
        graph, facts, measured("GPU0", "GPU1", 5.9, peer=True), measured("host", "GPU1", 5.9)
    )
    assert causes(peers) == ["acs", "iommu"]
    assert "setpci -s 0000:02:08.0 ECAP_ACS+6.w=0000" in peers.causes[0].next_step
    assert causes(host) == ["unknown"]
    passed = facts.model_copy(update={"acs_bridges": (), "iommu": "passthrough"})
    (finding,) = find(graph, passed, measured("GPU0", "GPU1", 5.9, peer=True))
    assert causes(finding) == ["unknown"]


def test_slow_nvlink_is_not_blamed_on_pcie(healthy: HostFacts, measured: Measured) -> None:
    bridged = build_preset("nvlink-pairs", gpus().get("rtx-3090"), 2)
    facts = healthy.model_copy(
        update={"slots": (slot(width=4),), "acs_bridges": ("0000:02:08.0",), "iommu": "translating"}
    )
    (finding,) = find(bridged, facts, measured("GPU0", "GPU1", 23, peer=True))
    assert causes(finding) == ["nvlink"]


def test_virtual_machine_and_other_load_come_last(
    graph: MachineGraph, healthy: HostFacts, measured: Measured
) -> None:
    facts = healthy.model_copy(
        update={
            "slots": (slot(width=8),),
            "virtual_machine": "QEMU Standard PC",
            "busy_share": 0.8,
        }
    )
    (finding,) = find(graph, facts, measured("host", "GPU1", 5.9, spread=0.5))
    assert causes(finding) == ["narrow-slot", "virtual-machine", "other-load"]
    assert "80% of the cores were busy" in finding.causes[2].why
    assert "differ by 50%" in finding.causes[2].why
    assert "QEMU" in finding.causes[1].why


def test_missing_peer_access_is_reported(
    graph: MachineGraph, healthy: HostFacts, measured: Measured
) -> None:
    """The staged copy is as fast as staged copies are; the pair is still slower than it should be."""
    staged = measured("GPU0", "GPU1", 7.2, peer=False)
    facts = healthy.model_copy(update={"iommu": "translating"})
    (finding,) = find(graph, facts, staged)
    assert finding.expected_bytes_per_second == SLOT
    assert causes(finding) == ["no-peer-access", "iommu"]
    assert find(graph, facts, staged, measured("GPU0", "GPU1", 12, peer=True)) == ()


def test_gpus_without_peer_access_by_design_are_as_expected(
    healthy: HostFacts, measured: Measured
) -> None:
    desktop = build_preset("consumer", gpus().get("rtx-4090"), 2)
    staged = measured("GPU0", "GPU1", 7.2, peer=False)
    assert find(desktop, healthy, staged) == ()


def test_no_published_machine_is_called_slow(healthy: HostFacts, measured: Measured) -> None:
    """Staged copies of sound machines differ twofold."""
    for copy in staged_copies():
        lanes = (
            gpus()
            .get(copy.gpu)
            .model_copy(
                update={
                    "pcie_generation": int(copy.link[5]),
                    "pcie_lanes": int(copy.link.rpartition("x")[2]),
                }
            )
        )
        machine = build_preset("workstation", lanes, 2)
        one_way = measured("GPU0", "GPU1", copy.one_way_gb_per_second, peer=False)
        links = compare(machine, [one_way])
        both = copy.both_ways_gb_per_second
        if both:
            way = {"direction": "both-ways", "peer": False}
            links += compare(machine, [measured("GPU0", "GPU1", both, **way)])
        assert {link.verdict for link in links} == {"as expected"}, copy.id


def test_a_staged_copy_far_below_the_slowest_machine_is_slow(
    healthy: HostFacts, measured: Measured
) -> None:
    slowest = min(copy.one_way_share for copy in staged_copies())
    assert round(SLOW_BELOW * slowest / STAGED_SHARE, 2) == STAGED_SLOW_BELOW
    desktop = build_preset("consumer", gpus().get("rtx-3090"), 2)  # slots of 12 GB/s
    assert find(desktop, healthy, measured("GPU0", "GPU1", 4.3, peer=False)) == ()
    (finding,) = find(desktop, healthy, measured("GPU0", "GPU1", 4.1, peer=False))
    assert finding.expected_bytes_per_second == pytest.approx(10.2e9)


def test_the_median_of_repeats_is_used() -> None:
    link = PlannedLink(kind="host-gpu", source="host", target="GPU0", direction="one-way")
    measurement = LinkMeasurement.from_seconds(link, 100, [1.0, 4.0, 2.0])
    assert measurement.bytes_per_second == 50
    assert measurement.spread == 1.5
    assert measurement.seconds == (1.0, 4.0, 2.0)
