"""Advice on checkpoints from a job's own times."""

import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.economics.goodput import daly_interval_hours
from gpuyard.jobs.checkpoint_interval import advise_checkpoints
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.job_runs.summary import build_job_runs
from gpuyard.report.answers.jobs.status import describe_checkpoints
from gpuyard.reporting.windows import StepWindow


def create_window(**more: object) -> StepWindow:
    return StepWindow(steps=100, samples=6400, seconds=3600, step_seconds=36, **more)  # type: ignore[arg-type]


def test_a_job_without_checkpoints_gets_no_advice() -> None:
    assert advise_checkpoints([create_window()], gpus=8) is None


def test_the_interval_follows_from_the_jobs_own_times() -> None:
    testbed = {"gpus": ("NVIDIA H100 80GB HBM3",)}
    windows = [
        create_window(start="a", startup_seconds=100.0, testbed=testbed, checkpoints=2,
                      checkpoint_seconds=80.0),
        create_window(start="a", checkpoints=2, checkpoint_seconds=90.0),
        create_window(start="b", startup_seconds=140.0, checkpoints=2, checkpoint_seconds=400.0),
    ]  # fmt: skip
    advice = advise_checkpoints(windows, gpus=64)
    assert advice is not None
    assert advice.goodput.checkpoint_seconds == 45.0  # the median: one disk was busy
    assert advice.goodput.restart_seconds == 120.0
    hours = 54 * 24 * 16_384 / 419 / 64
    assert advice.goodput.interval_seconds == pytest.approx(
        3600 * float(daly_interval_hours(45 / 3600, 1 / hours)), rel=1e-3
    )
    assert advice.every_seconds == pytest.approx((3 * 3600 - 570) / 6)
    assert advice.own_goodput is not None
    assert advice.own_goodput <= advice.goodput.share
    sentence = describe_checkpoints(advice.as_json())
    assert "28 min" in sentence
    assert "45 s" in sentence


def test_before_its_first_checkpoint_a_job_learns_from_past_runs_of_its_workload() -> None:
    def run(seconds: float | None) -> JobRun:
        windows = [
            create_window(start="a", startup_seconds=100.0, checkpoints=2 if seconds else 0,
                          checkpoint_seconds=2 * (seconds or 0.0)),
        ]  # fmt: skip
        (built,) = build_job_runs(windows, read_workload("resnet50"))
        return built

    past = [run(seconds) for seconds in (40.0, 50.0, None)]
    assert [(each.checkpoint_seconds, each.startup_seconds) for each in past] == [
        (40.0, 100.0), (50.0, 100.0), (None, 100.0),
    ]  # fmt: skip
    advice = advise_checkpoints([create_window()], gpus=8, past=past)
    assert advice is not None
    assert advice.goodput.checkpoint_seconds == 45.0
    assert advice.goodput.restart_seconds == 100.0
    assert (advice.every_seconds, advice.own_goodput, advice.past_runs) == (None, None, 2)
    assert "none yet" in describe_checkpoints(advice.as_json())
    own = [create_window(checkpoints=1, checkpoint_seconds=10.0)]
    known = advise_checkpoints(own, gpus=8, past=past)
    assert known is not None
    assert known.goodput.checkpoint_seconds == 10.0
    assert known.past_runs == 0
    assert advise_checkpoints([create_window()], gpus=8, past=past[2:]) is None
