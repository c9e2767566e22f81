"""Follow jobs to their end: add their reported progress, wait for several, and store their measurements."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.base import Engine, load_engine
from gpuyard.jobs.job import Handle, Job, JobStatus, JobSummary
from gpuyard.reporting.windows import StepWindow, latest_loss

_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 2.0


def add_progress(
    status: JobStatus, document: Mapping[str, Any], windows: Sequence[StepWindow]
) -> JobStatus:
    """Add the progress, speed, and expected end of a running job (its JSON form), if it has reported any steps."""
    if status.state != "running" or not windows:
        return status
    from gpuyard.jobs.progress import estimate_progress

    job = JobSummary.from_document(document)
    gpus = status.gpus or job.max_gpus
    curve, samples = None, job.samples
    if job.has_workload:
        from gpuyard.jobs.work_estimate import estimate_work

        with contextlib.suppress(GpuyardError):  # the workload's file may have been deleted
            estimate = estimate_work(Job.from_document(document).spec, gpu=None, gpus=gpus)
            curve, samples = estimate.curve, estimate.samples
    progress = estimate_progress(
        windows,
        curve=curve,
        gpus=gpus,
        now=time.time(),
        total_samples=samples,
        resumes=job.resumes,
    )
    return replace(
        status,
        done=progress.share,
        samples_per_second=progress.samples_per_second,
        speed_basis=progress.speed_basis,
        expected_end=progress.expected_end,
        loss=latest_loss(windows),
        checkpoints=describe_checkpoints(windows, gpus),
    )


def describe_checkpoints(windows: Sequence[StepWindow], gpus: int) -> dict[str, Any] | None:
    """Return the advice on checkpoints as a status holds it; most jobs report none, which saves imports."""
    if not any(window.checkpoints for window in windows):
        return None
    from gpuyard.jobs.checkpoint_interval import advise_checkpoints

    advice = advise_checkpoints(windows, gpus=gpus)
    return None if advice is None else advice.as_json()


def get_status(engine: Engine, handle: Handle) -> JobStatus:
    """Return the status with progress and verdict, even if the engine itself does not read the job's reports."""
    status = engine.status(handle)
    if status.state != "running":
        return status
    with contextlib.suppress(GpuyardError):  # unreadable reports must not hide the status
        if not engine.keeps_measurements:
            job = engine.job(handle)
            if job.spec.workload is not None:
                status = add_progress(status, job.document(), engine.reports(handle))
        status = add_verdict(status, engine)
        if status.checkpoints is None:
            status = replace(status, checkpoints=_learn_from_past_runs(status, engine))
    return status


def _learn_from_past_runs(status: JobStatus, engine: Engine) -> dict[str, Any] | None:
    """Return advice on checkpoints from past runs of the job's workload, until it has written its first one."""
    from gpuyard import files

    if not files.results_file().exists():  # which is known without imports
        return None
    name = engine.job(status.handle).spec.workload
    if name is None:
        return None
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.jobs.checkpoint_interval import advise_checkpoints
    from gpuyard.measure.job_runs.records import JobRun
    from gpuyard.measure.store import ResultsStore

    past = ResultsStore(files.results_file()).records(JobRun, read_workload(name).name)
    gpus = status.gpus or status.max_gpus
    advice = advise_checkpoints(engine.reports(status.handle), gpus=gpus, past=past)
    return None if advice is None else advice.as_json()


def add_verdict(status: JobStatus, engine: Engine) -> JobStatus:
    """Add the predicted speed, the MFU, and a verdict to the status of a running job, as far as they are known."""
    windows = engine.rank_reports(status.handle)
    speed = engine.expected_speed(status.handle)
    timed = any(window.exchange_seconds or window.input_seconds for window in windows)
    if not windows or not (timed or speed):
        return replace(status, expected_speed=speed)
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.jobs.judged_run import expect_speed, find_reported_ideal_seconds, judge_run

    ideal_seconds = None
    with contextlib.suppress(GpuyardError):  # the workload's file may have been deleted
        name = engine.job(status.handle).spec.workload
        if name is not None:
            ideal_seconds = find_reported_ideal_seconds(windows, read_workload(name))
    run = judge_run(
        windows,
        expect_speed(windows, speed),
        ideal_seconds=ideal_seconds,
        on_gpus=True,
        now=time.time(),
    )
    if run is None:
        return replace(status, expected_speed=speed)
    text = " ".join([run.verdict.sentence, *run.remarks])
    return replace(status, expected_speed=speed, mfu=run.mfu, verdict=text)


def store_measurements(job: Job, handle: Handle, windows: Sequence[StepWindow]) -> None:
    """Store the reports of a job that names its workload as measurements, once.

    Raise GpuyardError if its workload cannot be read.
    """
    if job.spec.workload is None or not windows:
        return
    from gpuyard import files
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure.job_runs.summary import add_new_runs, build_job_runs
    from gpuyard.measure.store import ResultsStore

    workload = read_workload(job.spec.workload)
    runs = build_job_runs(windows, workload, job=job.uuid, handle=str(handle))
    add_new_runs(ResultsStore(files.results_file()), runs)


def wait_for_jobs(
    handles: Sequence[Handle],
    *,
    wait_seconds: float | None = None,
    on_end: Callable[[JobStatus], None] = lambda _: None,
) -> list[JobStatus]:
    """Return the status of each job when all have ended or the time is over; call `on_end` at each end."""
    engines = {name: load_engine(name) for name in {handle.engine for handle in handles}}
    deadline = None if wait_seconds is None else time.monotonic() + wait_seconds
    statuses: dict[Handle, JobStatus] = {}
    pause = _FIRST_PAUSE_SECONDS
    while True:
        for handle in handles:
            if handle not in statuses or not statuses[handle].final:
                engine = engines[handle.engine]
                statuses[handle] = engine.status(handle)
                if statuses[handle].final:
                    on_end(statuses[handle])
                    if not engine.keeps_measurements:
                        with contextlib.suppress(GpuyardError):  # `gpuyard results add` shows why
                            store_measurements(engine.job(handle), handle, engine.reports(handle))
        timed_out = deadline is not None and time.monotonic() >= deadline
        if timed_out or all(status.final for status in statuses.values()):
            return [statuses[handle] for handle in handles]
        remaining = _MAX_PAUSE_SECONDS
        if deadline is not None:
            remaining = max(0.01, deadline - time.monotonic())
        time.sleep(min(pause, remaining))
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
