"""A job as policies see it, with the progress that it has reported so far."""

import contextlib
from dataclasses import replace

import numpy as np

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.local.reports import StepReports, read_progress
from gpuyard.jobs.engines.local.store import StoredJob
from gpuyard.jobs.job_wait import store_measurements
from gpuyard.jobs.progress import Progress
from gpuyard.policies import JobView
from gpuyard.policies.curve import Curve
from gpuyard.reporting.windows import latest_loss
from gpuyard.share.job_views import DEFAULT_SECONDS
from gpuyard.share.schedule import (
    MAX_NUMBER,
    RUNNING,
    STARTING,
    STOPPING,
    WAITING,
    JobAnnouncement,
    round_speed,
)

_MIN_SECONDS = 60.0  # remaining, as long as a job of unknown length runs
_NEAR_BEST = 0.99  # of the best speed: a smaller gain is not worth more GPUs


def knows_length(progress: Progress) -> bool:
    """Return whether its work and its speed show how long a job takes."""
    return progress.curve is not None and progress.total_samples is not None


def build_view(
    stored: StoredJob, reports: StepReports, progress: Progress, total_gpus: int, now: float
) -> JobView:
    """Return the policies' view of a job.

    Its work is in samples. If its scaling curve is unknown, its work is in GPU-seconds, as if it scaled linearly.
    """
    job, spec = stored.job, stored.job.spec
    max_gpus = min(spec.gpus.max, total_gpus)
    min_gpus = min(spec.gpus.min, max_gpus)
    curve, loss = progress.curve, latest_loss(reports.read_job(stored))
    if curve is not None and not stored.has_curve:
        curve = _extrapolate(curve, max_gpus)
    usable = curve is not None and curve.speed(max_gpus) > 0
    if curve is not None and usable:
        requested_gpus = _find_fastest(curve, min_gpus, max_gpus)
        remaining = _assume_seconds(stored, now) * curve.speed(stored.gpus or requested_gpus)
        if progress.total_samples is not None:
            remaining = max(0.0, progress.total_samples - progress.done_samples)
    else:  # a user who requests a range expects the job to use all of it
        counts = np.arange(max_gpus + 1)
        curve, requested_gpus = Curve(np.where(counts < min_gpus, 0.0, counts)), max_gpus
        remaining = _assume_seconds(stored, now) * (stored.gpus or max_gpus)
    return JobView(
        id=str(stored.handle),
        curve=curve,
        remaining_work=remaining,
        requested_gpus=requested_gpus,
        min_gpus=min_gpus,
        max_gpus=max_gpus,
        submitted_s=job.submitted,
        deadline_s=job.deadline,
        priority=spec.priority,
        elastic=usable and min_gpus < max_gpus and spec.checkpoint is not None,
        restart_s=spec.checkpoint.restart if spec.checkpoint is not None else 0.0,
        allocation=((0, stored.gpus),) if stored.gpus is not None else None,
        started_s=stored.started,
        attained_gpu_s=stored.gpu_seconds(now),
        score=None if loss is None else -loss,
    )


def announce_job(
    stored: StoredJob, reports: StepReports, total_gpus: int, now: float
) -> JobAnnouncement:
    """Return what the share and other users learn of an open job.

    Its numbers rest on its reports, so they are bounded here; UserMistake means that the share would refuse them.
    """
    progress = read_progress(stored, reports, now)
    view = build_view(stored, reports, progress, total_gpus, now)
    counts = range(view.min_gpus, view.max_gpus + 1)
    start = stored.start if stored.in_progress else None
    phase = WAITING
    if start is not None:
        phase = STARTING if start.started is None else RUNNING
        if stored.cancel_requested is not None or stored.stop_reason is not None or start.outcome:
            phase = STOPPING
    return JobAnnouncement(
        id=stored.uuid,
        name=str(stored.handle),
        phase=phase,
        min_gpus=view.min_gpus,
        max_gpus=view.max_gpus,
        requested_gpus=view.requested_gpus,
        speeds=tuple(round_speed(view.curve.speed(count)) for count in counts),
        remaining_work=min(view.remaining_work, MAX_NUMBER),
        submitted=view.submitted_s,
        gpus=stored.gpus or 0,
        seconds=stored.job.spec.time_limit,
        assumed_length=stored.job.spec.time_limit is None and not knows_length(progress),
        deadline=view.deadline_s,
        priority=view.priority,
        elastic=view.elastic,
        restart_seconds=view.restart_s,
        started=view.started_s,
        attained_gpu_seconds=round(view.attained_gpu_s, 1),
        score=view.score,
    )


def keep_measurements(job: StoredJob, reports: StepReports) -> None:
    """Add the reports of finished starts to the results store: every run is a measurement."""
    if job.job.spec.workload is None:
        return
    windows = [
        window
        for number in range(job.measured_starts + 1, job.finished_starts + 1)
        for window in reports.read_start(job, number, completely=True)
    ]
    with contextlib.suppress(GpuyardError):  # the workload file may be gone by now
        store_measurements(job.job, job.handle, windows)


def _assume_seconds(job: StoredJob, now: float) -> float:
    """Return the remaining seconds of a job of unknown length: those of its time limit, or of an hour."""
    limit = job.job.spec.time_limit or DEFAULT_SECONDS
    elapsed = now - job.started if job.started is not None and job.gpus is not None else 0.0
    return max(limit - elapsed, _MIN_SECONDS)


def _extrapolate(curve: Curve, max_gpus: int) -> Curve:
    """Extend a curve that only the job's own steps have measured.

    Each further GPU is assumed to add as much as those before, until the job has run on it: a user who requests a range
    of GPUs expects the job to use them.
    """
    if curve.max_gpus >= max_gpus:
        return curve
    per_gpu = curve.speed(curve.max_gpus) / curve.max_gpus
    further = per_gpu * np.arange(curve.max_gpus + 1, max_gpus + 1)
    return replace(curve, packed=np.concatenate((curve.packed, further)))


def _find_fastest(curve: Curve, min_gpus: int, max_gpus: int) -> int:
    """Return the smallest number of GPUs that is about as fast as the best."""
    speeds = {count: curve.speed(count) for count in range(min_gpus, max_gpus + 1)}
    best = max(speeds.values())
    return next(count for count, speed in speeds.items() if speed >= _NEAR_BEST * best)
