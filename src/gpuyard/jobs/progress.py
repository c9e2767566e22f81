"""Estimate a running job's progress: its reports show its speed or correct its scaling curve, and predict its end.

`gpuyard queue` shows it, so it imports numpy only for a job with a curve.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gpuyard.jobs.job import SpeedBasis
from gpuyard.reporting.windows import StepWindow

if TYPE_CHECKING:
    from gpuyard.policies.curve import Curve

_SINGLE_WINDOW_ERROR = 0.1  # σ of the speed if there is only one window
MIN_ERROR = 0.02
"""σ of a speed; the next hour may always differ by this much."""
_MAX_ERROR = 1.0  # σ; windows that differ by more carry no information
_NEVER_SECONDS = 100 * 365 * 86400.0  # an end further away than this is not reported
_MAX_SHAPES = 64  # numbers of GPUs and nodes that correct a curve: solving takes their cube


@dataclass(frozen=True)
class Progress:
    """The progress of a job. Work is in samples, as is that of its curve; times are in seconds since 1970."""

    done_samples: float
    total_samples: float | None
    samples_per_second: float | None
    """Wall-clock speed on its current GPUs, including evaluations and checkpoints."""
    speed_basis: SpeedBasis | None
    """True if the job's own reports on this number of GPUs show that speed, or its curve predicts it."""
    expected_end: float | None
    corrected: "Curve | None"
    """The curve that was known before, corrected by the reports."""
    windows: Sequence[StepWindow] = field(repr=False)

    @cached_property
    def curve(self) -> "Curve | None":
        """The corrected curve, or that of the reports alone; its interval is that at the current number of GPUs."""
        from gpuyard.jobs.curve_correction import interpolate_curve

        return self.corrected or interpolate_curve(self.windows)

    @property
    def share(self) -> float | None:
        """The completed share of all work."""
        if self.total_samples is None:
            return None
        return min(1.0, self.done_samples / self.total_samples)


def estimate_progress(
    windows: Sequence[StepWindow],
    *,
    curve: "Curve | None",
    gpus: int,
    now: float,
    total_samples: float | None = None,
    resumes: bool = False,
) -> Progress:
    """Estimate progress from all reports since the job's first start.

    If it `resumes`, each start continues where the last one stopped, so all starts count. `gpus` is the current number.
    """
    done = _count_done(windows, resumes=resumes)
    planned, done = _find_total(windows, total_samples, done)
    if curve is not None:
        from gpuyard.jobs.curve_correction import correct_curve

        curve = correct_curve(curve, windows, gpus=gpus)
        speed = curve.speed(gpus)
    else:
        speed = measure_speed(windows, gpus)
    reported = max((window.at for window in windows if window.at is not None), default=now)
    since = min(reported, now)

    end = None
    if planned is not None and speed > 0:
        seconds = max(0.0, planned - done) / speed
        end = max(now, since + seconds) if seconds < _NEVER_SECONDS else None
    observed = any(w.gpus == gpus for w in windows if not w.warmup and w.samples > 0)
    basis: SpeedBasis | None = ("measured" if observed else "predicted") if speed else None
    return Progress(done, planned, speed or None, basis, end, curve, windows)


def summarize_windows(windows: Sequence[StepWindow]) -> dict[tuple[int, int], tuple[float, float]]:
    """Return wall-clock samples per second and their relative σ, by GPUs and nodes."""
    grouped: dict[tuple[int, int], list[StepWindow]] = {}
    for window in windows:
        if not window.warmup and window.samples > 0:
            grouped.setdefault((window.gpus, window.nodes), []).append(window)
    observations = {}
    for key in list(grouped)[-_MAX_SHAPES:]:
        members = grouped[key]
        seconds = sum(member.seconds for member in members)
        mean = sum(member.samples for member in members) / seconds
        error = _SINGLE_WINDOW_ERROR
        if len(members) > 1:
            squares = (w.seconds * (w.samples / w.seconds / mean - 1) ** 2 for w in members)
            error = math.sqrt(sum(squares) / seconds / (len(members) - 1))
        observations[key] = mean, min(max(error, MIN_ERROR), _MAX_ERROR)
    return observations


def measure_speed(windows: Sequence[StepWindow], gpus: int) -> float:
    """Return the same speed as the curve of the reports, but without numpy; 0 without any report."""
    speeds = {count: speed for (count, _), (speed, _) in summarize_windows(windows).items()}
    if not speeds:
        return 0.0
    counts = sorted(speeds)
    gpus = min(gpus, counts[-1])
    place = bisect_left(counts, gpus)
    above = counts[place]
    below = counts[max(0, place - 1)]
    low, high = speeds[below] / below, speeds[above] / above
    part = (gpus - below) / (above - below) if below < gpus < above else float(below < gpus)
    return gpus * (low + part * (high - low))


def _count_done(windows: Sequence[StepWindow], *, resumes: bool) -> float:
    by_start: dict[str, float] = {}
    for window in windows:
        counted = by_start.get(window.start, 0.0) + window.samples
        by_start[window.start] = (
            counted if window.samples_done is None else max(counted, window.samples_done)
        )
    if not by_start:
        return 0.0
    return sum(by_start.values()) if resumes else by_start[windows[-1].start]


def _find_total(
    windows: Sequence[StepWindow], total_samples: float | None, done: float
) -> tuple[float | None, float]:
    """Return all samples and those done; step numbers from the job's loop are better than a count of reports."""
    last = windows[-1] if windows else None
    if last is None or last.number is None:
        return total_samples, done
    if last.total:
        share = min(1.0, last.number / last.total)
        planned = total_samples or last.total * last.samples / last.steps
        return planned, share * planned
    return total_samples, last.number * last.samples / last.steps
