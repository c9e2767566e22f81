"""Changes written in words, and their effect on machines, jobs, and policies."""

from pathlib import Path

import numpy as np
import pytest

from gpuyard.catalog import models
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.clusters import read_cluster
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.traces import read_trace
from gpuyard.jobs.simulate.what_if import (
    Change,
    SimulationCase,
    Speedup,
    change_network,
    compare_networks,
    parse_change,
    parse_network,
)
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.policies import Pool, get_policy
from gpuyard.policies.curve import Curve
from gpuyard.specs import Network, Workload

RECORDED = Path(__file__).parent / "recorded"


def no_network(network: str, workload: str) -> Speedup:
    raise AssertionError(network, workload)


def case(trace: Trace | None = None, pool: Pool | None = None) -> SimulationCase:
    return SimulationCase(
        "now", trace or Trace("none", ()), pool or Pool.uniform(2, 4), get_policy("fifo")
    )


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("add 8 gpus", Change("add 8 gpus", gpus=8)),
        ("Add  1 GPU", Change("Add 1 GPU", gpus=1)),
        ("remove 2 machines", Change("remove 2 machines", machines=-2)),
        ("add 1 node, add 2 nodes", Change("add 1 node, add 2 nodes", machines=3)),
        ("network 25 Gbit/s", Change("network 25 Gbit/s", network="25 Gbit/s")),
        ("policy=min-time", Change("policy=min-time", policy="min-time")),
        ("add 4 gpus, policy = fifo", Change("add 4 gpus, policy = fifo", gpus=4, policy="fifo")),
    ],
)
def test_changes_are_parsed(text: str, change: Change) -> None:
    assert parse_change(text) == change


@pytest.mark.parametrize(
    "text", ["", "add", "add 0 gpus", "add 8", "policy=", "add 999999 gpus", "8"]
)
def test_an_invalid_change_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(UserMistake, match="'add 8 gpus'"):
        parse_change(text)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("add 8 gpus", (4, 4, 4, 4)),
        ("add 6 gpus", (4, 4, 4, 2)),
        ("add 1 machine", (4, 4, 4)),
        ("remove 1 machine", (4,)),
        ("remove 5 gpus", (3,)),
        ("remove 1 machine, add 1 gpu", (4, 1)),
    ],
)
def test_machines_are_added_and_removed(text: str, gpus: tuple[int, ...]) -> None:
    changed = parse_change(text).apply(case(), no_network)
    assert changed.pool.gpus_by_machine == gpus
    assert changed.name == text
    racked = case(pool=Pool.uniform(2, 4, per_rack=1))
    racks = parse_change(text).apply(racked, no_network).pool.racks
    assert racks is not None
    assert len(racks) == len(changed.pool.gpus_by_machine)


def test_more_gpus_cannot_be_removed_than_exist() -> None:
    with pytest.raises(UserMistake, match="only 8 GPUs"):
        parse_change("remove 2 machines").apply(case(), no_network)


def test_the_policy_is_changed_and_an_unknown_one_gets_a_suggestion() -> None:
    assert parse_change("policy=min-time").apply(case(), no_network).policy.name == "min-time"
    with pytest.raises(UnknownName, match="did you mean 'min-time'"):
        parse_change("policy=mintime").apply(case(), no_network)


def test_a_network_speeds_up_only_jobs_on_several_machines() -> None:
    curve = Curve(np.array([0.0, 1, 2, 3, 4, 5]), lambda shape: sum(shape) / len(shape))
    jobs = (
        TraceJob("a", 0.0, SteadyWork(100, curve)),
        TraceJob("b", 1.0, SteadyWork(50, curve)),
        TraceJob("c", 2.0, SteadyWork(50, curve), workload="bert"),
    )
    speedups = {"": 1.5, "bert": 2.0}
    trace = change_network(
        Trace("t", jobs), Pool.uniform(2, 4), lambda name: lambda _: speedups[name]
    )
    after = trace.jobs[0].work.curve(0.0)
    assert list(after.packed) == [0, 1, 2, 3, 4, 7.5]
    assert after.speed_on((3,)) == 3
    assert after.speed_on((3, 1)) == 3
    assert trace.jobs[1].work.curve(0.0) is after, "a shared curve must stay shared"
    assert trace.jobs[2].work.curve(0.0).speed(5) == 10


def test_the_speedup_of_a_network_is_predicted() -> None:
    spec = Workload(name="bert", model="bert-large", batch_per_gpu=8)
    slow = read_cluster("4x2xv100-sxm2-16gb@1G")
    profile = models().get("bert-large")
    speedups = [
        compare_networks(spec, profile, slow, parse_network(text, slow.network))((2, 2))
        for text in ("1 Gbit/s", "10 Gbit/s", "25 Gbit/s", "infiniband-hdr")
    ]
    assert speedups[0] == pytest.approx(1.0)
    assert speedups == sorted(speedups)
    assert speedups[1] > 3
    alone = read_cluster("dgx-a100")
    with pytest.raises(UserMistake, match="no network"):
        compare_networks(spec, profile, alone, parse_network("10 Gbit/s", None))


def test_a_rate_keeps_the_other_properties_of_the_network() -> None:
    before = Network.model_validate(
        {"rate": "10 Gbit/s", "latency": "30 us", "oversubscription": 2, "rails": 4}
    )
    after = parse_network("25 Gbit/s", before)
    assert (after.rate, after.latency, after.oversubscription) == (25e9 / 8, before.latency, 2)
    assert after.rails == 1
    with pytest.raises(UnknownName, match="did you mean 'infiniband-hdr'"):
        parse_network("infiniband-hdx", before)
    with pytest.raises(UserMistake, match="rate"):
        parse_network("25 bananas", before)


def test_a_slurm_history_is_read_completely_and_simulated_as_it_was() -> None:
    trace = read_trace(RECORDED / "sacct-22.05.txt")
    by_id = {job.id: job for job in trace.jobs}
    assert len(trace.jobs) == 28
    assert {"6_0", "6_3"} <= by_id.keys(), "an array"
    assert not {"19", "22", "1.batch"} & by_id.keys(), "canceled, without GPUs, and a step"
    assert (by_id["5"].requested_gpus, by_id["5"].user, by_id["5"].group) == (4, "root", "speech")
    assert by_id["7"].recorded_wait_s == 141
    reality = np.mean(
        [job.recorded_wait_s for job in trace.jobs if job.recorded_wait_s is not None]
    )
    outcome = simulate(trace, get_policy("fifo"), Pool.uniform(2, 4))
    simulated = float((outcome.started_s - outcome.submitted_s).mean())
    assert simulated == pytest.approx(float(reality), rel=0.1)


def test_a_delimiter_in_a_column_before_the_last_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "sacct.txt"
    file.write_text(
        "JobID|JobName|Submit|Start|End|AllocTRES\n"
        "1|a|b|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:01:00|gres/gpu=1\n"
    )
    with pytest.raises(UserMistake, match=r"sacct\.txt:2: 7 cells"):
        read_trace(file)
