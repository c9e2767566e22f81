"""What jobs on Slurm report of their steps: how far one is, and what its starts have measured."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError
from gpuyard.jobs import reported
from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.engines.slurm.starts import starts_of
from gpuyard.jobs.job import JobStatus

if TYPE_CHECKING:
    from gpuyard.steps.windows import StepWindow


def with_progress(status: JobStatus, record: SlurmRecord) -> JobStatus:
    """The same with how far it is and when it will end, if it reports its steps; tasks of an array are many jobs."""
    if status.state != "running" or record.array is not None:
        return status
    return reported.with_progress(status, record.job, _windows(record, None))


def keep_measurements(record: SlurmRecord) -> None:
    """Every run is a measurement: what a job that has ended reported goes to the results store."""
    with contextlib.suppress(GpuyardError):  # the workload's file may be gone by now
        reported.keep_reported(record.job, record.handle, all_reports(record))


def all_reports(record: SlurmRecord) -> "Sequence[StepWindow]":
    """Of all its starts; of an array, of all its tasks."""
    return [one for task in record.tasks for one in _windows(record, task)]


def _windows(record: SlurmRecord, task: str | None) -> "Sequence[StepWindow]":
    """From the file that each start was given, and out of what it prints where it reports by itself."""
    from gpuyard.steps.windows import StepsFile

    found: list[StepWindow] = []
    for start in starts_of(record.directory, task):
        for path in (start.log.with_suffix(".steps"), start.log):
            file = StepsFile(path)
            while new := file.read():
                found += new
    return found
