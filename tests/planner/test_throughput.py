"""The planner's table gives what `gpuyard predict` gives, one by one."""

from typing import cast

import numpy as np
import pytest

from gpuyard.catalog import gpus, models
from gpuyard.planner.machine_shapes import MachineShape, _compute_rates_once, compute_machine_rates
from gpuyard.planner.throughput import Grid, Throughputs, find_compute_lines, predict_shapes
from gpuyard.planner.training import DataParallel
from gpuyard.predictor import create_scenario, predict, predict_cluster
from gpuyard.predictor.explain.remedies import list_proposals
from gpuyard.predictor.placement import Placement
from gpuyard.specs import Cluster, MachineSpec, Network, Precision, Workload
from gpuyard.specs.plan_candidates import RemedyName
from tests.conftest import MakeCalibration
from tests.planner.builder import candidates, offer, plan, workload

PROFILE = models().get("resnet50")
WORKLOAD = Workload(name="r", model="resnet50", precision="fp16", batch_per_gpu=64)
SHAPES = [
    MachineShape(gpus().get("v100-sxm2-16gb"), 8, "nvlink-hybrid-cube-mesh", None),
    MachineShape(gpus().get("v100-sxm2-16gb"), 8, "nvlink-hybrid-cube-mesh", Network(link="ethernet-25g")),
    MachineShape(gpus().get("h100-sxm5-80gb"), 8, "nvswitch", Network(link="infiniband-ndr", rails=8)),
    MachineShape(gpus().get("rtx-4090"), 1, "workstation", None),
    MachineShape(gpus().get("rtx-4090"), 4, "workstation", Network.model_validate(
        {"rate": "10 Gbit/s", "per_flow": "5 Gbit/s", "latency": "40 us"})),
]  # fmt: skip


def predict_all(remedies: tuple[RemedyName, ...] = ("none",)) -> Throughputs:
    lines = find_compute_lines(WORKLOAD, PROFILE, [shape.gpu for shape in SHAPES])
    return predict_shapes(WORKLOAD, PROFILE, SHAPES, lines, Grid((1, 2, 5), (32, 64), remedies))


def cluster(shape: MachineShape, nodes: int) -> Cluster:
    machine = MachineSpec(gpu=shape.gpu.id, gpus=shape.gpus, topology=shape.topology)
    return Cluster(name="c", nodes=nodes, machine=machine, network=shape.network)


def test_every_row_equals_a_prediction() -> None:
    table = predict_all()
    assert table.rows == 2 + 4 + 4 + 2 + 4
    for i in range(table.rows):
        shape = SHAPES[table.shape[i]]
        nodes, batch = int(table.nodes[i]), int(table.batch_per_gpu[i])
        (p,) = predict_cluster(
            WORKLOAD, PROFILE, cluster(shape, nodes), [nodes * shape.gpus], batches=[batch]
        ).predictions
        assert table.samples_per_second[i] == pytest.approx(p.samples_per_second)
        assert table.low[i] == pytest.approx(p.low)
        assert table.high[i] == pytest.approx(p.high)
        assert table.scaling_efficiency[i] == pytest.approx(p.scaling_efficiency)
        assert table.memory_bytes[i] == pytest.approx(p.memory_bytes)


@pytest.mark.parametrize(
    ("remedy", "words"),
    [("fp16-gradients", "16-bit"), ("accumulation", "accumulation"), ("powersgd", "PowerSGD")],
)
def test_remedies_are_those_of_relief(remedy: RemedyName, words: str) -> None:
    table = predict_all(("none", remedy))
    checked = 0
    for i in np.flatnonzero((table.remedy == 1) & (table.batch_per_gpu == 64)):
        shape, nodes = SHAPES[table.shape[i]], int(table.nodes[i])
        here = Placement(nodes * shape.gpus, nodes, shape.gpus)
        scenario = create_scenario(WORKLOAD, PROFILE, cluster(shape, nodes))
        (proposal,) = [p for p in list_proposals(scenario, here) if words in p.change]
        assert table.samples_per_second[i] == pytest.approx(proposal.rate(here))
        checked += 1
    assert checked == 7


