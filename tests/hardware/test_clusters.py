"""A cluster in a few characters is the cluster that one would write down."""

from pathlib import Path

import pytest

from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import cluster_as_wired, machine_of, read_cluster
from gpuyard.specs import Cluster, MachineSpec, Network

RECORDED = Path(__file__).parent / "recorded"


def described(cluster: Cluster) -> tuple[int, int, str, Network | None]:
    _, machine = machine_of(cluster)
    return cluster.nodes, machine.gpus, machine.gpu, cluster.network


def test_gpus_in_a_few_characters() -> None:
    ten = Network.model_validate({"rate": "10 Gbit/s"})
    for text in ("2x4xrtx-3090@10G", "2×4×rtx-3090@10Gbit", " 2 x 4 x rtx-3090 @ 10 Gbit/s "):
        assert described(read_cluster(text)) == (2, 4, "rtx-3090", ten)
    assert described(read_cluster("rtx-3090")) == (1, 1, "rtx-3090", None)
    assert described(read_cluster("8xrtx-3090")) == (1, 8, "rtx-3090", None)
    rails = Network(link="infiniband-ndr", rails=8)
    assert described(read_cluster("4x8xh100-sxm5-80gb@8xinfiniband-ndr"))[3] == rails
    assert described(read_cluster("2xdgx-a100"))[:3] == (2, 8, "a100-sxm4-80gb")
    assert read_cluster("2x4xrtx-3090@10G").name == "2 × 4 × GeForce RTX 3090, 10 Gbit/s"


def test_they_are_laid_out_as_such_machines_mostly_are() -> None:
    def topology(text: str) -> str:
        machine = read_cluster(text).machine
        assert isinstance(machine, MachineSpec)
        return machine.topology

    assert topology("4xrtx-3090") == "workstation"
    assert topology("8xrtx-3090") == "dual-socket"
    assert topology("8xa100-sxm4-80gb") == "nvswitch"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2x4xrtx-3090", "2 machines need a network between them: add its rate, as in 2x4xrtx-3090@10G"),
        ("4xrtx-3090@10G", "@10G joins machines, and this is one; two of them are 2x4xrtx-3090@10G"),
        ("dgx-a100@10G", "two of them are 2xdgx-a100@10G"),
        ("2x4xrtx-3090@10", "'10' has no unit"),
        ("2x4xrtx-3090@ethernet", "'ethernet' is not a rate"),
        ("2x8xdgx-a100", "a dgx-a100 has 8 GPUs: write 2xdgx-a100 for 2 of them"),
        ("0xrtx-3090", "expected 1 to 72 GPUs in a machine, got 0"),
        ("0x1xrtx-3090@1G", "expected 1 to 100,000 machines, got 0"),
        ("2xrtx3090", "is called 'rtx3090'; did you mean 'rtx-3090'?"),
        ("resnet50", "is called 'resnet50': it is a model"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    with pytest.raises(UserMistake) as mistake:
        read_cluster(text)
    assert sentence in str(mistake.value)


def test_a_matrix_gives_the_wires_and_the_cluster_the_gpus() -> None:
    file = RECORDED / "topo-m" / "rtx4090-8gpu-sys-2nic-no-legend.txt"
    asked = read_cluster("8xrtx-4090")
    cluster, graph = cluster_as_wired(file, asked)
    assert cluster == asked
    assert {device.gpu for device in graph.of_kind("gpu")} == {"rtx-4090"}
    assert graph.path_class("GPU0", "GPU1") == "SYS"
    with pytest.raises(UserMistake, match=r"has 8 GPUs, and a machine of 4 × .* has 4"):
        cluster_as_wired(file, read_cluster("4xrtx-4090"))
    with pytest.raises(UserMistake, match=r"does not say which GPUs these are; .*--on 8xrtx-3090"):
        cluster_as_wired(file)


def test_a_file_that_names_its_gpus_needs_no_cluster() -> None:
    file = RECORDED / "smi-xml" / "t4-passthrough-v11.xml"
    cluster, _ = cluster_as_wired(file)
    assert described(cluster) == (1, 1, "t4", None)
    with pytest.raises(UserMistake, match="has t4 GPUs, and 1 × GeForce RTX 3090 has rtx-3090"):
        cluster_as_wired(file, read_cluster("rtx-3090"))
