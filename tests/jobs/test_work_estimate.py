"""Estimates of a job's work before it runs: predicted, measured, or unknown."""

import json
import os

import pytest

from gpuyard import files
from gpuyard.jobs.work_estimate import WorkEstimate, estimate_work
from gpuyard.measure.store import ResultsStore
from gpuyard.specs.job import JobSpec
from tests.conftest import MakeMeasurement


def spec(**more: object) -> JobSpec:
    return JobSpec.model_validate({"command": ["train"], "gpus": "1..4", **more})


def test_a_catalog_model_is_predicted_on_a_catalog_gpu() -> None:
    estimate = estimate_work(spec(workload="resnet50", samples=1000), gpu="rtx-3090", gpus=4)
    assert estimate.curve is not None
    speeds = [estimate.curve.speed(count) for count in range(5)]
    assert speeds[0] == 0 < speeds[1] < speeds[2] < speeds[4]
    assert estimate.curve.low < 1 < estimate.curve.high
    assert (estimate.samples, estimate.basis) == (1000, "predicted")
    again = WorkEstimate.from_document(json.loads(json.dumps(estimate.document())))
    assert again.curve is not None
    assert [again.curve.speed(count) for count in range(5)] == speeds
    assert again.curve.parts == estimate.curve.parts
    step = estimate.curve.parts[4]
    assert step.compute_seconds < step.samples / speeds[4]
    assert step.exchange_seconds > 0


def test_measured_runs_replace_a_missing_prediction(
    make_measurement: MakeMeasurement,
) -> None:
    unmeasured = estimate_work(spec(workload="spoken-digits-linear"), gpu=None, gpus=4)
    assert unmeasured.curve is None
    assert unmeasured.samples == 2000  # one epoch
    files.home().mkdir(parents=True)
    store = ResultsStore(files.results_file())
    here = make_measurement().provenance.model_copy(update={"host": os.uname().nodename})
    for number, workers, batch, speed, provenance in (
        (1, 1, 32, 100.0, here),
        (2, 2, 32, 150.0, here),
        (3, 2, 32, 9e9, make_measurement().provenance),  # elsewhere
        (4, 2, 8, 9e9, here),  # with another batch
    ):
        store.add(
            make_measurement(
                number,
                workload="spoken-digits-linear",
                workers=workers,
                batch_per_worker=batch,
                samples_per_second=speed,
                provenance=provenance,
            )
        )
    estimate = estimate_work(spec(workload="spoken-digits-linear"), gpu=None, gpus=4)
    assert estimate.curve is not None
    assert [estimate.curve.speed(count) for count in (1, 2)] == pytest.approx([100, 150])
    assert estimate.basis == "measured with 1, 2 GPUs"
    on_gpus = estimate_work(spec(workload="spoken-digits-linear"), gpu="rtx-3090", gpus=4)
    assert on_gpus.basis == "predicted"  # runs on CPUs do not count


def test_a_job_without_a_workload_has_no_curve() -> None:
    assert estimate_work(spec(samples=7), gpu="rtx-3090", gpus=4) == WorkEstimate(samples=7)
