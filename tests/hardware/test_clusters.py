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
        ("2x4xrtx-3090@ethernet", "'ethernet' is not a rate"),
        ("2x8xdgx-a100", "write 2xdgx-a100"),
        ("0xrtx-3090", "expected 1 to 72 GPUs in a machine, got 0"),
        ("0x1xrtx-3090@1G", "expected 1 to 100,000 machines, got 0"),
        ("2xrtx3090", "is called 'rtx3090'; did you mean 'rtx-3090'?"),
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
