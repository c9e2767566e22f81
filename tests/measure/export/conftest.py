"""Runs of a job to export."""

import pytest

from gpuyard.measure.export.runs import ExportedRun, exported_runs
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.job_runs.summary import job_runs
from gpuyard.measure.job_runs.tables import JOB_RUNS
from gpuyard.specs import Workload
from gpuyard.steps.windows import StepWindow

OWN = Workload(name='digits "at\\once"', model="resnet50")


@pytest.fixture
def records() -> list[JobRun]:
    """Of two starts, with 1 and with 2 workers."""
    windows = [
        StepWindow(
            50, 3200 * workers, 10.0, 0.2, gpus=workers, workers=workers, start=f"s{workers}",
            at=1.79e9 + 10 * i, loss=2.5 / (i + 1), number=50 * (i + 1),
        )
        for workers in (1, 2)
        for i in range(5)
    ]  # fmt: skip
    return job_runs(windows, OWN, job="0f3e")


@pytest.fixture
def exported(records: list[JobRun]) -> list[ExportedRun]:
    return exported_runs(JOB_RUNS, records)
