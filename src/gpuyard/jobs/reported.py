"""What becomes of what jobs report of their steps: how far one is while it runs, a measurement when it has ended."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.base import Engine
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.steps.windows import StepWindow


def with_progress(status: JobStatus, job: Job, windows: Sequence[StepWindow]) -> JobStatus:
    """A running job's with how far it is, its speed and when it will end; as it is if it has reported nothing."""
    if status.state != "running" or not windows:
        return status
    from gpuyard.jobs.known_work import KnownWork, known_work
    from gpuyard.jobs.progress import latest_loss, progress_of

    spec = job.spec
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
        loss=latest_loss(windows),
    )


def status_with_progress(engine: Engine, handle: Handle) -> JobStatus:
    """How far a job is, where the engine itself does not look at what the job prints."""
    status = engine.status(handle)
    if engine.keeps_measurements or status.state != "running":
        return status
    with contextlib.suppress(GpuyardError):  # it is as far as it is, whatever it printed
        job = engine.job(handle)
        if job.spec.workload is not None:
            return with_progress(status, job, engine.reports(handle))
    return status


def keep_reported(job: Job, handle: Handle, windows: Sequence[StepWindow]) -> None:
    """Put what a job that names its workload has reported into the results store, once.

    Raises GpuyardError where its workload can't be read.
    """
    if job.spec.workload is None or not windows:
        return
    from gpuyard import files
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure.job_runs.summary import job_runs, keep
    from gpuyard.measure.store import ResultsStore

    workload = read_workload(job.spec.workload)
    runs = job_runs(windows, workload, job=job.uuid, handle=str(handle))
    keep(ResultsStore(files.results_file()), runs)
