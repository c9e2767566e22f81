"""The machine graph: paths, path classes, and peer access."""

import pytest

from gpuyard.catalog import gpus
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware import PRESETS, MachineGraph, build_preset
from gpuyard.hardware.graph import Device, Wire
from gpuyard.hardware.presets import choose_topology, list_topologies


def preset(name: str, gpu: str | None = None, count: int | None = None) -> MachineGraph:
    defaults = PRESETS[name]
    return build_preset(
        name, gpus().get(gpu or defaults.default_gpu), count or defaults.default_gpus
    )


@pytest.mark.parametrize(
    ("name", "gpu", "classes"),
    [
        ("workstation", "gtx-1080-ti", "X PHB PHB PHB"),
        ("dual-socket", "rtx-a6000", "X PHB PHB PHB SYS SYS SYS SYS"),
        ("dual-root", "gtx-1080-ti", "X PIX PHB PHB SYS SYS SYS SYS"),
        ("single-root", "gtx-1080-ti", "X PIX PIX PIX PHB PHB PHB PHB"),
        ("cascaded", "gtx-1080-ti", "X PIX PIX PIX PXB PXB PXB PXB"),
        ("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", "X NV1 NV1 NV2 NV2 SYS SYS SYS"),
        ("nvlink-hybrid-cube-mesh", "p100-sxm2-16gb", "X NV1 NV1 NV1 NV1 SYS SYS SYS"),
        ("nvlink-pairs", "rtx-3090", "X NV4 PHB PHB"),
        ("full-mesh", "mi300x", "X FL1 FL1 FL1 FL1 FL1 FL1 FL1"),
        ("full-mesh", "h100-sxm5-80gb", "X NV6 NV6 NV6"),
        ("nvswitch", "a100-sxm4-80gb", "X NV12 NV12 NV12 NV12 NV12 NV12 NV12"),
        ("nvswitch", "h100-sxm5-80gb", "X NV18 NV18 NV18 NV18 NV18 NV18 NV18"),
        ("consumer", "rtx-4090", "X PHB"),
    ],
)
def test_presets_have_the_classes_of_nvidia_smi(name: str, gpu: str, classes: str) -> None:
    graph = preset(name, gpu, len(classes.split()))
    assert [graph.path_class("GPU0", other) for other in graph.gpus] == classes.split()


@pytest.mark.parametrize("name", PRESETS)
def test_classes_and_paths_are_symmetric(name: str) -> None:
    graph = preset(name)
    for a in graph.gpus:
        for b in graph.gpus:
            assert graph.path_class(a, b) == graph.path_class(b, a)
            there, back = graph.path(a, b), graph.path(b, a)
            assert [hop.wire for hop in there] == [hop.wire for hop in reversed(back)]


def test_v100_quads_have_six_links_each_as_in_a_dgx_1() -> None:
    graph = preset("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb")
    for gpu in graph.gpus:
        assert sum(graph.gpu_links(gpu, other) for other in graph.gpus) == 6


def test_a_path_through_switches_lists_every_hop() -> None:
    graph = preset("cascaded")
    assert [hop.target for hop in graph.path("GPU0", "GPU7")] == ["SW0", "SW1", "GPU7"]
    assert [hop.source for hop in graph.path("GPU7", "GPU0")] == ["GPU7", "SW1", "SW0"]


def test_recent_geforce_cards_have_peer_access_only_over_a_bridge() -> None:
    graph = preset("nvlink-pairs", "rtx-3090")
    assert graph.has_peer_access("GPU0", "GPU1")
    assert not graph.has_peer_access("GPU1", "GPU2")
    # staged: up to the socket and down again
    assert [hop.target for hop in graph.transfer_path("GPU1", "GPU2")] == [
        "HB0",
        "CPU0",
        "HB0",
        "GPU2",
    ]
    assert preset("workstation", "gtx-1080-ti").has_peer_access("GPU0", "GPU1")


def test_nics_and_node_class() -> None:
    rates = (12e9, 1e-6)
    graph = MachineGraph(
        "two bridges",
        (Device("CPU0", "socket"), Device("HB0", "host-bridge"), Device("HB1", "host-bridge"),
         Device("GPU0", "gpu"), Device("NIC0", "nic")),
        (Wire("CPU0", "HB0", "internal", *rates), Wire("CPU0", "HB1", "internal", *rates),
         Wire("HB0", "GPU0", "pcie", *rates), Wire("HB1", "NIC0", "pcie", *rates)),
    )  # fmt: skip
    assert graph.path_class("GPU0", "NIC0") == "NODE"