def test_each_precision_is_a_row_that_equals_a_prediction() -> None:
    spec = WORKLOAD.model_copy(update={"precision": None})
    precisions: tuple[Precision, ...] = ("tf32", "fp32", "bf16")
    lines = find_compute_lines(
        spec, PROFILE, [shape.gpu for shape in SHAPES], precisions=precisions
    )
    assert list(lines["v100-sxm2-16gb"]) == ["fp32", "bf16"]
    assert list(lines["h100-sxm5-80gb"]) == ["tf32", "fp32", "bf16"]
    table = predict_shapes(spec, PROFILE, SHAPES, lines, Grid((1, 2), (64,), ("none", "powersgd")))
    assert table.rows == (2 + 2) * 2 + 2 * 3 + 3 + 2 * 3
    for i in np.flatnonzero(table.remedy == 0):
        shape, nodes = SHAPES[table.shape[i]], int(table.nodes[i])
        trained = spec.model_copy(
            update={"precision": list(lines[shape.gpu.id])[table.precision[i]]}
        )
        (p,) = predict_cluster(
            trained, PROFILE, cluster(shape, nodes), [nodes * shape.gpus]
        ).predictions
        assert table.samples_per_second[i] == pytest.approx(p.samples_per_second)
        assert table.scaling_efficiency[i] == pytest.approx(p.scaling_efficiency)
        assert table.memory_bytes[i] == pytest.approx(p.memory_bytes)


def test_an_empty_list_of_shapes_gives_no_rows() -> None:
    assert predict_shapes(WORKLOAD, PROFILE, [], {}, Grid((1, 2), (32,), ("none",))).rows == 0


def test_a_long_table_is_predicted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = predict_all(("none", "powersgd"))
    monkeypatch.setattr("gpuyard.predictor.table.CHUNK_ROWS", 5)
    parts = predict_all(("none", "powersgd"))
    assert np.array_equal(parts.samples_per_second, whole.samples_per_second)
    assert np.array_equal(parts.low, whole.low)


def test_strategies_are_part_of_the_combinations() -> None:
    lines = find_compute_lines(WORKLOAD, PROFILE, [shape.gpu for shape in SHAPES])
    grid = Grid((1, 2), (64,), ("none",), strategy="parameter-server")
    table = predict_shapes(WORKLOAD, PROFILE, SHAPES, lines, grid)
    row = int(np.flatnonzero((table.shape == 1) & (table.nodes == 2))[0])
    (p,) = predict_cluster(
        WORKLOAD, PROFILE, cluster(SHAPES[1], 2), [16], strategy="parameter-server"
    ).predictions
    assert table.samples_per_second[row] == pytest.approx(p.samples_per_second)


def test_accumulation_sees_more_samples_an_update() -> None:
    table = predict_all(("none", "accumulation"))
    plain, gathered = (table.update_samples[table.remedy == code] for code in (0, 1))
    assert plain.max() * 4 == gathered.max()


def test_one_gpu_needs_no_remedy() -> None:
    table = predict_all(("none", "fp16-gradients", "powersgd"))
    assert set(table.remedy[table.gpus == 1]) == {0}


@pytest.mark.parametrize("gpu", ["h100-sxm5-80gb", "rtx-5090", "p100-pcie-16gb", "l40s", "mi300x"])
def test_gpus_with_the_same_wiring_have_the_same_links(gpu: str) -> None:
    shared = compute_machine_rates(gpus().get(gpu), 4, "dual-root")
    assert shared == _compute_rates_once(gpu, 4, "dual-root")


