"""What would help, and that it is listed in the order of its gain."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog import LayerProfile, models
from gpuyard.catalog.specfiles import read_workload
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predict import STRATEGIES, Remedy, predict, scenario_of
from gpuyard.predict.explain.remedies import relieve
from gpuyard.predict.strategies.base import powersgd_bytes
from gpuyard.specs import Cluster, ExchangeOptions, MachineSpec, Network, Storage, StrategyName
from gpuyard.workloads import profile_of

EXAMPLES = Path(__file__).parents[2] / "examples"


def reliefs(
    workload: str, cluster: str | Cluster, gpus: int, strategy: StrategyName = "ddp"
) -> tuple[float, tuple[Remedy, ...]]:
    spec = read_workload(workload, EXAMPLES)
    place = read_cluster(cluster, EXAMPLES) if isinstance(cluster, str) else cluster
    profile = profile_of(spec)
    scenario = scenario_of(spec, profile, place, strategy=strategy)
    (prediction,) = predict(scenario, scenario.platform.placements([gpus])).predictions
    return prediction.samples_per_second, relieve(scenario, prediction)


def named(found: tuple[Remedy, ...], word: str) -> Remedy:
    (relief,) = [relief for relief in found if word in relief.what]
    return relief


def cluster_of(nodes: int = 1, **described: Any) -> Cluster:
    machine = MachineSpec(
        gpu=described.pop("gpu", "v100-sxm2-16gb"),
        gpus=described.pop("gpus", 8),
        topology=described.pop("topology", "nvlink-hybrid-cube-mesh"),
    )
    return Cluster(name="made up", nodes=nodes, machine=machine, **described)


def test_a_choked_network_is_helped_by_a_faster_one_and_by_less_to_send() -> None:
    today, found = reliefs("spoken-digits-linear.workload.yaml", "ethernet.cluster.yaml", 8)
    gains = {relief.what: relief.gain for relief in found}
    assert gains["ethernet-25g (25 Gbit/s) as network"] > 1.5
    assert gains["gradients sent as 16-bit numbers"] > 1.5
    assert gains["gradients exchanged every 4 steps (accumulation)"] > 2
    assert "GPUs twice as fast" not in gains
    assert [r.gain for r in found] == sorted((r.gain for r in found), reverse=True)
    for relief in found:
        assert relief.samples_per_second == pytest.approx(relief.gain * today)


def test_a_choked_gpu_is_helped_by_more_and_faster_gpus() -> None:
    _, found = reliefs("spoken-digits-conv.workload.yaml", "apollo.cluster.yaml", 32)
    gains = {relief.what: relief.gain for relief in found}
    assert gains["twice as many machines"] > 1.8
    assert gains["GPUs twice as fast"] > 1.8
    assert not any("network" in what for what in gains)


def test_a_batch_that_does_not_fit_is_not_proposed() -> None:
    _, found = reliefs("gpt2-large", "workstation.cluster.yaml", 4)
    assert not any("the batch" in relief.what for relief in found)


def test_a_bigger_batch_says_what_memory_it_takes() -> None:
    _, found = reliefs("resnet50", "ethernet.cluster.yaml", 8)
    batch = named(found, "the batch")
    assert batch.what == "4 × the batch (128 a GPU)"  # 8 times would need 22 of 11 GB
    assert batch.memory_bytes is not None
    assert 11e9 < batch.memory_bytes < 11 * 2**30
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
    # one V100 a machine, so that nothing but the network is in the way of VGG-16's 553 MB
    cluster = cluster_of(8, gpus=1, topology="workstation", network=network)
    _, found = reliefs("vgg16", cluster, 8)
    assert next_one in [relief.what for relief in found]


def test_tcp_is_relieved_by_rdma_and_rdma_is_not() -> None:
    def offers(link: str) -> bool:
        cluster = cluster_of(8, gpus=1, topology="workstation", network=Network(link=link))
        return any("RDMA" in relief.what for relief in reliefs("vgg16", cluster, 8)[1])

    assert offers("ethernet-25g")
    assert not offers("roce-25g")


def test_the_same_gpus_in_a_better_machine() -> None:
    _, found = reliefs("vgg16", cluster_of(topology="dual-socket"), 8)
    assert named(found, "machines of the same GPUs").what.startswith("nv")
    _, found = reliefs("vgg16", cluster_of(gpu="a100-sxm4-80gb", topology="nvswitch"), 8)
    assert not any("machines of the same GPUs" in relief.what for relief in found)


def test_cards_with_a_bridge_are_not_put_on_a_switch() -> None:
    cluster = cluster_of(gpu="rtx-3090", gpus=4, topology="dual-socket")
    _, found = reliefs("vgg16", cluster, 4)
    assert not any(relief.what.startswith(("nvswitch", "nvlink-hybrid")) for relief in found)


def test_storage_that_is_too_slow_is_relieved_by_just_enough() -> None:
    slow = cluster_of(storage=Storage.model_validate({"read": "100 MB/s"}))
    today, found = reliefs("resnet50", slow, 8)
    storage = named(found, "storage")
    enough = reliefs("resnet50", cluster_of(), 8)[0]
    assert storage.samples_per_second == pytest.approx(enough)
    assert storage.gain == pytest.approx(enough / today)


def test_gpus_are_added_up_to_the_knee_only() -> None:
    _, found = reliefs("resnet50", "apollo.cluster.yaml", 8)
    assert named(found, "(the knee)").what == "32 GPUs of the cluster (the knee)"
    _, found = reliefs("vgg16", "ethernet.cluster.yaml", 8)
    assert not any("GPUs of the cluster" in r.what or "as many" in r.what for r in found)


def test_dataparallel_is_relieved_by_ddp() -> None:
    _, found = reliefs("vgg16", "workstation.cluster.yaml", 4, "dataparallel")
    ddp = named(found, "DistributedDataParallel")
    assert ddp.samples_per_second == pytest.approx(
        reliefs("vgg16", "workstation.cluster.yaml", 4)[0]
    )
    # its parameters go out anew for every pass
    assert not any("accumulation" in relief.what for relief in found)


def test_one_gpu_has_no_exchange_to_relieve() -> None:
    _, found = reliefs("resnet50", "workstation.cluster.yaml", 1)
    assert not any("gradients" in relief.what or "PowerSGD" in relief.what for relief in found)


def test_powersgd_shrinks_what_is_large_and_warns() -> None:
    _, found = reliefs("vgg16", "ethernet.cluster.yaml", 8)
    assert "accuracy may fall" in named(found, "PowerSGD").caveat
    vgg = models().get("vgg16")
    sent = STRATEGIES["ddp"].buckets(vgg, ExchangeOptions(compress="powersgd:2"))
    assert 100 < vgg.gradient_bytes / sent.total_bytes < 1000
    tiny = LayerProfile(name="bias", parameters=10, forward_flops=0)
    assert powersgd_bytes(tiny, 2) == tiny.gradient_bytes
    assert powersgd_bytes(vgg.layers[0], 4) == 2 * powersgd_bytes(vgg.layers[0], 2)


def test_powersgd_costs_time_of_its_own() -> None:
    """Where the links are fast enough, it is no remedy."""
    _, found = reliefs("resnet50", "dgx-a100", 8)
    assert not any("PowerSGD" in relief.what for relief in found)


def test_the_best_bucket_size_is_no_worse_than_the_usual() -> None:
    """One of the sizes tried is DDP's own, so a bucket size is listed only where it gains."""
    _, found = reliefs("vgg16", "ethernet.cluster.yaml", 8)
    assert all(relief.gain >= 1.03 for relief in found)


def test_accumulation_does_not_help_what_waits_for_storage() -> None:
    cluster = Cluster(
        name="slow disk",
        machine=MachineSpec(gpu="v100-sxm2-16gb", gpus=8, topology="nvlink-hybrid-cube-mesh"),
        storage=Storage.model_validate({"read": "100 MB/s"}),
    )
    spec = read_workload("resnet50")
    profile = profile_of(spec)
    scenario = scenario_of(spec, profile, cluster)
    (prediction,) = predict(scenario, scenario.platform.placements([8])).predictions
    gains = {r.what: r.gain for r in relieve(scenario, prediction)}
    assert prediction.choke == "storage"
    assert not any("accumulation" in what for what in gains)
    assert any("storage" in what for what in gains)
