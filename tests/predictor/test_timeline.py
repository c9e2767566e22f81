"""The timeline of a step agrees with the prediction, bar by bar."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.catalog import models
from gpuyard.catalog.specfiles import read_workload
from gpuyard.draw.timeline import draw_timeline_lines, draw_timeline_svg
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor import STRATEGIES, Prediction, create_scenario, predict
from gpuyard.predictor.explain.timeline import Bar, StepTimeline, build_timeline
from gpuyard.predictor.explain.why import explain
from gpuyard.predictor.table import Buckets, StepTable, Traffic, compute_step_parts
from gpuyard.specs import StrategyName
from gpuyard.workloads import profile_model

EXAMPLES = Path(__file__).parents[2] / "examples"


def drawn(
    workload: str, cluster: str, gpus: int, strategy: StrategyName = "ddp"
) -> tuple[Prediction, StepTimeline]:
    spec, place = read_workload(workload, EXAMPLES), read_cluster(cluster, EXAMPLES)
    scenario = create_scenario(spec, profile_model(spec), place, strategy=strategy)
    (prediction,) = predict(scenario, scenario.platform.placements([gpus])).predictions
    return prediction, explain(scenario, prediction).timeline


def table(
    traffic: Traffic,
    *,
    nodes: float,
    gpus_per_node: float,
    fixed: float,
    rate: float,
    storage: float,
    host: float,
) -> StepTable:
    def column(value: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        return np.array([value])

    return StepTable(
        traffic=traffic,
        nodes=column(nodes),
        gpus_per_node=column(gpus_per_node),
        inside_bytes_per_second=column(10 * rate),
        inside_latency_seconds=column(5e-6),
        between_bytes_per_second=column(rate if nodes > 1 else np.inf),
        between_latency_seconds=column(3e-5 if nodes > 1 else 0.0),
        batch_per_gpu=column(32.0),
        fixed_seconds=column(fixed),
        seconds_per_sample=column(1e-3),
        host_to_gpu_bytes_per_second=column(1e10),
        storage_bytes_per_second=column(storage),
        host_overhead_seconds=column(host),
    )


@st.composite
def steps(draw: st.DrawFn) -> StepTable:
    count = draw(st.integers(0, 12))
    sizes = draw(st.lists(st.floats(1e3, 4e8), min_size=count, max_size=count))
    shares = draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    traffic = Traffic(
        strategy=STRATEGIES[draw(st.sampled_from(get_args(StrategyName)))],
        buckets=Buckets(np.array(sizes), np.sort(np.array(shares))),
        input_bytes_per_sample=6e5,
        storage_bytes_per_sample=1e5,
        overlap=draw(st.floats(0, 1)),
        overlap_between=draw(st.floats(0, 1)),
        backward_share=draw(st.floats(0.1, 0.9)),
        variation=draw(st.floats(0, 0.2)),
        slowdown=draw(st.floats(0, 0.1)),
        slowdown_between=draw(st.floats(0, 0.1)),
        launch_seconds=3e-5,
    )
    return table(
        traffic,
        nodes=draw(st.integers(1, 64)),
        gpus_per_node=draw(st.integers(1, 8)),
        fixed=draw(st.floats(1e-4, 1.0)),
        rate=draw(st.floats(1e7, 1e11)),
        storage=draw(st.one_of(st.just(np.inf), st.floats(1e6, 1e10))),
        host=draw(st.sampled_from([0.0, 0.01])),
    )


@given(steps())
def test_it_ends_with_the_step_and_its_bars_follow_each_other(step: StepTable) -> None:
    line = build_timeline(step)
    assert line.step_seconds == pytest.approx(float(compute_step_parts(step).step_seconds[0]))
    now = 0.0
    for bar in (*line.lane("compute"), *line.lane("wait")):
        assert bar.start_seconds == pytest.approx(now)
        now = bar.end_seconds
    assert now == pytest.approx(line.step_seconds)
    for bar in line.bars:
        assert 0 <= bar.start_seconds <= bar.end_seconds <= line.step_seconds * (1 + 1e-9)


@given(steps())
def test_buckets_never_share_the_link_nor_leave_before_they_are_full(step: StepTable) -> None:
    line = build_timeline(step)
    free = 0.0
    for bar in line.lane("exchange"):
        assert bar.ready_seconds is not None
        assert bar.start_seconds >= max(free, bar.ready_seconds)
        free = bar.end_seconds
    assert line.stretch >= 1 - 1e-9


@given(steps())
def test_the_last_bucket_ends_with_the_exposed_tail(step: StepTable) -> None:
    line = build_timeline(step)
    tail = next((bar for bar in line.lane("wait") if bar.name == "exposed exchange"), None)
    if tail is not None and line.lane("exchange"):
        assert line.lane("exchange")[-1].end_seconds == pytest.approx(tail.end_seconds)


@pytest.mark.parametrize(
    ("workload", "cluster", "gpus", "strategy"),
    [
        ("resnet50", "ethernet.cluster.yaml", 8, "ddp"),
        ("resnet50", "apollo.cluster.yaml", 32, "horovod"),
        ("vgg16", "workstation.cluster.yaml", 4, "dataparallel"),
        ("vgg16", "apollo.cluster.yaml", 16, "parameter-server"),
        ("spoken-digits-linear.workload.yaml", "apollo.cluster.yaml", 32, "ddp"),
        ("gpt2", "dgx-a100", 1, "ddp"),
    ],
)
def test_the_timeline_agrees_with_the_prediction(
    workload: str, cluster: str, gpus: int, strategy: StrategyName
) -> None:
    prediction, line = drawn(workload, cluster, gpus, strategy)
    assert line.step_seconds == pytest.approx(prediction.step.seconds)
    backward: Bar = line.lane("compute")[-1]
    assert backward.end_seconds == pytest.approx(prediction.step.compute_seconds)
    waited = {bar.name: bar.end_seconds - bar.start_seconds for bar in line.lane("wait")}
    exposed = waited.get("exposed exchange", 0.0) + waited.get("host", 0.0)
    assert exposed == pytest.approx(prediction.step.exposed_communication_seconds)
    assert waited.get("input", 0.0) == pytest.approx(prediction.step.input_seconds)
    if gpus > 1:
        sent = sum(bar.size_bytes or 0.0 for bar in line.lane("exchange"))
        spec = read_workload(workload, EXAMPLES)
        assert sent == pytest.approx(profile_model(spec).gradient_bytes)
    else:
        assert not line.lane("exchange")


def test_a_note_explains_stretched_buckets() -> None:
    _, line = drawn("resnet50", "ethernet.cluster.yaml", 8)
    assert line.stretch > 1.02
    assert f"{line.stretch:.2f} × as long" in line.note
    ideal = build_timeline(ideal_step())
    assert ideal.stretch == pytest.approx(1)
    assert ideal.note == ""


def ideal_step() -> StepTable:
    traffic = Traffic(
        strategy=STRATEGIES["ddp"],
        buckets=Buckets(np.array([1e6, 2.5e7, 5e6]), np.array([0.1, 0.6, 1.0])),
        input_bytes_per_sample=0.0,
        storage_bytes_per_sample=0.0,
        overlap=1.0,
        overlap_between=1.0,
        backward_share=0.6,
        variation=0.0,
        slowdown=0.0,
        slowdown_between=0.0,
        launch_seconds=0.0,
    )
    return table(traffic, nodes=4, gpus_per_node=1, fixed=0.1, rate=1e9, storage=np.inf, host=0.0)


def test_a_layer_larger_than_a_bucket_is_one() -> None:
    """VGG-16's first fully connected layer holds three quarters of its gradients."""
    _, line = drawn("vgg16", "ethernet.cluster.yaml", 8)
    largest = max(layer.gradient_bytes for layer in models().get("vgg16").layers)
    assert max(bar.size_bytes or 0.0 for bar in line.lane("exchange")) >= largest


def test_the_drawing_has_the_times_of_the_terminal() -> None:
    """Rounded to three digits, the last bucket of VGG-16 would start when it ends."""
    _, line = drawn("vgg16", "ethernet.cluster.yaml", 8)
    picture = draw_timeline_svg(line, "a step")
    printed = [text for text, lane in draw_timeline_lines(line, 80) if lane]
    assert len(printed) > 6
    for text in printed:
        *_, first, _, last, unit = text.split()
        assert f"{first} – {last} {unit}<" in picture
