"""The cheapest network that is good enough, and when a faster one gains nothing."""

from itertools import pairwise

import pytest

from gpuyard.catalog.fabric import switches
from gpuyard.catalog.specfiles import read_workload
from gpuyard.errors import UserMistake
from gpuyard.facilities.fabric import FabricRequest, design_fabric
from gpuyard.planner.fabric_choice import FabricChoice, choose_fabric, exchange_bytes_per_second
from gpuyard.planner.storage_need import CheckpointPlan, create_storage_request, find_published_need
from gpuyard.predictor import create_platform
from gpuyard.specs import Cluster, Dataset, Storage, Workload
from gpuyard.workloads import profile_model


def choose(model: str, target: float, nodes: int = 4, batch: int = 64) -> FabricChoice:
    workload = read_workload(model)
    cluster = Cluster(name="four", nodes=nodes, machine="dgx-1-v100")
    return choose_fabric(workload, profile_model(workload), cluster, target, batch=batch)


@pytest.mark.parametrize("target", [0.5, 0.9])
def test_nothing_cheaper_reaches_the_target(target: float) -> None:
    choice = choose("vgg16", target)
    assert choice.reached and choice.chosen.efficiency >= target
    cheaper = [c for c in choice.frontier if c.price_usd < choice.chosen.price_usd]
    assert cheaper
    assert all(c.efficiency < target for c in cheaper)


def test_the_frontier_rises_in_price_and_efficiency() -> None:
    frontier = choose("bert-large", 0.9).frontier
    assert all(
        first.price_usd <= second.price_usd and first.efficiency < second.efficiency
        for first, second in pairwise(frontier)
    )


def test_a_light_model_needs_a_slower_network_than_a_heavy_one() -> None:
    light, heavy = choose("resnet50", 0.9), choose("vgg16", 0.9)
    assert light.chosen.price_usd < heavy.chosen.price_usd


def test_the_verdict_mentions_when_a_faster_network_gains_nothing() -> None:
    choice = choose("resnet50", 0.9)
    assert "a faster network gains nothing" in choice.verdict
    best = choice.frontier[-1].prediction.samples_per_second
    assert choice.enough.prediction.samples_per_second >= 0.99 * best
    again = choose("resnet50", choice.enough.efficiency)
    assert again.chosen == choice.enough
    assert again.verdict.endswith("A faster network gains nothing.")


def test_the_verdict_mentions_when_no_network_is_enough() -> None:
    choice = choose("resnet50", 0.999)
    assert not choice.reached
    assert choice.chosen == choice.frontier[-1]
    assert choice.verdict.startswith("No network")


def test_discontinued_products_are_not_proposed() -> None:
    old = {switch.id for switch in switches() if switch.discontinued}
    assert old
    assert not {c.design.switch.id for c in choose("vgg16", 0.5).frontier} & old


def test_one_machine_needs_no_network() -> None:
    with pytest.raises(UserMistake, match="one machine"):
        choose("resnet50", 0.9, nodes=1)


def test_predictions_use_the_designed_fabric() -> None:
    for ratio in (1.0, 4.0):
        request = FabricRequest(128, 8, "nvidia-qm9700", oversubscription=ratio)
        design = design_fabric(request)
        cluster = Cluster(name="c", nodes=128, machine="dgx-h100", network=design.network)
        between = create_platform(cluster).between
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
    profile = profile_model(workload)
    need = create_storage_request(workload, profile, slow, CheckpointPlan())
    # what the storage is now does not change what would be needed
    assert need == create_storage_request(workload, profile, fast, CheckpointPlan())
    assert need.read_bytes_per_second == need.samples_per_second * 100e3
    assert (need.gpus, need.gpus_per_node, need.dataset_bytes) == (16, 8, 1e11)
    assert need.checkpoint_bytes == 12 * profile.parameters


def test_published_needs_are_found_by_model_and_gpu() -> None:
    workload = read_workload("resnet50")
    need = find_published_need(workload, Cluster(name="c", machine="dgx-h100"))
    assert need is not None and need.id == "resnet50-h100"
    assert find_published_need(workload, Cluster(name="c", machine="dgx-1-v100")) is None
