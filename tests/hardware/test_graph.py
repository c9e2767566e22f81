"""The machine graph: paths, NVIDIA's classes, peer access."""

import pytest

from gpuyard.catalog import gpus
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware import PRESETS, MachineGraph, build_preset
from gpuyard.hardware.graph import Device, Wire
from gpuyard.hardware.presets import topologies_of, usual_topology


def preset(name: str, gpu: str | None = None, count: int | None = None) -> MachineGraph:
    known = PRESETS[name]
    return build_preset(name, gpus().get(gpu or known.usual_gpu), count or known.usual_gpus)


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
def test_presets_look_to_the_first_gpu_as_nvidia_smi_shows_them(
    name: str, gpu: str, classes: str
) -> None:
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


def test_a_path_through_switches_is_told_hop_by_hop() -> None:
    graph = preset("cascaded")
    assert [hop.target for hop in graph.path("GPU0", "GPU7")] == ["SW0", "SW1", "GPU7"]
    assert [hop.source for hop in graph.path("GPU7", "GPU0")] == ["GPU7", "SW1", "SW0"]


def test_geforce_since_rtx_20_has_no_peer_access_over_pcie_but_has_it_over_a_bridge() -> None:
    graph = preset("nvlink-pairs", "rtx-3090")
    assert graph.offers_peer_to_peer("GPU0", "GPU1")
    assert not graph.offers_peer_to_peer("GPU1", "GPU2")
    # staged: up to the socket and down again
    assert [hop.target for hop in graph.transfer_path("GPU1", "GPU2")] == [
        "HB0",
        "CPU0",
        "HB0",
        "GPU2",
    ]
    assert preset("workstation", "gtx-1080-ti").offers_peer_to_peer("GPU0", "GPU1")


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


def test_what_is_not_there_is_a_sentence() -> None:
    graph = preset("workstation")
    with pytest.raises(UnknownName, match="no device is called 'GPU9'"):
        graph.device("GPU9")
    with pytest.raises(UnknownName, match="did you mean 'dual-root'"):
        build_preset("dual-rot", gpus().get("t4"), 4)
    with pytest.raises(UserMistake, match="up to 8 GPUs"):
        build_preset("nvlink-hybrid-cube-mesh", gpus().get("v100-sxm2-16gb"), 16)


@pytest.mark.parametrize(
    ("preset", "gpu", "has"),
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
            "18 × NVLink 4, and no machine was built that joins it so",
        ),
        (
            "nvlink-hybrid-cube-mesh",
            "a100-sxm4-80gb",
            "12 × NVLink 3, and no machine was built that joins it so",
        ),
        (
            "nvlink-hybrid-cube-mesh",
            "v100-sxm3-32gb",
            "6 × NVLink 2, and no machine was built that joins it so",
        ),
        ("nvswitch", "v100-sxm2-16gb", "6 × NVLink 2, and no machine was built that joins it so"),
        (
            "nvlink-pairs",
            "a100-sxm4-40gb",
            "12 × NVLink 3, and no machine was built that joins it so",
        ),
        ("full-mesh", "b200-sxm", "18 × NVLink 5, and no machine was built that joins it so"),
    ],
)
def test_what_a_gpu_was_never_wired_as_is_refused(preset: str, gpu: str, has: str) -> None:
    model = gpus().get(gpu)
    with pytest.raises(UserMistake) as refused:
        build_preset(preset, model, 4)
    assert f"{gpu} can't be wired as {preset}: it has {has}" in str(refused.value)
    assert preset not in topologies_of(model)
    for possible in topologies_of(model):  # what the sentence offers can be built
        build_preset(possible, model, 4)


def test_a_full_mesh_has_a_link_to_every_other() -> None:
    with pytest.raises(UserMistake, match="mi300x wired as full-mesh has up to 8 GPUs, got 9"):
        build_preset("full-mesh", gpus().get("mi300x"), 9)


def test_no_machine_has_more_gpus_than_were_ever_joined() -> None:
    with pytest.raises(UserMistake, match=r"up to 8 GPUs, got 16; .* 2x8xh100-sxm5-80gb@100G"):
        build_preset("nvswitch", gpus().get("h100-sxm5-80gb"), 16)
    with pytest.raises(UserMistake, match="up to 4 GPUs, got 8; so many are joined by nvswitch"):
        build_preset("full-mesh", gpus().get("h100-sxm5-80gb"), 8)
    with pytest.raises(UserMistake, match="up to 72 GPUs, got 144"):
        build_preset("nvswitch", gpus().get("gb200"), 144)
    assert len(build_preset("nvswitch", gpus().get("a100-sxm4-40gb"), 16).gpus) == 16
    assert len(build_preset("full-mesh", gpus().get("h200-nvl-141gb"), 4).gpus) == 4


def test_an_sxm_module_has_no_slot_on_a_desktop_board() -> None:
    with pytest.raises(
        UserMistake, match=r"can't be wired as consumer: it is no PCIe card \(SXM5\)"
    ):
        build_preset("consumer", gpus().get("h100-sxm5-80gb"), 2)


def test_ibm_gives_half_of_the_links_of_a_pair_to_the_cpu() -> None:
    assert (
        build_preset("nvlink-pairs", gpus().get("v100-sxm2-16gb"), 4).path_class("GPU0", "GPU1")
        == "NV3"
    )


def test_the_usual_topology_of_every_gpu_can_be_built() -> None:
    for gpu in gpus():
        for count in (1, 2, 4, 8, 10, 16):
            if count <= (gpu.nvswitch_gpus or count):
                build_preset(usual_topology(gpu, count), gpu, count)
