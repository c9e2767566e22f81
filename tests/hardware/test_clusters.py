"""Clusters from short forms like 2x4xrtx-3090@10G, and from topology files."""

from pathlib import Path

import pytest

from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import cluster_from_topology_file, read_cluster, resolve_machine
from gpuyard.specs import Cluster, MachineSpec, Network

RECORDED = Path(__file__).parent / "recorded"


def summarize(cluster: Cluster) -> tuple[int, int, str, Network | None]:
    _, machine = resolve_machine(cluster)
    return cluster.nodes, machine.gpus, machine.gpu, cluster.network


def test_short_forms() -> None:
    ten = Network.model_validate({"rate": "10 Gbit/s"})
    for text in ("2x4xrtx-3090@10G", "2×4×rtx-3090@10Gbit", " 2 x 4 x rtx-3090 @ 10 Gbit/s "):
        assert summarize(read_cluster(text)) == (2, 4, "rtx-3090", ten)
    assert summarize(read_cluster("rtx-3090")) == (1, 1, "rtx-3090", None)
    assert summarize(read_cluster("8xrtx-3090")) == (1, 8, "rtx-3090", None)
    rails = Network(link="infiniband-ndr", rails=8)
    assert summarize(read_cluster("4x8xh100-sxm5-80gb@8xinfiniband-ndr"))[3] == rails
    assert summarize(read_cluster("2xdgx-a100"))[:3] == (2, 8, "a100-sxm4-80gb")
    assert read_cluster("2x4xrtx-3090@10G").name == "2 × 4 × GeForce RTX 3090, 10 Gbit/s"


@pytest.mark.parametrize(
    ("text", "nodes", "gpus", "gpu"),
    [
        ("h100", 1, 1, "h100-sxm5-80gb"),
        ("8xh100", 1, 8, "h100-sxm5-80gb"),
        ("H100:8", 1, 8, "h100-sxm5-80gb"),
        ("8XA100-40GB", 1, 8, "a100-sxm4-40gb"),
        ("4x3090", 1, 4, "rtx-3090"),
        ("RTX3090", 1, 1, "rtx-3090"),
        ("p4d.24xlarge", 1, 8, "a100-sxm4-40gb"),
        ("aws/P4D.24xlarge", 1, 8, "a100-sxm4-40gb"),
        ("4xp5.48xlarge", 4, 8, "h100-sxm5-80gb"),
        ("4xDGX-H100", 4, 8, "h100-sxm5-80gb"),
        ("fluidstack/H100_NVLINK_80GB::8", 1, 8, "h100-sxm5-80gb"),
    ],
)
def test_names_that_people_type_first(text: str, nodes: int, gpus: int, gpu: str) -> None:
    assert summarize(read_cluster(text))[:3] == (nodes, gpus, gpu)


def test_a_chosen_variant_is_reported() -> None:
    note = read_cluster("8xh100").note
    assert "h100-sxm5-80gb" in note
    assert "h100-pcie-80gb" in note
    assert not read_cluster("8xrtx3090").note


def test_networks_that_people_type_first() -> None:
    ten = Network.model_validate({"rate": "10 Gbit/s"})
    for rate in ("10g", "10Gb", "10gbps", "10 Gbit", "10GbE"):
        assert summarize(read_cluster(f"2x4xrtx-3090@{rate}"))[3] == ten, rate
    assert summarize(read_cluster("2x4xrtx-3090@10GB/s"))[3] == Network.model_validate(
        {"rate": "80 Gbit/s"}
    )
    hdr = Network(link="infiniband-hdr")
    assert summarize(read_cluster("2x8xh100@hdr"))[3] == hdr
    assert summarize(read_cluster("2x8xh100@HDR"))[3] == hdr
    efa = Network(link="efa-100g", rails=32)
    assert summarize(read_cluster("4xp5.48xlarge"))[3] == efa


def test_short_forms_use_the_most_common_topology() -> None:
    def topology(text: str) -> str:
        machine = read_cluster(text).machine
        assert isinstance(machine, MachineSpec)
        return machine.topology

    assert topology("4xrtx-3090") == "workstation"
    assert topology("8xrtx-3090") == "dual-socket"
    assert topology("8xa100-sxm4-80gb") == "nvswitch"


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("2x4xrtx-3090", "2x4xrtx-3090@10G"),
        ("4xrtx-3090@10G", "@10G needs at least two machines, e.g. 2x4xrtx-3090@10G"),
        ("dgx-a100@10G", "2xdgx-a100@10G"),
        ("2x4xrtx-3090@10", "'10' has no unit"),
        ("2x4xrtx-3090@ethernet", "did you mean 'ethernet-1g'"),
        ("2x8xdgx-a100", "write 2xdgx-a100"),
        ("0xrtx-3090", "expected 1 to 72 GPUs in a machine, got 0"),
        ("0x1xrtx-3090@1G", "expected 1 to 100,000 machines, got 0"),
        ("2xrtx-3091", "is called 'rtx-3091'; did you mean 'rtx-3090'?"),
        ("titan", "choose one of: titan-rtx, titan-v, titan-xp"),
        ("2x4xrtx-3090@10GB", "write @10G for 10Gbit/s, or @10GB/s"),
        ("2x8xp5.48xlarge", "write 2xaws/p5.48xlarge"),
        ("2xvast/1x-H100_SXM-32-65536", "2xvast/1x-H100_SXM-32-65536@10G"),
        ("resnet50", "is called 'resnet50': it is a model"),
    ],
)  # fmt: skip
def test_errors_name_the_fix(text: str, fragment: str) -> None:
    with pytest.raises(UserMistake) as mistake:
        read_cluster(text)
    assert fragment in str(mistake.value)


def test_a_matrix_defines_the_wires_and_the_cluster_names_the_gpus() -> None:
    file = RECORDED / "topo-m" / "rtx4090-8gpu-sys-2nic-no-legend.txt"
    named = read_cluster("8xrtx-4090")
    cluster, graph = cluster_from_topology_file(file, named)
    assert cluster == named
    assert {device.gpu for device in graph.devices_of_kind("gpu")} == {"rtx-4090"}
    assert graph.path_class("GPU0", "GPU1") == "SYS"
    with pytest.raises(UserMistake, match=r"has 8 GPUs, .* has 4"):
        cluster_from_topology_file(file, read_cluster("4xrtx-4090"))
    with pytest.raises(UserMistake, match="--on 8xrtx-3090"):
        cluster_from_topology_file(file)


def test_a_file_that_names_its_gpus_needs_no_cluster() -> None:
    file = RECORDED / "smi-xml" / "t4-passthrough-v11.xml"
    cluster, _ = cluster_from_topology_file(file)
    assert summarize(cluster) == (1, 1, "t4", None)
    with pytest.raises(UserMistake, match=r"t4 GPUs.*rtx-3090"):
        cluster_from_topology_file(file, read_cluster("rtx-3090"))


@pytest.mark.parametrize(
    ("short", "example"),
    [("32xh100", "4xdgx-h100"), ("64xmi300x", "8xmi300x-8"), ("24xrtx-4090", "3x8xrtx-4090@100G")],
)
def test_more_gpus_than_a_machine_has_need_several_machines(short: str, example: str) -> None:
    with pytest.raises(UserMistake) as refused:
        read_cluster(short)
    assert str(refused.value).endswith(example)
    read_cluster(example)
