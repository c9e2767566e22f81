"""A job of the store as policies see it, with what it has reported so far."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpuyard.errors import GpuyardError
from gpuyard.jobs.curve import Curve
from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.start import gpu_seconds
from gpuyard.jobs.engines.local.store import StoredJob
from gpuyard.jobs.following import keep_reported
from gpuyard.jobs.policies import JobView
from gpuyard.jobs.progress import Progress, latest_loss, progress_of
from gpuyard.steps.windows import StepsFile, StepWindow

UNKNOWN_SECONDS = 3600.0  # a job of which nothing is known is taken to last so long
_LEAST_SECONDS = 60.0  # that are left of it, as long as it runs
_AS_GOOD_AS_BEST = 0.99


class Reports:
    """What jobs report of their steps, and what they have had; each look reads only what is new."""

    def __init__(self, paths: JobPaths) -> None:
        self._paths = paths
        self._gpu_seconds: dict[tuple[int, int], float] = {}
        self._files: dict[Path, tuple[StepsFile, list[StepWindow]]] = {}

    def windows(self, row: StoredJob) -> Sequence[StepWindow]:
        """Of all starts, oldest first."""
        found: list[StepWindow] = []
        for number in range(1, row.starts + 1):
            found += self.of_start(row, number)
        return found

    def of_start(self, row: StoredJob, number: int) -> Sequence[StepWindow]:
        """From the file that it was given, and out of what it prints where it reports by itself."""
        start, found = self._paths.start(row.number, number), []
        for path in (start.steps, start.log):
            file, windows = self._files.setdefault(path, (StepsFile(path), []))
            while new := file.read():
                windows += new
            found += windows
        return found

    def gpu_seconds(self, row: StoredJob, now: float) -> float:
        """Of all starts: a trial that was stopped has been tried, though it waits."""
        total = 0.0
        for number in range(1, row.starts + 1):
            key = (row.number, number)
            if key in self._gpu_seconds:
                total += self._gpu_seconds[key]
                continue
            had = gpu_seconds(self._paths.start(row.number, number), now)
            if number <= row.finished_starts:
                self._gpu_seconds[key] = had
            total += had
        return total


def progress(row: StoredJob, reports: Reports, now: float) -> Progress:
    """How far it is, by what it reports and by what was known of it before."""
    known, spec = row.known_work, row.job.spec
    return progress_of(
        reports.windows(row),
        curve=known.curve,
        gpus=row.gpus or spec.gpus.max,
        now=now,
        total_samples=known.samples,
        resumes=spec.checkpoint is not None,
    )


def view_of(row: StoredJob, reports: Reports, total_gpus: int, now: float) -> JobView:
    """Its work is in samples; in seconds where its curve is not known, and then it gets what it asks for."""
    job, spec = row.job, row.job.spec
    most = min(spec.gpus.max, total_gpus)
    least = min(spec.gpus.min, most)
    made = progress(row, reports, now)
    curve, loss = made.curve, latest_loss(reports.windows(row))
    if curve is not None and row.known_work.curve is None:
        curve = _beyond(curve, most)
    usable = curve is not None and curve.speed(most) > 0
    if curve is not None and usable:
        asked = _fastest(curve, least, most)
        left = _unknown_seconds(row, now) * curve.speed(row.gpus or asked)
        if made.total_samples is not None:
            left = max(0.0, made.total_samples - made.done_samples)
    else:
        curve, asked = Curve.rigid(most), most
        left = _unknown_seconds(row, now)
    return JobView(
        id=str(row.handle),
        curve=curve,
        remaining_work=left,
        asked_gpus=asked,
        least_gpus=least,
        most_gpus=most,
        submitted_s=job.submitted,
        deadline_s=job.deadline,
        priority=spec.priority,
        elastic=usable and least < most and spec.checkpoint is not None,
        restart_s=spec.checkpoint.restart if spec.checkpoint is not None else 0.0,
        allocation=((0, row.gpus),) if row.gpus is not None else None,
        started_s=row.started,
        attained_gpu_s=reports.gpu_seconds(row, now),
        score=None if loss is None else -loss,
    )


def length_is_known(row: StoredJob, reports: Reports, now: float) -> bool:
    """Whether more than its time limit says how long it takes."""
    made = progress(row, reports, now)
    return made.curve is not None and made.total_samples is not None


def _unknown_seconds(row: StoredJob, now: float) -> float:
    """Of a job that does not say how much it does: all of its time limit, or an hour; and never nothing."""
    whole = row.job.spec.time_limit or UNKNOWN_SECONDS
    elapsed = now - row.started if row.started is not None and row.gpus is not None else 0.0
    return max(whole - elapsed, _LEAST_SECONDS)


def _beyond(curve: Curve, most: int) -> Curve:
    """Where nothing but the job's own steps is known: more GPUs than it has had are taken to be worth as much each,
    until it has had them. Who names a range says that it can use them."""
    if curve.most_gpus >= most:
        return curve
    each = curve.speed(curve.most_gpus) / curve.most_gpus
    more = each * np.arange(curve.most_gpus + 1, most + 1)
    return replace(curve, packed=np.concatenate((curve.packed, more)))


def _fastest(curve: Curve, least: int, most: int) -> int:
    """The fewest GPUs with which it is as fast as it gets."""
    speeds = {count: curve.speed(count) for count in range(least, most + 1)}
    best = max(speeds.values())
    return next(count for count, speed in speeds.items() if speed >= _AS_GOOD_AS_BEST * best)


def keep_measurements(row: StoredJob, reports: Reports) -> None:
    """Every run is a measurement: what the starts that are over have reported goes to the results store."""
    if row.job.spec.workload is None:
        return
    windows = [
        window
        for number in range(row.measured + 1, row.finished_starts + 1)
        for window in reports.of_start(row, number)
    ]
    with contextlib.suppress(GpuyardError):  # the workload's file may be gone by now
        keep_reported(row.job, row.handle, windows)
