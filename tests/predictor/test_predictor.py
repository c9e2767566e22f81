"""Properties of predictions that users rely on, and the founding results in kind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.catalog import gpus, models
from gpuyard.catalog.specfiles import read_workload
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor import (
    CPU_VARIATION,
    GLOO_OVERLAP,
    ClusterPrediction,
    estimate_compute_line,
    fit_line,
    place,
    predict_cluster,
)
from gpuyard.predictor.calibration.defaults import GLOO_HOP, GLOO_LINK
from gpuyard.predictor.constants import UNCERTAINTY
from gpuyard.predictor.strategies import dataparallel
from gpuyard.specs import (
    Cluster,
    KnownThroughput,
    MachineSpec,
    Network,
    Storage,
    StrategyName,
    Workload,
)
from gpuyard.workloads import profile_model

EXAMPLES = Path(__file__).parents[2] / "examples"


def workload(name: str) -> Workload:
    return read_workload(f"{name}.workload.yaml" if "digits" in name else name, EXAMPLES)


def predicted(
    name: str, cluster: str | Cluster, *counts: int, strategy: StrategyName = "ddp", batch: int = 50
) -> ClusterPrediction:
    spec = workload(name)
    place = read_cluster(cluster, EXAMPLES) if isinstance(cluster, str) else cluster
    return predict_cluster(
        spec, profile_model(spec), place, counts, batches=(batch,), strategy=strategy
    )


def test_parts_add_up_to_the_throughput() -> None:
    for p in predicted("resnet50", "apollo.cluster.yaml", 1, 8, 32).predictions:
        assert p.samples_per_second == pytest.approx(p.gpus * p.batch_per_gpu / p.step.seconds)
        assert p.low < p.samples_per_second < p.high


def test_one_gpu_is_perfectly_efficient_and_waits_for_itself() -> None:
    (p,) = predicted("resnet50", "dgx-a100", 1).predictions
    assert p.scaling_efficiency == pytest.approx(1)
    assert p.step.exposed_communication_seconds == 0
    assert p.choke == "gpu"


@pytest.mark.parametrize("batch", [10, 50, 200, 600])
def test_founding_linear_model_is_choked_by_the_links_at_every_batch(batch: int) -> None:
    result = predicted(
        "spoken-digits-linear", "workstation.cluster.yaml", 4, strategy="dataparallel", batch=batch
    )
    assert result.predictions[0].choke == "pcie"
    assert result.predictions[0].scaling_efficiency < 0.5


@pytest.mark.parametrize("batch", [50, 200])
def test_founding_conv_model_is_choked_by_the_gpu(batch: int) -> None:
    result = predicted(
        "spoken-digits-conv", "workstation.cluster.yaml", 4, strategy="dataparallel", batch=batch
    )
    assert result.predictions[0].choke == "gpu"


def test_a_parameter_server_scales_worse_than_all_reduce() -> None:
    ring = predicted("vgg16", "ethernet.cluster.yaml", 8).predictions[0]
    server = predicted(
        "vgg16", "ethernet.cluster.yaml", 8, strategy="parameter-server"
    ).predictions[0]
    assert server.samples_per_second < ring.samples_per_second


def test_spreading_over_machines_is_slower_than_filling_one() -> None:
    spec = workload("resnet50")
    cluster = read_cluster("apollo.cluster.yaml", EXAMPLES)
    wide = predict_cluster(spec, profile_model(spec), cluster, [4], gpus_per_node=2).predictions[0]
    dense = predict_cluster(spec, profile_model(spec), cluster, [4]).predictions[0]
    assert (wide.nodes, dense.nodes) == (2, 1)
    assert wide.samples_per_second < dense.samples_per_second


def test_slow_storage_is_the_choke() -> None:
    cluster = Cluster(
        name="slow disk",
        machine=MachineSpec(gpu="a100-sxm4-80gb", gpus=8, topology="nvswitch"),
        storage=Storage.model_validate({"read": "100 MB/s"}),
    )
    (p,) = predicted("resnet50", cluster, 8).predictions
    assert p.choke == "storage"
    # 8·50 images of 3·224·224 fp32 numbers at 100 MB/s
    assert p.step.seconds == pytest.approx(8 * 50 * 3 * 224 * 224 * 4 / 100e6)


def test_a_flow_cap_holds_back_a_fast_network() -> None:
    machine = MachineSpec(gpu="t4", gpus=4)
    fast = Cluster(name="a", nodes=2, machine=machine, network=Network(link="ethernet-50g"))
    capped = Cluster(
        name="b",
        nodes=2,
        machine=machine,
        network=Network.model_validate({"link": "ethernet-50g", "per_flow": "5 Gbit/s"}),
    )
    free = predicted("bert-base", fast, 8, batch=8).predictions[0]
    held = predicted("bert-base", capped, 8, batch=8).predictions[0]
    assert held.step.exposed_communication_seconds > 3 * free.step.exposed_communication_seconds


def test_known_throughput_is_reproduced() -> None:
    spec = Workload(
        name="known",
        model="resnet50",
        measured=(KnownThroughput(gpu="v100-sxm2-16gb", batch_per_gpu=64, samples_per_second=369),),
    )
    cluster = read_cluster("apollo.cluster.yaml", EXAMPLES)
    result = predict_cluster(spec, profile_model(spec), cluster, [1], batches=(64,))
    assert result.predictions[0].samples_per_second == pytest.approx(369)
    assert result.compute_basis.startswith("measured")


def test_known_throughput_is_scaled_to_another_gpu() -> None:
    spec = Workload(
        name="known",
        model="resnet50",
        measured=(KnownThroughput(gpu="v100-sxm2-16gb", batch_per_gpu=64, samples_per_second=369),),
    )
    line = estimate_compute_line(spec, models().get("resnet50"), gpus().get("a100-sxm4-40gb"))
    assert line.basis == "scaled"
    assert line.relative_uncertainty == UNCERTAINTY["scaled"]


def test_line_through_two_batches_is_exact() -> None:
    # t = 10 ms + b · 2 ms
    fixed, per_sample = fit_line([(10, 0.030), (50, 0.110)])
    assert (fixed, per_sample) == pytest.approx((0.010, 0.002))


def test_line_never_has_negative_parts() -> None:
    fixed, per_sample = fit_line([(10, 0.010), (50, 0.060)])
    assert fixed == 0
    assert per_sample == pytest.approx(0.0011, rel=0.05)
    # noise hid the slope: a larger batch must not seem to be free
    fixed, per_sample = fit_line([(10, 0.03), (50, 0.02)])
    assert fixed == 0
    assert per_sample > 0


@pytest.mark.parametrize(
    ("counts", "per_node", "sentence"),
    [
        ((33,), None, "need 5 nodes; the cluster has 4 × 8 GPUs"),
        ((16,), 9, "each machine has 8"),
        ((6,), 4, "6 GPUs cannot be spread as 4 per node"),
    ],
)
def test_impossible_placements_are_errors(
    counts: tuple[int, ...], per_node: int | None, sentence: str
) -> None:
    with pytest.raises(UserMistake, match=sentence):
        for count in counts:
            place(count, 4, 8, per_node)


def test_dataparallel_stays_in_one_machine() -> None:
    with pytest.raises(UserMistake, match="DataParallel is one process"):
        predicted("resnet50", "apollo.cluster.yaml", 16, strategy="dataparallel")


def test_a_model_too_large_for_the_gpu_does_not_fit() -> None:
    (p,) = predicted("gpt2-xl", "workstation.cluster.yaml", 1, batch=8).predictions
    assert p.fits is False
    assert p.memory_bytes > 11e9


def test_every_constant_has_a_basis_and_a_source() -> None:
    used = predicted("resnet50", "apollo.cluster.yaml", 8).constants
    assert all(constant.source for constant in used)
    assert {"fitted", "counted", "published"} <= {constant.basis for constant in used}


@settings(max_examples=60)
@given(
    name=st.sampled_from(models().ids()),
    gpu=st.sampled_from([gpu.id for gpu in gpus() if gpu.peak_flops("fp32")]),
    nodes=st.integers(1, 64),
    per_node=st.sampled_from([1, 2, 4, 8]),
    batch=st.integers(1, 512),
    rate=st.floats(1e7, 1e11),
    strategy=st.sampled_from(["ddp", "horovod", "parameter-server"]),
)
def test_more_network_never_hurts_and_nothing_is_superlinear(
    name: str, gpu: str, nodes: int, per_node: int, batch: int, rate: float, strategy: StrategyName
) -> None:
    def run(network_rate: float) -> ClusterPrediction:
        cluster = Cluster(
            name="any",
            nodes=nodes,
            machine=MachineSpec(gpu=gpu, gpus=per_node),
            network=Network.model_validate({"rate": f"{network_rate} B/s"}),
        )
        return predicted(name, cluster, nodes * per_node, batch=batch, strategy=strategy)

    slow, fast = run(rate).predictions[0], run(2 * rate).predictions[0]
    assert fast.samples_per_second >= slow.samples_per_second * (1 - 1e-9)
    assert 0 < slow.scaling_efficiency <= 1 + 1e-9
    assert slow.low <= slow.samples_per_second <= slow.high


def test_cpu_constants_match_the_measurement_script() -> None:
    text = (Path(__file__).parents[1] / "data" / "cpu_constants.json").read_text(encoding="utf-8")
    measured = json.loads(text)
    assert GLOO_LINK.value == measured["link_bytes_per_second"]
    assert GLOO_HOP.value == measured["hop_seconds"]
    assert GLOO_OVERLAP.value == measured["overlap"]
    assert CPU_VARIATION.value == measured["variation"]
    assert dataparallel.HOST.value == measured["data_parallel_host_seconds"]


def test_measurement_spread_matches_the_script() -> None:
    root = Path(__file__).parents[2]
    path = root / "scripts" / "measure_spread.py"
    done = subprocess.run([sys.executable, str(path), "--check"], check=False)
    assert done.returncode == 0, "run: python scripts/measure_spread.py"
    text = (root / "tests" / "data" / "spread.json").read_text(encoding="utf-8")
    sigma = json.loads(text)["sigma"]
    assert UNCERTAINTY["measured here"] == sigma["compute"]
    assert UNCERTAINTY["measured link"] == sigma["exchange"]
    assert UNCERTAINTY["input"] == sigma["input"]
