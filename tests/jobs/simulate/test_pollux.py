"""The Pollux paper's simulations, reproduced: its baselines within 5%, and min-time against them."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import UserMistake
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.trace import TraceJob
from gpuyard.jobs.simulate.traces.pollux import POOL, BatchChoice, read_application, read_pollux
from gpuyard.jobs.simulate.work import pack_gpus
from gpuyard.policies import JobView, get_policy

TRACES = Path(__file__).parents[3] / "examples/traces/pollux"
TIRESIAS, OPTIMUS, POLLUX = 3469.7, 5301.9, 2446.1  # published means for this workload, seconds


@cache
def mean(policy: str, batch: BatchChoice = "user") -> float:
    trace = read_pollux(TRACES / "workload-6.csv", TRACES, batch)
    return float(simulate(trace, get_policy(policy), POOL).completion_seconds.mean())


def test_tiresias_agrees_with_the_published_mean() -> None:
    assert mean("tiresias") == pytest.approx(TIRESIAS, rel=0.05)


def test_optimus_agrees_with_the_published_mean() -> None:
    assert mean("optimus") == pytest.approx(OPTIMUS, rel=0.05)


def test_min_time_beats_both_with_the_users_batch() -> None:
    assert mean("min-time") < 0.8 * TIRESIAS


def test_min_time_beats_pollux_if_it_may_choose_the_batch_too() -> None:
    assert mean("min-time", "adaptive") < POLLUX


@pytest.mark.parametrize(("batch", "beaten"), [("user", TIRESIAS), ("adaptive", POLLUX)])
def test_min_time_still_wins_with_work_estimates_wrong_by_up_to_four_times(
    batch: BatchChoice, beaten: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_view, informed = TraceJob.view, mean("min-time", batch)

    def wrong_view(job: TraceJob, *state: Any, **more: Any) -> JobView:
        view = true_view(job, *state, **more)
        factor = 4 ** random.Random(job.id).uniform(-1, 1)
        return replace(view, remaining_work=factor * view.remaining_work)

    monkeypatch.setattr(TraceJob, "view", wrong_view)
    trace = read_pollux(TRACES / "workload-6.csv", TRACES, batch)
    reached = simulate(trace, get_policy("min-time"), POOL).completion_seconds.mean()
    assert reached != informed
    assert reached < 0.8 * beaten


def test_a_measured_placement_is_not_interpolated() -> None:
    bert = read_application(TRACES / "bert")
    split = bert.split(4, np.array([48.0]))
    assert (split.local[0], split.accumulations[0]) == (12, 0)
    measured = bert.placements["13"].interpolate(np.array([12.0]))[0]
    assert bert.step_seconds((3, 1), split) == measured


def test_a_batch_that_does_not_fit_is_accumulated_over_several_passes() -> None:
    bert = read_application(TRACES / "bert")
    split = bert.split(2, np.array([96.0]))
    assert (split.local[0], split.accumulations[0], split.total[0]) == (12, 3, 96)
    step, sync = bert.placements["2"].interpolate(np.array([12.0]))
    assert bert.step_seconds((2,), split)[0] == pytest.approx((step + 3 * (step - sync))[0])


def test_one_gpu_above_the_smallest_batch_accumulates_at_least_once() -> None:
    split = read_application(TRACES / "cifar10").split(1, np.array([128.0, 256.0]))
    assert split.accumulations.tolist() == [0, 1]
    assert split.local.tolist() == [128, 128]


def test_a_batch_that_cannot_be_split_evenly_does_not_exceed_the_measured_ones() -> None:
    split = read_application(TRACES / "cifar10").split(12, np.array([4096.0]))
    assert (split.local[0], split.total[0]) == (341, 4092)


def test_step_times_are_interpolated_between_numbers_of_nodes() -> None:
    cifar = read_application(TRACES / "cifar10")
    local = np.array([64.0])
    four, five, six = (cifar._interpolate((4,) * nodes, local)[0][0] for nodes in (4, 5, 6))
    assert five == pytest.approx((four + six) / 2, rel=0.05)


def test_a_larger_batch_counts_more_but_less_than_its_size() -> None:
    gains = read_application(TRACES / "imagenet").gains(np.array([200.0, 400.0, 3200.0]))
    assert gains[0] == pytest.approx(1.0)
    assert ((gains[1] > 1) & (gains[1] < 2)).all()
    assert ((gains[2] > gains[1]) & (gains[2] < 16)).all()


def test_gpus_are_packed_onto_as_few_machines_as_possible() -> None:
    assert pack_gpus(10, 4) == (4, 4, 2)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("a,0,resnet,1,128", "2: "),
        ("a,-1,cifar10,1,128", "2: time: expected 0 to"),
        ("a,0,cifar10,1,1", "2: batch_size: expected 128 to 4096, got '1'"),
        ("a,0,cifar10,1.5,128", "2: num_replicas: expected a whole number"),
        ("a,0,cifar10,nan,128", "2: num_replicas: expected 1 to"),
        ("a,0,ncf,1,256\na,0,ncf,1,256", "3: name: 'a' is already in line 2"),
        ("a,0,cifar10", "2: 3 cells"),
    ],
)
def test_a_mistake_is_reported_with_its_line(cell: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(f"name,time,application,num_replicas,batch_size\n{cell}\n")
    with pytest.raises(UserMistake) as caught:
        read_pollux(file, TRACES)
    assert f"jobs.csv:{words}" in str(caught.value)


def test_missing_measurements_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"placements\.csv"):
        read_pollux(TRACES / "workload-6.csv", tmp_path)
