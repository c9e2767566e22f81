"""Graphs from the lstopo XML of hwloc 1, 2, and 3."""

import re
from itertools import combinations

import pytest

from gpuyard.errors import UserMistake
from gpuyard.hardware.readers.lstopo import format_cpu_list
from gpuyard.hardware.readers.topology_file import graph_from_text
from tests.hardware.recordings import SOURCES, list_recordings, read_recording

K80 = "lstopo/k80-4gpu-hwloc-v1.xml"
DESKTOP = "lstopo/rtx3070-desktop-hwloc-v2.xml"
POWER8 = "lstopo/power8-4p100-hwloc-v3.xml"


@pytest.mark.parametrize("name", list_recordings("lstopo"))
def test_recorded_gpus(name: str) -> None:
    case = SOURCES[name]
    expected = case["expected"]
    graph = graph_from_text(read_recording(name), name)
    assert len(graph.gpus) == case["gpus"]
    if "gpu_numa" in expected:
        assert [graph.device(gpu).numa_node for gpu in graph.gpus] == expected["gpu_numa"]
    if "gpu_models" in expected:
        assert [graph.device(gpu).label for gpu in graph.gpus] == expected["gpu_models"]
    rdma = [nic for nic in graph.devices_of_kind("nic") if "mlx" in nic.label]
    assert len(rdma) == case["nics"]
    for a, b in combinations([d.id for d in graph.devices if d.kind != "nvswitch"], 2):
        assert graph.pcie_class(a, b)  # everything is connected


def test_two_k80_boards_have_a_switch_each() -> None:
    graph = graph_from_text(read_recording(K80), K80)
    assert [graph.path_class("GPU0", gpu) for gpu in graph.gpus] == ["X", "PIX", "SYS", "SYS"]
    assert graph.path_class("GPU2", "GPU3") == "PIX"
    assert [s.label for s in graph.devices_of_kind("switch") if "PEX" in s.label] == [
        "PEX 8747 0000:04:00.0",
        "PEX 8747 0000:82:00.0",
    ]
    assert {graph.device(gpu).gpu for gpu in graph.gpus} == {"k80"}
    nic = next(nic for nic in graph.devices_of_kind("nic") if nic.label == "mlx4_0")
    assert (nic.numa_node, nic.cpu_affinity) == (1, "8-15")
    assert graph.path_class("GPU2", nic.id) == "PHB"


def test_a_root_port_is_not_a_switch_and_wireless_is_not_a_nic() -> None:
    graph = graph_from_text(read_recording(DESKTOP), DESKTOP)
    assert graph.devices_of_kind("switch") == ()
    assert [nic.label for nic in graph.devices_of_kind("nic")] == ["enp5s0"]
    assert [drive.label for drive in graph.devices_of_kind("nvme")] == ["nvme0n1"]


def test_link_speeds_become_rates_and_an_idle_link_gets_its_full_rate() -> None:
    power8 = graph_from_text(read_recording(POWER8), POWER8)
    slots = {w.b: (w.generation, w.width) for w in power8.wires if w.kind == "pcie"}
    assert slots["GPU0"] == (3, 16)
    desktop = graph_from_text(read_recording(DESKTOP), DESKTOP)
    gpu = next(w for w in desktop.wires if w.b == "GPU0")
    assert (gpu.generation, gpu.width) == (4, 16)
    assert any("GPU0" in note and "PCIe 1.0 x16" in note for note in desktop.notes)
    drive = next(w for w in desktop.wires if w.b == "NVMe0")
    assert drive.bytes_per_second == 6e9


def test_nvlinks_come_from_the_bandwidth_matrix() -> None:
    expected = SOURCES[POWER8]["expected"]["nvlink_mb_s"]
    graph = graph_from_text(read_recording(POWER8), POWER8)
    for a, b in combinations(range(4), 2):
        raw = expected.get(f"nvml{a}-nvml{b}", 0)
        assert graph.gpu_links(f"GPU{a}", f"GPU{b}") == raw / 20000  # MB/s of one NVLink 1


def test_numa_nodes_of_one_package_have_a_fast_link() -> None:
    text = """<topology version="2.0"><object type="Machine" nodeset="0x3" cpuset="0xff">
      <object type="Package" os_index="0" cpuset="0xff" nodeset="0x3">
        <object type="Group" cpuset="0xf" nodeset="0x1">
          <object type="NUMANode" os_index="0" cpuset="0xf" nodeset="0x1"/>
          <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-0f]">
            <object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:20b2] [0:0] a1"/>
          </object></object>
        <object type="Group" cpuset="0xf0" nodeset="0x2">
          <object type="NUMANode" os_index="1" cpuset="0xf0" nodeset="0x2"/>
          <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[40-4f]">
            <object type="PCIDev" pci_busid="0000:41:00.0" pci_type="0302 [10de:20b2] [0:0] a1"/>
          </object></object></object></object></topology>"""
    graph = graph_from_text(text, "nps2.xml", "a100-pcie-40gb")
    assert graph.path_class("GPU0", "GPU1") == "SYS"
    wire = next(w for w in graph.wires if w.kind == "socket")
    assert wire.bytes_per_second > 100e9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<topology>\n<object type='Machine'>\n</topology>", r"x\.xml:3:3: malformed XML: mismatched tag"),
        ("<topology/>", r"x\.xml:1:1: <topology>.*<object>"),
        ("<topology>\n<object type='Machine'/></topology>", r"x\.xml:2:1: no NUMA node"),
        ("<!DOCTYPE topology [\n<!ENTITY a 'b'>]><topology/>", r"x\.xml:2:\d+: entity declarations.*'a'"),
        ("<topology><object type='Machine'><object type='NUMANode' cpuset='0x1'/>\n"
         "<object type='Bridge' bridge_type='0-1'><object type='PCIDev' pci_busid='7'/></object></object></topology>",
         r"x\.xml:2:\d+: expected a pci_busid.*'7'"),
        ("<a>" * 500, r"x\.xml:1:\d+: elements are nested deeper than 200"),
    ],
)  # fmt: skip
def test_errors_name_the_position_and_the_problem(text: str, message: str) -> None:
    with pytest.raises(UserMistake) as refused:
        graph_from_text(text, "x.xml")
    assert re.match(message, str(refused.value))


def test_cpu_lists_have_the_format_of_linux() -> None:
    assert format_cpu_list({0, 1, 2, 7, 16, 17}) == "0-2,7,16-17"
