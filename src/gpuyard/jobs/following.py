"""Following jobs to their end: how far one is by what it reports of its steps, waiting for several, and what was reported
as a measurement when one has ended."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.base import Engine, engine
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.steps.windows import StepWindow

_FIRST_SECONDS, _LONGEST_SECONDS = 0.1, 2.0


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


def wait_for(
    handles: Sequence[Handle],
    *,
    wait_seconds: float | None = None,
    tell: Callable[[JobStatus], None] = lambda _: None,
) -> list[JobStatus]:
    """How each ended, or how far it is when the time to wait is over; `tell` hears of each end."""
    engines = {name: engine(name) for name in {handle.engine for handle in handles}}
    deadline = None if wait_seconds is None else time.monotonic() + wait_seconds
    found: dict[Handle, JobStatus] = {}
    pause = _FIRST_SECONDS
    while True:
        for handle in handles:
            if handle not in found or not found[handle].final:
                found[handle] = engines[handle.engine].status(handle)
                if found[handle].final:
                    tell(found[handle])
                    _keep_measurements(engines[handle.engine], handle)
        over = deadline is not None and time.monotonic() >= deadline
        if over or all(status.final for status in found.values()):
            return [found[handle] for handle in handles]
        left = _LONGEST_SECONDS if deadline is None else max(0.01, deadline - time.monotonic())
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_SECONDS)


def _keep_measurements(runs_it: Engine, handle: Handle) -> None:
    if not runs_it.keeps_measurements:
        with contextlib.suppress(GpuyardError):  # `gpuyard results add` says why
            keep_reported(runs_it.job(handle), handle, runs_it.reports(handle))
