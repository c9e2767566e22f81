"""Exchange options of a training script: how often, how many bytes, and in which buckets."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.errors import UserMistake
from gpuyard.predictor import (
    STRATEGIES,
    PlatformScenario,
    Prediction,
    Remedy,
    create_scenario,
    predict,
)
from gpuyard.predictor.explain.remedies import find_remedies
from gpuyard.predictor.explain.why import Why, explain
from gpuyard.predictor.strategies.base import powersgd_seconds
from gpuyard.predictor.strategies.ddp import hierarchical
from gpuyard.predictor.strategies.horovod import wait_seconds
from gpuyard.predictor.table import Buckets, Paths, StepTable, Traffic, compute_step_parts
from gpuyard.specs import Cluster, ExchangeOptions, MachineSpec, Network, StrategyName
from gpuyard.workloads import profile_model

ONE_EACH = Cluster(
    name="one GPU each",
    nodes=8,
    machine=MachineSpec(gpu="gtx-1080-ti", gpus=1),
    network=Network.model_validate({"rate": "10 Gbit/s"}),
)
FULL = Cluster(
    name="two full machines",
    nodes=4,
    machine=MachineSpec(gpu="v100-sxm2-16gb", gpus=8, topology="nvlink-hybrid-cube-mesh"),
    network=Network(link="ethernet-10g"),
)


def scenario(
    *, cluster: Cluster = ONE_EACH, strategy: StrategyName = "ddp", **chosen: Any
) -> PlatformScenario:
    spec = read_workload("vgg16")
    exchange = ExchangeOptions.model_validate(chosen)
    return create_scenario(spec, profile_model(spec), cluster, strategy=strategy, exchange=exchange)


def predicted(*, gpus: int = 8, **options: Any) -> Prediction:
    chosen_scenario = scenario(**options)
    (prediction,) = predict(
        chosen_scenario, chosen_scenario.platform.placements([gpus])
    ).predictions
    return prediction


def remedies(*, gpus: int = 8, **options: Any) -> tuple[Remedy, ...]:
    chosen_scenario = scenario(**options)
    return find_remedies(chosen_scenario, predicted(gpus=gpus, **options))


def explained(*, gpus: int = 8, **options: Any) -> Why:
    chosen_scenario = scenario(**options)
    return explain(chosen_scenario, predicted(gpus=gpus, **options))


def exposed(**chosen: Any) -> float:
    return predicted(**chosen).step.exposed_communication_seconds


def column(*values: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array(values)


def table(rows: int = 1) -> StepTable:
    """Two machines of one GPU, 1 s of compute, one link of 1 GB/s."""

    def same(value: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        return np.full(rows, value)

    return StepTable(
        traffic=TRAFFIC,
        nodes=same(2.0),
        gpus_per_node=same(1.0),
        inside_bytes_per_second=same(np.inf),
        inside_latency_seconds=same(0.0),
        between_bytes_per_second=same(1e9),
        between_latency_seconds=same(0.0),
        batch_per_gpu=same(10.0),
        fixed_seconds=same(1.0),
        seconds_per_sample=same(0.0),
        host_to_gpu_bytes_per_second=same(np.inf),
        storage_bytes_per_second=same(np.inf),
        host_overhead_seconds=same(0.0),
    )


TRAFFIC = Traffic(
    strategy=STRATEGIES["ddp"],
    buckets=Buckets(np.array([8e8]), np.array([1.0])),  # 0.8 s between two members
    input_bytes_per_sample=0.0,
    storage_bytes_per_sample=0.0,
    overlap=0.0,
    overlap_between=0.0,
    backward_share=0.6,
    variation=0.0,
    slowdown=0.0,
    slowdown_between=0.0,
    launch_seconds=0.0,
)


def test_the_core_takes_them_as_columns() -> None:
    many = replace(
        table(4),
        accumulate=column(1, 4, 1, 2),
        local_sgd=column(1, 1, 8, 2),
        sent_share=column(1, 1, 1, 0.5),
    )
    parts = compute_step_parts(many)
    # 2 · 1/2 · 0.8 GB over 1 GB/s, once in 1, 4, 8 and 4 passes, half of it in the last
    assert parts.exposed_communication_seconds == pytest.approx([0.8, 0.2, 0.1, 0.1])
    assert parts.step_seconds == pytest.approx([1.8, 1.2, 1.1, 1.1])


def test_local_sgd_hides_nothing_and_accumulation_does() -> None:
    hides = replace(TRAFFIC, overlap_between=1.0, buckets=Buckets(np.array([8e8]), np.array([0.5])))
    many = replace(table(2), traffic=hides, accumulate=column(4, 1), local_sgd=column(1, 4))
    # ready half-way through a backward of 0.6 s: 0.3 s of the 0.8 hide
    assert compute_step_parts(many).exposed_communication_seconds == pytest.approx(
        [0.5 / 4, 0.8 / 4]
    )


def test_defaults_change_nothing() -> None:
    assert predicted() == predicted(accumulate=1, local_sgd=1, hierarchical=False)


def test_an_exchange_in_n_passes_waits_an_nth() -> None:
    assert exposed(accumulate=5) == pytest.approx(exposed() / 5)
    assert predicted(accumulate=5).step.compute_seconds == predicted().step.compute_seconds


def test_samples_a_second_are_those_of_the_mean_step() -> None:
    for chosen in ({"accumulate": 3}, {"local_sgd": 4}, {"compress": "fp16"}):
        p = predicted(**chosen)
        assert p.samples_per_second == pytest.approx(8 * p.batch_per_gpu / p.step.seconds)


@pytest.mark.parametrize(
    ("chosen", "remedy"),
    [
        ({"compress": "fp16"}, "16-bit"),
        ({"compress": "bf16"}, "16-bit"),
        ({"compress": "powersgd:2"}, "PowerSGD of rank 2"),
        ({"accumulate": 4}, "accumulation"),
        ({"local_sgd": 4}, "local SGD"),
    ],
)
def test_a_chosen_remedy_keeps_its_promise(chosen: dict[str, Any], remedy: str) -> None:
    (promised,) = [r for r in remedies() if remedy in r.change]
    with_it = predicted(**chosen)
    assert with_it.samples_per_second == pytest.approx(promised.samples_per_second)
    assert promised.change not in [r.change for r in remedies(**chosen)]


def test_powersgd_costs_memory_and_compute_but_not_on_one_gpu() -> None:
    profile = profile_model(read_workload("vgg16"))
    lossy, plain = predicted(compress="powersgd:4"), predicted()
    assert lossy.memory_bytes - plain.memory_bytes == profile.gradient_bytes
    cost = float(powersgd_seconds(profile, np.array(484e9)))  # a GTX 1080 Ti's memory
    more = lossy.step.compute_seconds - plain.step.compute_seconds
    assert more == pytest.approx(cost, rel=0.01)
    alone = predicted(gpus=1, compress="powersgd:4")
    assert alone.step == predicted(gpus=1).step


def test_power_sgd_costs_a_gpu_only_where_it_exchanges() -> None:
    """Passes that only accumulate have no hook to run."""
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"compress": "powersgd:4"},
        {"compress": "powersgd:4", "accumulate": 4},
    )
    plain, every, fourth = (predicted(**chosen).step.compute_seconds for chosen in ways)
    assert fourth - plain == pytest.approx((every - plain) / 4)


def test_local_sgd_may_send_half_of_the_bytes_as_it_is_measured() -> None:
    halved = exposed(local_sgd=4, compress="fp16")
    assert 0.45 < halved / exposed(local_sgd=4) < 0.55
    seconds = remedies(local_sgd=4)
    (relief,) = [r for r in seconds if r.change == "parameters sent as 16-bit numbers"]
    chosen = predicted(local_sgd=4, compress="fp16")
    assert chosen.samples_per_second == pytest.approx(relief.samples_per_second)
    assert not any("bucket_cap_mb" in r.change for r in seconds)


def test_a_larger_rank_sends_more() -> None:
    assert exposed(compress="powersgd:1") < exposed(compress="powersgd:64")


def test_requested_bucket_sizes_are_used() -> None:
    drawn = explained(bucket=2.0**30).timeline.lane("exchange")
    assert len(drawn) == 2  # the first of 1 MiB, closed by a layer, then all the rest
    profile = profile_model(read_workload("vgg16"))
    assert sum(bar.size_bytes or 0 for bar in drawn) == profile.gradient_bytes


def test_a_time_line_shows_the_step_that_exchanges() -> None:
    p = predicted(accumulate=4, compress="fp16")
    why = explained(accumulate=4, compress="fp16")
    (tail,) = [bar for bar in why.timeline.bars if bar.name == "exposed exchange"]
    lasts = tail.end_seconds - tail.start_seconds
    assert lasts == pytest.approx(4 * p.step.exposed_communication_seconds)
    assert "one step in 4" in why.timeline.note
    assert any("one exchange in 4 steps" in sentence for sentence in why.sentences)
    sent = sum(bar.size_bytes or 0 for bar in why.timeline.lane("exchange"))
    assert sent == pytest.approx(profile_model(read_workload("vgg16")).gradient_bytes / 2)


@pytest.mark.parametrize(
    ("strategy", "chosen", "says"),
    [
        ("dataparallel", {"accumulate": 2}, "accumulate needs ddp or horovod"),
        ("parameter-server", {"bucket": 1e6}, "bucket_mb needs ddp or horovod"),
        ("parameter-server", {"compress": "powersgd:2"}, "PowerSGD is an all-reduce hook"),
    ],
)
def test_unsupported_options_are_errors(
    strategy: StrategyName, chosen: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserMistake, match=says):
        predicted(gpus=1, strategy=strategy, **chosen)


def test_two_levels_by_hand() -> None:
    """Two machines of 4 GPUs, 1 GB: 1.5 GB/s·s inside at 10 GB/s, 1 GB at 1 GB/s between."""
    paths = Paths(
        nodes=column(2.0, 1.0),
        gpus_per_node=column(4.0, 4.0),
        inside_bytes_per_second=column(10e9, 10e9),
        inside_latency_seconds=column(1e-3, 1e-3),
        between_bytes_per_second=column(1e9, np.inf),
        between_latency_seconds=column(1e-2, 0.0),
    )
    seconds = hierarchical(paths, 1e-4)(np.array(1e9))
    # 3 launches, 2·3 hops inside, 2·1 between, then the bytes
    assert seconds[0] == pytest.approx(3e-4 + 6e-3 + 2e-2 + 2 * 3 / 4 * 0.1 + 2 * 1 / 2 * 1.0)
    assert np.isinf(seconds[1])


def test_two_levels_save_most_between_two_machines() -> None:
    def gain(nodes: int) -> float:
        flat, levels = (
            exposed(cluster=FULL, gpus=8 * nodes, hierarchical=h) for h in (False, True)
        )
        return flat / levels

    assert gain(2) > gain(4) > 1
    (relief,) = [r for r in remedies(cluster=FULL, gpus=16) if "hierarchical" in r.change]
    chosen = predicted(cluster=FULL, gpus=16, hierarchical=True)
    assert chosen.samples_per_second == pytest.approx(relief.samples_per_second)


def test_horovod_waits_half_a_cycle_and_a_negotiation() -> None:
    paths = Paths(
        nodes=column(1.0, 1.0, 4.0),
        gpus_per_node=column(1.0, 2.0, 4.0),
        inside_bytes_per_second=column(1e10, 1e10, 1e10),
        inside_latency_seconds=column(1e-5, 1e-5, 1e-5),
        between_bytes_per_second=column(np.inf, np.inf, 1e9),
        between_latency_seconds=column(0.0, 0.0, 1e-4),
    )
    # nobody to wait for; there and back over one hop; there and back over log2(16) hops
    assert wait_seconds(paths) == pytest.approx([0.0, 0.5e-3 + 2e-5, 0.5e-3 + 8e-4])