def test_unknown_names_and_sizes_are_refused() -> None:
    graph = preset("workstation")
    with pytest.raises(UnknownName, match="no device is called 'GPU9'"):
        graph.device("GPU9")
    with pytest.raises(UnknownName, match="did you mean 'dual-root'"):
        build_preset("dual-rot", gpus().get("t4"), 4)
    with pytest.raises(UserMistake, match="up to 8 GPUs"):
        build_preset("nvlink-hybrid-cube-mesh", gpus().get("v100-sxm2-16gb"), 16)


@pytest.mark.parametrize(
    ("preset", "gpu", "links"),
    [
        ("nvswitch", "rtx-3090", "4 × NVLink 3 on GA10x over a bridge to one other card"),
        ("nvlink-hybrid-cube-mesh", "a100-pcie-80gb", "12 × NVLink 3 over a bridge"),
        ("nvswitch", "p100-sxm2-16gb", "4 × NVLink 1"),
        ("nvswitch", "t4", "PCIe 3.0 x16 and no links to other GPUs"),
        ("nvlink-pairs", "rtx-4090", "PCIe 4.0 x16 and no links to other GPUs"),
        ("full-mesh", "rtx-3090", "4 × NVLink 3 on GA10x over a bridge"),
        ("nvswitch", "mi300x", "7 × AMD Infinity Fabric 32 GT/s"),
        (
            "nvlink-hybrid-cube-mesh",
            "h100-sxm5-80gb",
            "18 × NVLink 4",
        ),
        (
            "nvlink-hybrid-cube-mesh",
            "a100-sxm4-80gb",
            "12 × NVLink 3",
        ),
        (
            "nvlink-hybrid-cube-mesh",
            "v100-sxm3-32gb",
            "6 × NVLink 2",
        ),
        ("nvswitch", "v100-sxm2-16gb", "6 × NVLink 2"),
        (
            "nvlink-pairs",
            "a100-sxm4-40gb",
            "12 × NVLink 3",
        ),
        ("full-mesh", "b200-sxm", "18 × NVLink 5"),
    ],
)
def test_unsupported_topologies_are_refused(preset: str, gpu: str, links: str) -> None:
    model = gpus().get(gpu)
    with pytest.raises(UserMistake) as refused:
        build_preset(preset, model, 4)
    message = str(refused.value)
    assert message.startswith(gpu) and preset in message and links in message
    assert preset not in list_topologies(model)
    for topology in list_topologies(model):
        assert topology in message
        build_preset(topology, model, 4)


def test_the_links_of_a_gpu_limit_a_full_mesh() -> None:
    with pytest.raises(UserMistake, match=r"mi300x.*full-mesh.* 8 GPUs, got 9"):
        build_preset("full-mesh", gpus().get("mi300x"), 9)


def test_the_number_of_gpus_in_a_machine_is_limited() -> None:
    with pytest.raises(UserMistake, match=r"up to 8 GPUs, got 16; .* 2xdgx-h100"):
        build_preset("nvswitch", gpus().get("h100-sxm5-80gb"), 16)
    with pytest.raises(UserMistake, match=r"up to 4 GPUs, got 8; nvswitch"):
        build_preset("full-mesh", gpus().get("h100-sxm5-80gb"), 8)
    with pytest.raises(UserMistake, match="up to 72 GPUs, got 144"):
        build_preset("nvswitch", gpus().get("gb200"), 144)
    assert len(build_preset("nvswitch", gpus().get("a100-sxm4-40gb"), 16).gpus) == 16
    assert len(build_preset("full-mesh", gpus().get("h200-nvl-141gb"), 4).gpus) == 4


def test_sxm_modules_do_not_fit_a_desktop_board() -> None:
    with pytest.raises(UserMistake, match=r"consumer.*\(SXM5\)"):
        build_preset("consumer", gpus().get("h100-sxm5-80gb"), 2)


def test_sxm2_pairs_use_half_of_their_links() -> None:
    assert (
        build_preset("nvlink-pairs", gpus().get("v100-sxm2-16gb"), 4).path_class("GPU0", "GPU1")
        == "NV3"
    )


def test_the_chosen_topology_of_every_gpu_can_be_built() -> None:
    for gpu in gpus():
        for count in (1, 2, 4, 8, 10, 16):
            if count <= (gpu.nvswitch_gpus or count):
                build_preset(choose_topology(gpu, count), gpu, count)
