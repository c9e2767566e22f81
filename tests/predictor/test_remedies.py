"""Remedies, sorted by their gain."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog import LayerProfile, models
from gpuyard.catalog.specfiles import read_workload
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor import STRATEGIES, Remedy, create_scenario, predict
from gpuyard.predictor.explain.remedies import find_remedies
from gpuyard.predictor.strategies.base import powersgd_bytes
from gpuyard.specs import Cluster, ExchangeOptions, MachineSpec, Network, Storage, StrategyName
from gpuyard.workloads import profile_model

EXAMPLES = Path(__file__).parents[2] / "examples"


def find_relief(
    workload: str, cluster: str | Cluster, gpus: int, strategy: StrategyName = "ddp"
) -> tuple[float, tuple[Remedy, ...]]:
    spec = read_workload(workload, EXAMPLES)
    place = read_cluster(cluster, EXAMPLES) if isinstance(cluster, str) else cluster
    profile = profile_model(spec)
    scenario = create_scenario(spec, profile, place, strategy=strategy)
    (prediction,) = predict(scenario, scenario.platform.placements([gpus])).predictions
    return prediction.samples_per_second, find_remedies(scenario, prediction)


def named(remedies: tuple[Remedy, ...], word: str) -> Remedy:
    (remedy,) = [remedy for remedy in remedies if word in remedy.change]
    return remedy


def cluster_of(nodes: int = 1, **described: Any) -> Cluster:
    machine = MachineSpec(
        gpu=described.pop("gpu", "v100-sxm2-16gb"),
        gpus=described.pop("gpus", 8),
        topology=described.pop("topology", "nvlink-hybrid-cube-mesh"),
    )
    return Cluster(name="made up", nodes=nodes, machine=machine, **described)


def test_a_faster_network_and_fewer_bytes_relieve_a_choked_network() -> None:
    today, remedies = find_relief("spoken-digits-linear.workload.yaml", "ethernet.cluster.yaml", 8)
    gains = {remedy.change: remedy.gain for remedy in remedies}
    assert gains["ethernet-25g (25 Gbit/s) as network"] > 1.5
    assert gains["gradients sent as 16-bit numbers"] > 1.5
    assert gains["gradients exchanged every 4 steps (accumulation)"] > 2
    assert "GPUs twice as fast" not in gains
    assert [r.gain for r in remedies] == sorted((r.gain for r in remedies), reverse=True)
    for remedy in remedies:
        assert remedy.samples_per_second == pytest.approx(remedy.gain * today)


def test_a_choked_gpu_is_helped_by_more_and_faster_gpus() -> None:
    _, remedies = find_relief("spoken-digits-conv.workload.yaml", "apollo.cluster.yaml", 32)
    gains = {remedy.change: remedy.gain for remedy in remedies}
    assert gains["twice as many machines"] > 1.8
    assert gains["GPUs twice as fast"] > 1.8
    assert not any("network" in what for what in gains)


def test_a_batch_that_does_not_fit_is_not_proposed() -> None:
    _, remedies = find_relief("gpt2-large", "workstation.cluster.yaml", 4)
    assert not any("the batch" in remedy.change for remedy in remedies)


def test_a_larger_batch_shows_its_memory() -> None:
    _, remedies = find_relief("resnet50", "ethernet.cluster.yaml", 8)
    batch = named(remedies, "the batch")
    assert batch.change == "2 × the batch (64 per GPU)"  # 4 times would need 13 of 12 GB
    assert batch.memory_bytes is not None
    assert 7e9 < batch.memory_bytes < 8e9
    assert "learning rate" in batch.caveat


@pytest.mark.parametrize(
    ("network", "next_one"),
    [
        (Network(link="ethernet-10g"), "ethernet-25g (25 Gbit/s) as network"),
        (Network(link="infiniband-edr"), "infiniband-hdr (200 Gbit/s) as network"),
        (Network(link="roce-25g"), "roce-50g (50 Gbit/s) as network"),
        (
            Network.model_validate({"rate": "10 Gbit/s", "protocol": "rdma"}),
            "roce-25g (25 Gbit/s) as network",
        ),
        (Network(link="efa-100g"), "efa-200g (200 Gbit/s) as network"),
        (
            Network.model_validate({"link": "ethernet-10g", "per_flow": "2 Gbit/s"}),
            "4 TCP flows between two machines",
        ),
    ],
)
def test_the_next_faster_network_has_a_name(network: Network, next_one: str) -> None:
    # one GPU with a fast slot a machine, so that nothing but the network is in the way of VGG-16's 553 MB
    cluster = cluster_of(8, gpus=1, topology="workstation", network=network, gpu="h100-pcie-80gb")
    _, remedies = find_relief("vgg16", cluster, 8)
    assert next_one in [remedy.change for remedy in remedies]


def test_rdma_is_proposed_for_tcp_only() -> None:
    def offers(link: str) -> bool:
        cluster = cluster_of(8, gpus=1, topology="workstation", network=Network(link=link))
        return any("RDMA" in remedy.change for remedy in find_relief("vgg16", cluster, 8)[1])

    assert offers("ethernet-25g")
    assert not offers("roce-25g")


def test_the_same_gpus_in_a_better_machine() -> None:
    _, remedies = find_relief("vgg16", cluster_of(topology="dual-socket"), 8)
    assert named(remedies, "machines with the same GPUs").change.startswith("nv")
    _, remedies = find_relief("vgg16", cluster_of(gpu="a100-sxm4-80gb", topology="nvswitch"), 8)
    assert not any("machines with the same GPUs" in remedy.change for remedy in remedies)


def test_cards_with_a_bridge_are_not_put_on_a_switch() -> None:
    cluster = cluster_of(gpu="rtx-3090", gpus=4, topology="dual-socket")
    _, remedies = find_relief("vgg16", cluster, 4)
    assert not any(remedy.change.startswith(("nvswitch", "nvlink-hybrid")) for remedy in remedies)


def test_storage_of_sufficient_speed_is_proposed() -> None:
    slow = cluster_of(storage=Storage.model_validate({"read": "100 MB/s"}))
    today, remedies = find_relief("resnet50", slow, 8)
    storage = named(remedies, "storage")
    enough = find_relief("resnet50", cluster_of(), 8)[0]
    assert storage.samples_per_second == pytest.approx(enough)
    assert storage.gain == pytest.approx(enough / today)


def test_gpus_are_added_up_to_the_knee_only() -> None:
    _, remedies = find_relief("resnet50", "apollo.cluster.yaml", 8)
    assert named(remedies, "(the knee)").change == "32 GPUs of the cluster (the knee)"
    _, remedies = find_relief("vgg16", "ethernet.cluster.yaml", 8)
    assert not any("GPUs of the cluster" in r.change or "as many" in r.change for r in remedies)


def test_ddp_is_proposed_for_dataparallel() -> None:
    _, remedies = find_relief("vgg16", "workstation.cluster.yaml", 4, "dataparallel")
    ddp = named(remedies, "DistributedDataParallel")
    assert ddp.samples_per_second == pytest.approx(
        find_relief("vgg16", "workstation.cluster.yaml", 4)[0]
    )
    # its parameters go out anew for every pass
    assert not any("accumulation" in remedy.change for remedy in remedies)


def test_one_gpu_gets_no_exchange_proposals() -> None:
    _, remedies = find_relief("resnet50", "workstation.cluster.yaml", 1)
    assert not any(
        "gradients" in remedy.change or "PowerSGD" in remedy.change for remedy in remedies
    )


def test_powersgd_shrinks_large_layers_and_warns() -> None:
    _, remedies = find_relief("vgg16", "ethernet.cluster.yaml", 8)
    assert "accuracy" in named(remedies, "PowerSGD").caveat
    vgg = models().get("vgg16")
    sent = STRATEGIES["ddp"].buckets(vgg, ExchangeOptions(compress="powersgd:2"))
    assert 100 < vgg.gradient_bytes / sent.total_bytes < 1000
    tiny = LayerProfile(name="bias", parameters=10, forward_flops=0)
    assert powersgd_bytes(tiny, 2) == tiny.gradient_bytes
    assert powersgd_bytes(vgg.layers[0], 4) == 2 * powersgd_bytes(vgg.layers[0], 2)


def test_powersgd_costs_time_of_its_own() -> None:
    """PowerSGD is not a remedy if links are fast."""
    _, remedies = find_relief("resnet50", "dgx-a100", 8)
    assert not any("PowerSGD" in remedy.change for remedy in remedies)


def test_the_best_bucket_size_is_no_worse_than_the_usual() -> None:
    """One of the sizes is DDP's default, so a bucket size is listed only if it gains."""
    _, remedies = find_relief("vgg16", "ethernet.cluster.yaml", 8)
    assert all(remedy.gain >= 1.03 for remedy in remedies)


def test_accumulation_does_not_help_if_storage_is_the_choke() -> None:
    cluster = Cluster(
        name="slow disk",
        machine=MachineSpec(gpu="v100-sxm2-16gb", gpus=8, topology="nvlink-hybrid-cube-mesh"),
        storage=Storage.model_validate({"read": "100 MB/s"}),
    )
    spec = read_workload("resnet50")
    profile = profile_model(spec)
    scenario = create_scenario(spec, profile, cluster)
    (prediction,) = predict(scenario, scenario.platform.placements([8])).predictions
    gains = {r.change: r.gain for r in find_remedies(scenario, prediction)}
    assert prediction.choke == "storage"
    assert not any("accumulation" in what for what in gains)
    assert any("storage" in what for what in gains)
