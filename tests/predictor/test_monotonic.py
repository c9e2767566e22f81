"""Properties of predictions that hold for every GPU, model, precision, and count, and between commands."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuyard.catalog import Gpu, gpus, models
from gpuyard.hardware.clusters import read_cluster
from gpuyard.hardware.presets import choose_topology, get_preset
from gpuyard.planner.machine_shapes import MachineShape
from gpuyard.planner.throughput import Grid, find_compute_lines, predict_shapes
from gpuyard.predictor.platform import create_platform
from gpuyard.predictor.prediction import predict_cluster
from gpuyard.predictor.topology import summarize_topology
from gpuyard.predictor.transport import ring_rate
from gpuyard.specs import Cluster, MachineSpec, Network, Precision, Workload
from gpuyard.specs.study import StudyCluster
from gpuyard.study.workload import StudyCase, predict_on_cluster

TRAINABLE = [gpu for gpu in gpus() if gpu.peak_flops("fp32") and gpu.fabric_topology is None]
LINKS = ("ethernet-10g", "ethernet-100g", "infiniband-hdr", "infiniband-ndr", "roce-400g")
NAMES = ("resnet50", "vgg16", "gpt2-xl", "bert-base")


def build_cluster(gpu: Gpu, per_node: int, nodes: int, network: Network | None) -> Cluster:
    machine = MachineSpec(gpu=gpu.id, gpus=per_node, topology=choose_topology(gpu, per_node))
    return Cluster(name="cluster", nodes=nodes, machine=machine, network=network)


@settings(max_examples=80, deadline=None)
@given(
    gpu=st.sampled_from(TRAINABLE),
    model=st.sampled_from([name for name in NAMES if name in models()]),
    precision=st.sampled_from(["fp32", "fp16"]),
    per_node=st.sampled_from([1, 2, 4, 8]),
    link=st.sampled_from(LINKS),
    rails=st.sampled_from([1, 4, 8]),
)
@example(gpus().get("b200-sxm"), "resnet50", "fp32", 8, "infiniband-ndr", 8)
def test_leaving_the_machine_never_makes_the_exchange_cheaper(
    gpu: Gpu, model: str, precision: Precision, per_node: int, link: str, rails: int
) -> None:
    if gpu.peak_flops(precision) is None:
        precision = "fp32"
    cluster = build_cluster(gpu, per_node, 4, Network(link=link, rails=rails))
    workload = Workload(name=model, model=model, precision=precision, batch_per_gpu=4)
    counts = [per_node * nodes for nodes in (1, 2, 3, 4)]
    result = predict_cluster(workload, models().get(model), cluster, counts)
    one, *several = (p.step.exposed_communication_seconds for p in result.predictions)
    assert all(exposed >= 0.999 * one for exposed in several)
    for p in result.predictions:
        assert p.low <= p.samples_per_second <= p.high
    efficiencies = [p.scaling_efficiency for p in result.predictions]
    assert all(e <= efficiencies[0] * (1 + 1e-9) for e in efficiencies[1:])


@settings(max_examples=60, deadline=None)
@given(gpu=st.sampled_from(TRAINABLE), count=st.sampled_from([2, 4, 8]))
def test_topo_and_predict_name_one_rate(gpu: Gpu, count: int) -> None:
    cluster = build_cluster(gpu, count, 1, None)
    machine = cluster.machine
    assert isinstance(machine, MachineSpec)
    summary = summarize_topology(get_preset(machine.topology, gpu, count))
    whole = summary.all_reduces[-1]
    pipe = create_platform(cluster).inside(count)
    assert pipe.bytes_per_second == pytest.approx(ring_rate(whole))


@settings(max_examples=40, deadline=None)
@given(
    gpu=st.sampled_from(TRAINABLE),
    model=st.sampled_from(NAMES),
    precision=st.sampled_from(["fp32", "fp16"]),
    per_node=st.sampled_from([1, 2, 4, 8]),
    nodes=st.sampled_from([1, 2, 5]),
    link=st.sampled_from(LINKS),
)
def test_plan_study_and_predict_give_one_answer(
    gpu: Gpu, model: str, precision: Precision, per_node: int, nodes: int, link: str
) -> None:
    if gpu.peak_flops(precision) is None:
        precision = "fp32"
    network = Network(link=link) if nodes > 1 else None
    cluster = build_cluster(gpu, per_node, nodes, network)
    profile = models().get(model)
    workload = Workload(name=model, model=model, precision=precision, batch_per_gpu=8)
    result = predict_cluster(workload, profile, cluster, [per_node * nodes])
    (predicted,) = result.predictions

    shape = MachineShape(gpu, per_node, choose_topology(gpu, per_node), network)
    lines = find_compute_lines(workload, profile, [gpu])
    table = predict_shapes(workload, profile, [shape], lines, Grid((nodes,), (8,), ("none",)))
    assert table.samples_per_second == pytest.approx([predicted.samples_per_second])
    assert table.low == pytest.approx([predicted.low])
    assert table.high == pytest.approx([predicted.high])

    studied = predict_on_cluster(
        StudyCase(workload, profile, (8,), (8,), "ddp"), cluster, StudyCluster(cluster="cluster")
    )
    (largest,) = [p for p in studied.predicted.predictions if p.gpus == per_node * nodes]
    assert largest.samples_per_second == pytest.approx(predicted.samples_per_second)
    assert largest.choke == predicted.choke


@settings(max_examples=60, deadline=None)
@given(
    gpu=st.sampled_from([gpu for gpu in TRAINABLE if choose_topology(gpu, 8) == "nvswitch"]),
    model=st.sampled_from(NAMES),
    nodes=st.sampled_from([1, 3]),
)
def test_more_gpus_behind_nvswitches_never_train_slower(gpu: Gpu, model: str, nodes: int) -> None:
    network = Network(link="infiniband-ndr") if nodes > 1 else None
    cluster = build_cluster(gpu, 8, nodes, network)
    workload = Workload(name=model, model=model, batch_per_gpu=8)
    counts = [1, 2, 4, 8, *(8 * n for n in range(2, nodes + 1))]
    result = predict_cluster(workload, models().get(model), cluster, counts)
    rates = [p.samples_per_second for p in result.predictions if p.gpus <= 8]
    assert all(more >= fewer for fewer, more in pairwise(rates))
    per_gpu = [p.scaling_efficiency for p in result.predictions]
    assert all(e <= 1 + 1e-9 for e in per_gpu)


@pytest.mark.parametrize("gpu", ["rtx-2080-ti", "rtx-4090"])
def test_a_third_gpu_without_peer_access_does_not_slow_the_others_down(gpu: str) -> None:
    cluster = read_cluster(f"8x{gpu}")
    machine = MachineSpec(gpu=gpu, gpus=8, topology="dual-root")
    for place in (cluster, cluster.model_copy(update={"machine": machine})):
        workload = Workload(name="vgg16", model="vgg16", batch_per_gpu=32)
        result = predict_cluster(workload, models().get("vgg16"), place, [2, 3, 4, 8])
        rates = [p.samples_per_second for p in result.predictions]
        assert all(more >= 0.95 * fewer for fewer, more in pairwise(rates))


def test_past_the_knee_the_links_are_the_choke() -> None:
    """Eight RTX 4090 without peer access: predict and study both name PCIe."""
    workload = Workload(name="gpt2", model="gpt2", batch_per_gpu=4)
    cluster = read_cluster("8xrtx-4090")
    result = predict_cluster(workload, models().get("gpt2"), cluster, [1, 8])
    assert [p.choke for p in result.predictions] == ["gpu", "pcie"]
