"""What jobs on Slurm report of their steps: how far one is, and what its starts have measured."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.slurm.records import Record
from gpuyard.jobs.engines.slurm.starts import starts_of
from gpuyard.jobs.job import JobStatus

if TYPE_CHECKING:
    from gpuyard.steps.windows import StepWindow


def with_progress(status: JobStatus, record: Record) -> JobStatus:
    """The same with how far it is and when it will end, if it reports its steps; tasks of an array are many jobs."""
    spec = record.job.spec
    if status.state != "running" or record.array is not None:
        return status
    windows = _windows(record, None)
    if not windows:
        return status
    from gpuyard.jobs.known_work import KnownWork, known_work
    from gpuyard.jobs.progress import progress_of

    gpus = status.gpus or spec.gpus.max
    known = KnownWork(samples=spec.samples)
    with contextlib.suppress(GpuyardError):  # the workload's file may be gone by now
        known = known_work(spec, gpu=None, gpus=gpus)
    made = progress_of(
        windows,
        curve=known.curve,
        gpus=gpus,
        now=time.time(),
        total_samples=known.samples,
        resumes=spec.checkpoint is not None,
    )
    return replace(
        status,
        done=made.share,
        samples_per_second=made.samples_per_second,
        expected_end=made.expected_end,
    )


def keep_measurements(record: Record) -> None:
    """Every run is a measurement: what a job that has ended reported goes to the results store."""
    workload = record.job.spec.workload
    windows = all_reports(record)
    if workload is None or not windows:
        return
    from gpuyard import files
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure.job_runs.summary import job_runs, keep
    from gpuyard.measure.store import ResultsStore

    with contextlib.suppress(GpuyardError):
        runs = job_runs(
            windows, read_workload(workload), job=record.job.uuid, handle=str(record.handle)
        )
        keep(ResultsStore(files.results_file()), runs)


def all_reports(record: Record) -> "Sequence[StepWindow]":
    """Of all its starts; of an array, of all its tasks."""
    return [one for task in record.tasks for one in _windows(record, task)]


def _windows(record: Record, task: str | None) -> "Sequence[StepWindow]":
    """From the file that each start was given, and out of what it prints where it reports by itself."""
    from gpuyard.steps.windows import StepsFile

    found: list[StepWindow] = []
    for start in starts_of(record.directory, task):
        for path in (start.log.with_suffix(".steps"), start.log):
            file = StepsFile(path)
            while new := file.read():
                found += new
    return found
