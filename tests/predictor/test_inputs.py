"""Samples come from storage, are prepared by CPU cores and go to the GPU: the slowest sets the pace."""

import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.predictor import ClusterPrediction, Prediction, create_scenario, predict_cluster
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.explain.remedies import find_remedies
from gpuyard.specs import (
    Cluster,
    Dataset,
    KnownThroughput,
    MachineSpec,
    Network,
    Storage,
    StrategyName,
    Workload,
)
from gpuyard.workloads import profile_model


def fed(**dataset: object) -> Workload:
    """ResNet-50 that one V100 does 400 of a second."""
    figure = KnownThroughput(gpu="v100-sxm2-16gb", batch_per_gpu=32, samples_per_second=400)
    described = Dataset.model_validate({"samples": 1000, "bytes_per_sample": "100 kB", **dataset})
    return read_workload("resnet50").model_copy(
        update={"dataset": described, "measured": (figure,)}
    )


def machine(cores: int | None = None, storage: str | None = None) -> Cluster:
    return Cluster(
        name="one machine",
        machine=MachineSpec(
            gpu="v100-sxm2-16gb", gpus=8, topology="nvlink-hybrid-cube-mesh", cores=cores
        ),
        storage=Storage.model_validate({"read": storage}) if storage else None,
    )


def asked(workload: Workload, cluster: Cluster, gpus: int = 1) -> ClusterPrediction:
    return predict_cluster(workload, profile_model(workload), cluster, [gpus])


def one(workload: Workload, cluster: Cluster, gpus: int = 1) -> Prediction:
    return asked(workload, cluster, gpus).predictions[0]


def test_workers_that_are_too_few_are_the_choke() -> None:
    p = one(fed(preprocess="8 ms", input_workers=2), machine())
    assert p.samples_per_second == pytest.approx(2 / 8e-3)  # two of 125 a second
    assert p.choke == "host"
    # a batch of 32 takes 128 ms to prepare and 80 ms to train
    assert p.step.input_seconds == pytest.approx(0.128 - 0.080)


def test_workers_that_are_enough_cost_nothing() -> None:
    p = one(fed(preprocess="8 ms", input_workers=4), machine())
    assert p == one(fed(), machine())
    assert p.choke == "gpu"


def test_the_cores_of_a_machine_are_shared_by_its_gpus() -> None:
    spec = fed(preprocess="8 ms", input_workers=4)
    assert one(spec, machine(cores=16), 4).step.input_seconds == 0
    starved = one(spec, machine(cores=16), 8)
    # two cores per GPU, whatever the option
    assert starved.samples_per_second == pytest.approx(16 / 8e-3)
    assert starved.choke == "host"


def test_without_workers_every_core_helps() -> None:
    p = one(fed(preprocess="80 ms"), machine(cores=24), 8)
    assert p.samples_per_second == pytest.approx(24 / 80e-3)


def test_a_usual_number_of_workers_is_named() -> None:
    def assumed(workload: Workload, cluster: Cluster) -> bool:
        return any(x.name == "input_workers" for x in asked(workload, cluster).constants)

    assert assumed(fed(preprocess="8 ms"), machine())
    assert not assumed(fed(preprocess="8 ms"), machine(cores=8))
    assert not assumed(fed(preprocess="8 ms", input_workers=1), machine())
    assert not assumed(fed(), machine())


def test_storage_is_the_choke_where_it_is_slower_than_the_cores() -> None:
    spec = fed(preprocess="8 ms", input_workers=2)
    p = one(spec, machine(storage="10 MB/s"))
    assert p.samples_per_second == pytest.approx(100)  # of 100 kB each
    assert p.choke == "storage"
    assert one(spec, machine(storage="100 MB/s")).choke == "host"


def test_more_workers_or_more_cores_are_a_remedy() -> None:
    def remedies(workload: Workload, cluster: Cluster, gpus: int) -> dict[str, float]:
        p = one(workload, cluster, gpus)
        remedies_found = find_remedies(
            create_scenario(workload, profile_model(workload), cluster), p
        )
        return {r.change: r.gain for r in remedies_found if "input workers" in r.change}

    spec = fed(preprocess="8 ms", input_workers=2)
    # 400 a second of 8 ms each keep 3.2 cores busy
    assert remedies(spec, machine(), 1) == {"4 input workers per GPU": pytest.approx(1.6)}
    (what,) = remedies(spec, machine(cores=16), 8)
    assert what == "4 input workers per GPU, on machines with 32 free cores"
    assert remedies(fed(preprocess="8 ms", input_workers=8), machine(cores=64), 8) == {}


def test_samples_of_different_size_make_workers_wait() -> None:
    even, varied = (one(fed(variation=v), machine(), 8) for v in ("0%", "20%"))
    assert even.step.straggler_seconds == pytest.approx(
        load_tuning().slowdown * even.step.compute_seconds, rel=1e-6
    )
    # the slowest of eight lies 1.42 σ above the mean (Blom)
    expected = (load_tuning().slowdown + 0.2 * 1.4343) * varied.step.compute_seconds
    assert varied.step.straggler_seconds == pytest.approx(expected, rel=0.01)
    assert one(fed(), machine(), 8).step.straggler_seconds > 0


@pytest.mark.parametrize(
    ("strategy", "gpus", "lost"),
    [
        ("ddp", 8, load_tuning().slowdown),
        ("ddp", 16, load_tuning().slowdown + load_tuning().slowdown_between),
        ("horovod", 16, load_tuning().slowdown),
    ],
)
def test_workers_lose_compute_among_others_and_ddp_more_over_machines(
    strategy: StrategyName, gpus: int, lost: float
) -> None:
    two = machine().model_copy(
        update={"nodes": 2, "network": Network.model_validate({"rate": "100 Gbit/s"})}
    )
    spec = fed(variation="0%")
    result = predict_cluster(spec, profile_model(spec), two, [gpus], strategy=strategy)
    step = result.predictions[0].step
    assert step.straggler_seconds == pytest.approx(lost * step.compute_seconds, rel=1e-6)
    named = {constant.name for constant in result.constants}
    assert ("slowdown_between" in named) == (strategy == "ddp")
