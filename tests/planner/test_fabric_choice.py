"""The cheapest network that is good enough, and when a faster one buys nothing."""

from itertools import pairwise

import pytest

from gpuyard.catalog.fabric import switches
from gpuyard.catalog.specfiles import read_workload
from gpuyard.errors import UserMistake
from gpuyard.facility.fabric import FabricRequest, design_fabric
from gpuyard.planner.fabric_choice import FabricChoice, choose_fabric, exchange_bytes_per_second
from gpuyard.planner.storage_need import CheckpointPlan, published_need, storage_request
from gpuyard.predict import platform_of
from gpuyard.specs import Cluster, Dataset, Storage, Workload
from gpuyard.workloads import profile_of


def chosen(model: str, target: float, nodes: int = 4, batch: int = 64) -> FabricChoice:
    workload = read_workload(model)
    cluster = Cluster(name="four", nodes=nodes, machine="dgx-1-v100")
    return choose_fabric(workload, profile_of(workload), cluster, target, batch=batch)


@pytest.mark.parametrize("target", [0.5, 0.9])
def test_nothing_cheaper_reaches_the_target(target: float) -> None:
    choice = chosen("vgg16", target)
    assert choice.reached and choice.chosen.efficiency >= target
    cheaper = [c for c in choice.frontier if c.price_usd < choice.chosen.price_usd]
    assert cheaper
    assert all(c.efficiency < target for c in cheaper)


def test_the_frontier_rises_in_price_and_efficiency() -> None:
    frontier = chosen("bert-large", 0.9).frontier
    assert all(
        one.price_usd <= two.price_usd and one.efficiency < two.efficiency
        for one, two in pairwise(frontier)
    )


def test_a_light_model_needs_a_slower_network_than_a_heavy_one() -> None:
    light, heavy = chosen("resnet50", 0.9), chosen("vgg16", 0.9)
    assert light.chosen.price_usd < heavy.chosen.price_usd


def test_it_says_when_a_faster_network_buys_nothing() -> None:
    choice = chosen("resnet50", 0.9)
    assert "a faster network buys nothing" in choice.verdict
    best = choice.frontier[-1].prediction.samples_per_second
    assert choice.enough.prediction.samples_per_second >= 0.99 * best
    again = chosen("resnet50", choice.enough.efficiency)
    assert again.chosen == choice.enough
    assert again.verdict.endswith("A faster network buys nothing.")


def test_it_says_when_no_network_is_enough() -> None:
    choice = chosen("resnet50", 0.999)
    assert not choice.reached
    assert choice.chosen == choice.frontier[-1]
    assert choice.verdict.startswith("No network of the catalog keeps 100 %")


def test_nothing_that_is_no_longer_sold_is_proposed() -> None:
    old = {switch.id for switch in switches() if switch.discontinued}
    assert old
    assert not {c.design.switch.id for c in chosen("vgg16", 0.5).frontier} & old


def test_one_machine_needs_no_network() -> None:
    with pytest.raises(UserMistake, match="one machine"):
        chosen("resnet50", 0.9, nodes=1)


def test_the_predictor_reckons_with_the_designed_fabric() -> None:
    for ratio in (1.0, 4.0):
        asked = FabricRequest(128, 8, "nvidia-qm9700", oversubscription=ratio)
        design = design_fabric(asked)
        cluster = Cluster(name="c", nodes=128, machine="dgx-h100", network=design.network)
        between = platform_of(cluster).between
        assert between is not None
        assert exchange_bytes_per_second(design) == between(128).bytes_per_second
        assert exchange_bytes_per_second(design) <= design.all_reduce_bytes_per_second


def test_storage_need_is_predicted_speed_times_bytes() -> None:
    workload = Workload(
        name="w", model="resnet50", dataset=Dataset(samples=1_000_000, bytes_per_sample=100e3)
    )
    slow = Cluster(
        name="c", nodes=2, machine="dgx-a100", storage=Storage.model_validate({"read": "1 MB/s"})
    )
    fast = slow.model_copy(update={"storage": None})
    profile = profile_of(workload)
    need = storage_request(workload, profile, slow, CheckpointPlan())
    # what the storage is now does not change what would be needed
    assert need == storage_request(workload, profile, fast, CheckpointPlan())
    assert need.read_bytes_per_second == need.samples_per_second * 100e3
    assert (need.gpus, need.gpus_per_node, need.dataset_bytes) == (16, 8, 1e11)
    assert need.checkpoint_bytes == 12 * profile.parameters


def test_published_needs_are_found_by_model_and_gpu() -> None:
    workload = read_workload("resnet50")
    found = published_need(workload, Cluster(name="c", machine="dgx-h100"))
    assert found is not None and found.id == "resnet50-h100"
    assert published_need(workload, Cluster(name="c", machine="dgx-1-v100")) is None
