"""Identical jobs on the same machines share ports, PCIe, storage, and cores."""

import pytest

from gpuyard.catalog import gpus
from gpuyard.catalog.specfiles import read_workload
from gpuyard.errors import UserMistake
from gpuyard.hardware import build_preset, plan_concurrent_jobs
from gpuyard.hardware.rings import STAGED_BOTH_WAYS_SHARE
from gpuyard.predictor import Prediction, create_scenario, predict_cluster
from gpuyard.predictor.explain.why import explain
from gpuyard.specs import Cluster, Dataset, MachineSpec, Network, Storage, Workload
from gpuyard.workloads import profile_model


def cluster(nodes: int = 1, **described: object) -> Cluster:
    machine = {"gpu": "gtx-1080-ti", "gpus": 8, "topology": "single-root", **described}
    return Cluster(
        name="shared",
        nodes=nodes,
        machine=MachineSpec.model_validate(machine),
        network=Network(link="roce-25g"),
        storage=Storage.model_validate({"read": "200 MB/s"}),
    )


def predicted(
    place: Cluster, count: int, other_jobs: int, *, per_node: int | None = None, **dataset: object
) -> Prediction:
    spec = workload(**dataset)
    result = predict_cluster(
        spec, profile_model(spec), place, [count], gpus_per_node=per_node, other_jobs=other_jobs
    )
    return result.predictions[0]


def workload(**dataset: object) -> Workload:
    described = Dataset.model_validate({"samples": 1000, "bytes_per_sample": 0, **dataset})
    return read_workload("vgg16").model_copy(update={"dataset": described})


def test_a_port_is_shared_as_if_it_were_slower() -> None:
    two = cluster(2, gpus=2)
    shared = predicted(two, 2, 1, per_node=1)
    half = two.model_copy(
        update={"network": Network.model_validate({"rate": "12.5 Gbit/s", "protocol": "rdma"})}
    )
    assert shared.step == predicted(half, 2, 0, per_node=1).step
    assert shared.other_jobs == 1


def test_storage_is_shared() -> None:
    alone = predicted(cluster(), 1, 0, bytes_per_sample="10 MB")
    shared = predicted(cluster(), 1, 3, bytes_per_sample="10 MB")
    assert alone.samples_per_second == pytest.approx(20)
    assert shared.samples_per_second == pytest.approx(5)
    # efficiency is against a GPU that has the machine for itself
    assert shared.scaling_efficiency == pytest.approx(0.25)
    assert shared.choke == "storage"


def test_cores_are_shared() -> None:
    place = cluster(cores=8).model_copy(update={"storage": None})
    for other_jobs, rate in ((0, 80), (7, 10)):
        p = predicted(place, 1, other_jobs, preprocess="100 ms", input_workers=8)
        assert p.samples_per_second == pytest.approx(rate)


def test_rings_share_the_uplink_that_all_cross() -> None:
    # without peer access each of eight GPUs sends up and down through one uplink of 12 GB/s
    graph = build_preset("cascaded", gpus().get("rtx-2080-ti"), 8)
    (alone,) = plan_concurrent_jobs(graph, 2, 1)
    four = plan_concurrent_jobs(graph, 2, 4)
    assert alone.bytes_per_second == pytest.approx(12e9 / 2 * STAGED_BOTH_WAYS_SHARE)
    assert [job.bytes_per_second for job in four] == pytest.approx(
        [12e9 / 8 * STAGED_BOTH_WAYS_SHARE] * 4
    )
    assert len({gpu for job in four for gpu in job.gpus}) == 8


def test_nvlinks_are_not_shared() -> None:
    graph = build_preset("nvswitch", gpus().get("a100-sxm4-80gb"), 8)
    assert [job.bytes_per_second for job in plan_concurrent_jobs(graph, 4, 2)] == [
        plan_concurrent_jobs(graph, 4, 1)[0].bytes_per_second
    ] * 2


def test_too_many_jobs_for_a_machine_are_an_error() -> None:
    with pytest.raises(UserMistake, match=r"3 jobs with 4 GPUs .* need 12 .*each machine has 8"):
        predicted(cluster(), 4, 2)
    graph = build_preset("nvswitch", gpus().get("a100-sxm4-80gb"), 8)
    with pytest.raises(UserMistake, match="3 jobs of 4 GPUs need 12"):
        plan_concurrent_jobs(graph, 4, 3)


def test_the_explanation_names_other_jobs() -> None:
    spec, place = workload(), cluster()
    p = predicted(place, 2, 3)
    why = explain(create_scenario(spec, profile_model(spec), place, other_jobs=3), p)
    assert any("shared with 3 identical jobs" in sentence for sentence in why.sentences)
    # the knee is sought among the GPUs that others leave
    assert why.knee.current.max_gpus == 2
