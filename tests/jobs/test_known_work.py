"""What is known of a job before it runs: predicted, measured, or nothing."""

import json
import os

import pytest

from gpuyard import files
from gpuyard.jobs.known_work import KnownWork, known_work
from gpuyard.measure.store import ResultsStore
from gpuyard.specs.job import JobSpec
from tests.conftest import MakeMeasurement


def spec(**more: object) -> JobSpec:
    return JobSpec.model_validate({"command": ["train"], "gpus": "1..4", **more})


def test_a_model_of_the_catalog_is_predicted_on_a_gpu_of_the_catalog() -> None:
    known = known_work(spec(workload="resnet50", samples=1000), gpu="rtx-3090", gpus=4)
    assert known.curve is not None
    speeds = [known.curve.speed(count) for count in range(5)]
    assert speeds[0] == 0 < speeds[1] < speeds[2] < speeds[4]
    assert known.curve.low < 1 < known.curve.high
    assert (known.samples, known.basis) == (1000, "predicted")
    again = KnownWork.from_document(json.loads(json.dumps(known.document())))
    assert again.curve is not None
    assert [again.curve.speed(count) for count in range(5)] == speeds


def test_what_was_measured_here_does_where_nothing_can_be_predicted(
    make_measurement: MakeMeasurement,
) -> None:
    nothing = known_work(spec(workload="spoken-digits-linear"), gpu=None, gpus=4)
    assert nothing.curve is None
    assert nothing.samples == 2000  # one epoch
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
    known = known_work(spec(workload="spoken-digits-linear"), gpu=None, gpus=4)
    assert known.curve is not None
    assert [known.curve.speed(count) for count in (1, 2)] == pytest.approx([100, 150])
    assert known.basis == "measured with 1, 2 GPUs"
    on_gpus = known_work(spec(workload="spoken-digits-linear"), gpu="rtx-3090", gpus=4)
    assert on_gpus.basis == "predicted"  # CPUs say nothing of them


def test_a_job_without_a_workload_has_no_curve() -> None:
    assert known_work(spec(samples=7), gpu="rtx-3090", gpus=4) == KnownWork(samples=7)
