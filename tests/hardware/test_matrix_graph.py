"""Machine graphs rebuilt from path classes have the same classes."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.catalog import Gpu, gpus
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware import PRESETS, MachineGraph, build_preset
from gpuyard.hardware.graph import Device, Wire
from gpuyard.hardware.readers.matrices import TopoMatrix, parse_topo_matrix
from gpuyard.hardware.readers.matrix_graph import find_differences, graph_from_matrix
from gpuyard.hardware.readers.matrix_text import find_matrices
from tests.hardware.recordings import list_recordings, read_recording

# recordings whose classes no PCIe tree has; none so far
INEXACT: set[str] = set()


def catalog(gpu: str) -> Gpu:
    return gpus().get(gpu)


def read_matrix(name: str) -> TopoMatrix:
    return parse_topo_matrix(read_recording(f"topo-m/{name}"), name)


@pytest.mark.parametrize("name", list_recordings("topo-m"))
def test_recorded_classes_are_reproduced(name: str) -> None:
    matrix = parse_topo_matrix(read_recording(name), name)
    graph = graph_from_matrix(matrix)
    assert bool(find_differences(matrix, graph)) == (name in INEXACT)
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
def test_an_nvswitch_is_inferred_if_direct_links_cannot_reach_all_peers(
    name: str, gpu: str | None, switched: bool
) -> None:
    assert bool(graph_from_matrix(read_matrix(name), gpu).devices_of_kind("nvswitch")) == switched


def test_sixteen_gpus_with_six_links_need_nvswitches() -> None:
    graph = build_preset("nvswitch", catalog("v100-sxm3-32gb"), 16)
    rebuilt = graph_from_matrix(parse_topo_matrix(render(graph), "dgx2"), "v100-sxm3-32gb")
    assert len(rebuilt.devices_of_kind("nvswitch")) == 1
    assert rebuilt.path_class("GPU0", "GPU15") == "NV6"


def test_nics_show_which_gpus_share_a_switch_behind_nvlink() -> None:
    graph = graph_from_matrix(read_matrix("dgx1-v100-8gpu-4mlx5.txt"))
    classes = {pair: graph.pcie_class("GPU0", pair) for pair in ("GPU1", "GPU2", "GPU4")}
    assert classes == {"GPU1": "PIX", "GPU2": "PHB", "GPU4": "SYS"}


def test_affinity_shows_the_sockets_if_nvlink_hides_every_pair() -> None:
    graph = graph_from_matrix(read_matrix("aws-p4d-24xlarge-a100-8gpu.txt"))
    assert [graph.find_socket(gpu) for gpu in graph.gpus] == ["CPU0"] * 4 + ["CPU1"] * 4
    assert any("NVLink hides" in note for note in graph.notes)


def test_rates_depend_on_the_named_gpu() -> None:
    matrix = read_matrix("rtx5090-2gpu-phb.txt")
    named, unnamed = graph_from_matrix(matrix, "rtx-5090"), graph_from_matrix(matrix)
    assert {w.generation for w in named.wires if w.kind == "pcie"} == {5}
    assert {w.generation for w in unnamed.wires if w.kind == "pcie"} == {3}
    assert not any("PCIe 3.0" in note for note in named.notes)
    assert any("PCIe 3.0 x16 is assumed" in note for note in unnamed.notes)
    assert not named.has_peer_access("GPU0", "GPU1")
    with pytest.raises(UnknownName, match="rtx-5090"):
        graph_from_matrix(matrix, "rtx-509")


def test_impossible_classes_are_noted() -> None:
    text = (
        "\tGPU0\tGPU1\tGPU2\tGPU3\n"
        "GPU0\t X \tPIX\tSYS\tSYS\n"
        "GPU1\tPIX\t X \tPIX\tSYS\n"
        "GPU2\tSYS\tPIX\t X \tPHB\n"
        "GPU3\tSYS\tSYS\tPHB\t X \n"
    )
    matrix = parse_topo_matrix(text, "vm.txt")
    graph = graph_from_matrix(matrix)
    pairs = find_differences(matrix, graph)
    assert 0 < len(pairs) <= 2
    note = next(note for note in graph.notes if "no PCIe tree" in note)
    assert "-".join(pairs[0]) in note


NVIDIA_PRESETS = [
    name for name, preset in PRESETS.items() if catalog(preset.default_gpu).vendor == "NVIDIA"
]


@pytest.mark.parametrize("name", NVIDIA_PRESETS)  # other vendors' tools print no such matrix
def test_preset_classes_are_reproduced(name: str) -> None:
    preset = PRESETS[name]
    graph = build_preset(name, catalog(preset.default_gpu), preset.default_gpus)
    matrix = parse_topo_matrix(render(graph), name)
    assert not find_differences(matrix, graph_from_matrix(matrix, preset.default_gpu))


def render(graph: MachineGraph, gap: str = "\t") -> str:
    """Format the graph's classes as nvidia-smi does."""
    devices = [*graph.gpus, *(nic.id for nic in graph.devices_of_kind("nic"))]
    rows = [gap.join(["", *devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for a in devices:
        cells = [f" {c} " if (c := graph.path_class(a, b)) == "X" else c for b in devices]
        numa = graph.find_socket(a).removeprefix("CPU")
        after = [f"{numa}0-{numa}9", numa, "", "N/A"] if a.startswith("GPU") else []
        rows.append(gap.join([a, *cells, *after]))
    return "\n".join(rows) + "\n\nLegend:\n\n  X    = Self\n"


@st.composite
def machines(draw: st.DrawFn) -> MachineGraph:
    """Draw a tree of sockets, host bridges, and up to two levels of switches, with some NVLinks."""
    upper: list[Device] = []
    wires: list[Wire] = []
    leaves: list[str] = []

    def connect(parent: str, child: str, kind: str) -> None:
        wires.append(Wire(parent, child, kind, 1e10, 1e-6))  # type: ignore[arg-type]

    def add_children(parent: str, depth: int) -> None:
        leaves.extend([parent] * draw(st.integers(0 if leaves else 1, 2)))
        for _ in range(draw(st.integers(0, 2)) if depth else 0):
            switch = f"SW{len(upper)}"
            upper.append(Device(switch, "switch"))
            connect(parent, switch, "pcie")
            add_children(switch, depth - 1)

    for s in range(draw(st.integers(1, 3))):
        upper.append(Device(f"CPU{s}", "socket"))
        if s:
            connect(f"CPU{s - 1}", f"CPU{s}", "socket")
        for _ in range(draw(st.integers(1, 2))):
            bridge = f"HB{len(upper)}"
            upper.append(Device(bridge, "host-bridge"))
            connect(f"CPU{s}", bridge, "internal")
            add_children(bridge, 2)
    nics = draw(st.integers(0, len(leaves) - 1))
    ids = [f"GPU{i}" if i < len(leaves) - nics else f"NIC{i}" for i in range(len(leaves))]
    for id, parent in zip(ids, leaves, strict=True):
        connect(parent, id, "pcie")
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
    assert not find_differences(matrix, graph_from_matrix(matrix))


def test_empty_lines_count_toward_the_limit() -> None:
    with pytest.raises(UserMistake, match="more than 500,000 characters"):
        list(find_matrices("\tGPU0" + "\r" * 600_000, "x"))
