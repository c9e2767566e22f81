"""Machines rebuilt from link classes: the classes that come out are those that went in."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.catalog import Gpu, gpus
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware import PRESETS, MachineGraph, build_preset
from gpuyard.hardware.graph import Device, Wire
from gpuyard.hardware.readers.from_matrix import differences, graph_from_matrix
from gpuyard.hardware.readers.matrices import TopoMatrix, parse_topo_matrix
from gpuyard.hardware.readers.matrix_text import find_matrices
from tests.hardware.recordings import recorded, text_of

# recordings whose classes no PCIe tree can have; none so far
INEXACT: set[str] = set()


def catalog(gpu: str) -> Gpu:
    return gpus().get(gpu)


def matrix_of(name: str) -> TopoMatrix:
    return parse_topo_matrix(text_of(f"topo-m/{name}"), name)


@pytest.mark.parametrize("name", recorded("topo-m"))
def test_recorded_classes_come_back(name: str) -> None:
    matrix = parse_topo_matrix(text_of(name), name)
    graph = graph_from_matrix(matrix)
    assert bool(differences(matrix, graph)) == (name in INEXACT)
    assert graph.gpus == matrix.gpus


@pytest.mark.parametrize(
    ("name", "gpu", "switched"),
    [
        ("dgx-a100-8gpu-12mlx5.txt", None, True),
        ("h200-8gpu-12nic-legend.txt", "h200-sxm5-141gb", True),
        ("polaris-a100-4gpu-nv4-mangled-header.txt", "a100-sxm4-40gb", False),
        ("gh200-4gpu-nv6-gpu-numa-ids.txt", "gh200-96gb", False),
        ("gh200-4gpu-nv6-gpu-numa-ids.txt", None, False),
        ("dgx1-v100-8gpu-4mlx5.txt", "v100-sxm2-32gb", False),
        ("4gpu-nv12-pairs-4numa.txt", None, False),
    ],
)
def test_an_nvswitch_is_where_links_do_not_reach_all_peers(
    name: str, gpu: str | None, switched: bool
) -> None:
    assert bool(graph_from_matrix(matrix_of(name), gpu).of_kind("nvswitch")) == switched


def test_sixteen_gpus_with_six_links_need_nvswitches() -> None:
    graph = build_preset("nvswitch", catalog("v100-sxm3-32gb"), 16)
    rebuilt = graph_from_matrix(parse_topo_matrix(render(graph), "dgx2"), "v100-sxm3-32gb")
    assert len(rebuilt.of_kind("nvswitch")) == 1
    assert rebuilt.path_class("GPU0", "GPU15") == "NV6"


def test_nics_tell_which_gpus_share_a_switch_behind_nvlink() -> None:
    graph = graph_from_matrix(matrix_of("dgx1-v100-8gpu-4mlx5.txt"))
    classes = {pair: graph.pcie_class("GPU0", pair) for pair in ("GPU1", "GPU2", "GPU4")}
    assert classes == {"GPU1": "PIX", "GPU2": "PHB", "GPU4": "SYS"}


def test_affinity_tells_sockets_where_nvlink_hides_every_pair() -> None:
    graph = graph_from_matrix(matrix_of("aws-p4d-24xlarge-a100-8gpu.txt"))
    assert [graph.socket_of(gpu) for gpu in graph.gpus] == ["CPU0"] * 4 + ["CPU1"] * 4
    assert any("NVLink hides" in note for note in graph.notes)


def test_rates_are_those_of_the_gpu_that_is_named() -> None:
    matrix = matrix_of("rtx5090-2gpu-phb.txt")
    named, unnamed = graph_from_matrix(matrix, "rtx-5090"), graph_from_matrix(matrix)
    assert {w.generation for w in named.wires if w.kind == "pcie"} == {5}
    assert {w.generation for w in unnamed.wires if w.kind == "pcie"} == {3}
    assert not any("PCIe 3.0" in note for note in named.notes)
    assert any("PCIe 3.0 x16 is assumed" in note for note in unnamed.notes)
    assert not named.offers_peer_to_peer("GPU0", "GPU1")
    with pytest.raises(UnknownName, match="rtx-5090"):
        graph_from_matrix(matrix, "rtx-509")


def test_classes_that_no_tree_has_are_named() -> None:
    text = (
        "\tGPU0\tGPU1\tGPU2\tGPU3\n"
        "GPU0\t X \tPIX\tSYS\tSYS\n"
        "GPU1\tPIX\t X \tPIX\tSYS\n"
        "GPU2\tSYS\tPIX\t X \tPHB\n"
        "GPU3\tSYS\tSYS\tPHB\t X \n"
    )
    matrix = parse_topo_matrix(text, "vm.txt")
    graph = graph_from_matrix(matrix)
    wrong = differences(matrix, graph)
    assert 0 < len(wrong) <= 2
    note = next(note for note in graph.notes if note.startswith("no PCIe tree"))
    assert "-".join(wrong[0]) in note


NVIDIAS = [name for name, preset in PRESETS.items() if catalog(preset.usual_gpu).vendor == "NVIDIA"]


@pytest.mark.parametrize("name", NVIDIAS)  # nobody else's tool prints such a matrix
def test_presets_come_back(name: str) -> None:
    preset = PRESETS[name]
    graph = build_preset(name, catalog(preset.usual_gpu), preset.usual_gpus)
    matrix = parse_topo_matrix(render(graph), name)
    assert not differences(matrix, graph_from_matrix(matrix, preset.usual_gpu))


def render(graph: MachineGraph, gap: str = "\t") -> str:
    """The graph's classes as nvidia-smi prints them."""
    devices = [*graph.gpus, *(nic.id for nic in graph.of_kind("nic"))]
    rows = [gap.join(["", *devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for a in devices:
        cells = [f" {c} " if (c := graph.path_class(a, b)) == "X" else c for b in devices]
        numa = graph.socket_of(a).removeprefix("CPU")
        after = [f"{numa}0-{numa}9", numa, "", "N/A"] if a.startswith("GPU") else []
        rows.append(gap.join([a, *cells, *after]))
    return "\n".join(rows) + "\n\nLegend:\n\n  X    = Self\n"


@st.composite
def machines(draw: st.DrawFn) -> MachineGraph:
    """Any tree of sockets, host bridges and up to two levels of switches, with some NVLinks."""
    upper: list[Device] = []
    wires: list[Wire] = []
    leaves: list[str] = []

    def join(parent: str, child: str, kind: str) -> None:
        wires.append(Wire(parent, child, kind, 1e10, 1e-6))  # type: ignore[arg-type]

    def hang(parent: str, depth: int) -> None:
        leaves.extend([parent] * draw(st.integers(0 if leaves else 1, 2)))
        for _ in range(draw(st.integers(0, 2)) if depth else 0):
            switch = f"SW{len(upper)}"
            upper.append(Device(switch, "switch"))
            join(parent, switch, "pcie")
            hang(switch, depth - 1)

    for s in range(draw(st.integers(1, 3))):
        upper.append(Device(f"CPU{s}", "socket"))
        if s:
            join(f"CPU{s - 1}", f"CPU{s}", "socket")
        for _ in range(draw(st.integers(1, 2))):
            bridge = f"HB{len(upper)}"
            upper.append(Device(bridge, "host-bridge"))
            join(f"CPU{s}", bridge, "internal")
            hang(bridge, 2)
    nics = draw(st.integers(0, len(leaves) - 1))
    ids = [f"GPU{i}" if i < len(leaves) - nics else f"NIC{i}" for i in range(len(leaves))]
    for id, parent in zip(ids, leaves, strict=True):
        join(parent, id, "pcie")
    for a, b in combinations([id for id in ids if id.startswith("GPU")], 2):
        if draw(st.integers(0, 4)) == 0:
            wires.append(Wire(a, b, "nvlink", 2e10, 1e-6, 2, draw(st.integers(1, 4))))
    kinds = {"GPU": "gpu", "NIC": "nic"}
    devices = [Device(id, kinds[id[:3]]) for id in ids]  # type: ignore[arg-type]
    return MachineGraph("drawn", (*upper, *devices), tuple(wires))


@settings(deadline=None)
@given(machines(), st.sampled_from(["\t", "\t\t", "      "]))
def test_any_tree_is_rendered_parsed_and_rebuilt(graph: MachineGraph, gap: str) -> None:
    matrix = parse_topo_matrix(render(graph, gap), "drawn")
    for (a, b), printed in matrix.classes.items():
        assert graph.path_class(a, b) == printed
    assert not differences(matrix, graph_from_matrix(matrix))


def test_empty_lines_count_as_text_too() -> None:
    with pytest.raises(UserMistake, match="more than 500,000 characters"):
        list(find_matrices("\tGPU0" + "\r" * 600_000, "x"))