def test_only_gpus_without_any_rate_are_left_out() -> None:
    gpu_list = [gpus().get(name) for name in ("gtx-1080-ti", "t4", "tpu-v4")]
    assert set(find_compute_lines(WORKLOAD, PROFILE, gpu_list)) == {"gtx-1080-ti", "t4"}


def test_a_calibration_gives_the_speed_of_one_gpu(make_calibration: MakeCalibration) -> None:
    calibration = make_calibration("v100-sxm2-16gb", "fp16")
    gpu_list = [gpus().get("v100-sxm2-16gb"), gpus().get("h100-sxm5-80gb")]
    lines = find_compute_lines(WORKLOAD, PROFILE, gpu_list, calibration)
    assert lines["v100-sxm2-16gb"]["fp16"].basis == "measured"
    assert lines["v100-sxm2-16gb"]["fp16"].seconds_per_sample == 0.001
    assert lines["h100-sxm5-80gb"]["fp16"].basis == "scaled"
    assert (
        find_compute_lines(WORKLOAD, PROFILE, gpu_list)["v100-sxm2-16gb"]["fp16"].basis
        == "published"
    )


def test_figures_of_several_gpus_and_the_framework_are_used_as_in_predict() -> None:
    figures = [
        *({"gpu": "v100-sxm2-16gb", "batch_per_gpu": b, "samples_per_second": 1000} for b in (32, 64)),
        {"gpu": "v100-sxm2-16gb", "gpus": 8, "batch_per_gpu": 64, "samples_per_second": 6000},
        {"gpu": "v100-sxm2-16gb", "gpus": 16, "nodes": 2, "network": "100 Gbit/s",
         "batch_per_gpu": 64, "samples_per_second": 9000},
        # on some network or other: a plan compares networks
        {"gpu": "v100-sxm2-16gb", "gpus": 16, "nodes": 2, "batch_per_gpu": 32, "samples_per_second": 10},
    ]  # fmt: skip
    kinds: list[dict[str, object]] = [{"measured": figures}]
    kinds += [{"framework": name} for name in ("tf-distribute", "apex", "jax")]
    for changes in kinds:
        trained = workload(**changes)
        spec = plan(
            offer("eight", rent="$3/h", gpus=8, topology="nvlink-hybrid-cube-mesh", network={"rate": "100 Gbit/s"}),
            offer("slow", rent="$3/h", gpus=8, topology="nvlink-hybrid-cube-mesh", network={"rate": "10 Gbit/s"}),
            workload=trained,
            search={"ways": ["on-demand"], "nodes": [1, 2, 4], "batch": [64], "remedies": ["none", "fp16-gradients"]},
        )  # fmt: skip
        table = candidates(spec)
        for number in range(len(table)):
            row, offered = table.row[number], table.offers[table.offer[number]]
            remedy = table.grid.remedies[table.throughputs.remedy[row]]
            assert isinstance(table.training, DataParallel)
            scenario = table.training.create_scenario(
                offered.shape, cast("Precision", table.precision(number)), remedy
            )
            nodes = int(table.throughputs.nodes[row])
            (same,) = predict(scenario, scenario.platform.placements([8 * nodes]), [64]).predictions
            for actual, expected in (
                (table.throughputs.samples_per_second, same.samples_per_second),
                (table.throughputs.low, same.low),
                (table.throughputs.high, same.high),
                (table.throughputs.scaling_efficiency, same.scaling_efficiency),
            ):
                assert actual[row] == pytest.approx(expected, rel=1e-6), (
                    changes,
                    offered.server.id,
                    nodes,
                )
            assert (same.before is None) == (changes.get("framework") == "jax")
            if "measured" in changes and remedy == "none" and nodes == 1:
                assert same.samples_per_second == pytest.approx(6000, rel=1e-3)
            if "measured" in changes and remedy == "none" and nodes == 2:
                same_network = offered.server.id.endswith("eight")
                assert (abs(same.samples_per_second / 9000 - 1) < 1e-3) == same_network
