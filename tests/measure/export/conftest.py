"""Job runs to export."""

import pytest

from gpuyard.measure.export.runs import ExportedRun, build_exported_runs
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.job_runs.summary import build_job_runs
from gpuyard.measure.job_runs.tables import JOB_RUNS
from gpuyard.reporting.windows import StepWindow
from gpuyard.specs import Workload

WORKLOAD = Workload(name='digits "at\\once"', model="resnet50")


@pytest.fixture
def records() -> list[JobRun]:
    """Return the runs of a job that was started with 1 worker, then with 2."""
    windows = [
        StepWindow(
            50, 3200 * workers, 10.0, 0.2, gpus=workers, workers=workers, start=f"s{workers}",
            at=1.79e9 + 10 * i, loss=2.5 / (i + 1), number=50 * (i + 1),
        )
        for workers in (1, 2)
        for i in range(5)
    ]  # fmt: skip
    return build_job_runs(windows, WORKLOAD, job="0f3e")


@pytest.fixture
def exported(records: list[JobRun]) -> list[ExportedRun]:
    return build_exported_runs(JOB_RUNS, records)
