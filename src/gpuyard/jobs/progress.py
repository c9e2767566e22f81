"""Estimate a running job's progress: its reports correct its scaling curve and predict its end.

A curve that was predicted or measured elsewhere is off by some factor, which is similar for similar numbers of GPUs.
The logarithm of that factor is modeled as a Gaussian process over log₂(GPUs). Its prior is the curve's own interval;
each number of GPUs that the job has run on is an observation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.jobs.job import SpeedBasis
from gpuyard.policies.curve import Curve, Speeds, SplitSpeed
from gpuyard.reporting.windows import StepWindow

_Z_90 = 1.645  # σ to either side of 90% of a normal distribution
_DEFAULT_SIGMA = 0.2  # for a curve without an interval
_SINGLE_WINDOW_ERROR = 0.1  # σ of the speed if there is only one window
_MIN_ERROR = 0.02  # σ; the next hour may always differ by this much
_MAX_ERROR = 1.0  # σ; windows that differ by more carry no information
_MAX_RATIO = 1e4  # between observed and expected speed; beyond it the curve is of something else
_NEVER_SECONDS = 100 * 365 * 86400.0  # an end further away than this is not reported
_MAX_SHAPES = 64  # numbers of GPUs and nodes that correct a curve: solving takes their cube
_CORRELATION_DOUBLINGS = 3.0  # of GPUs, over which the correlation falls to 1/e


@dataclass(frozen=True)
class Progress:
    """The progress of a job. Work is in samples, as is that of its curve; times are in seconds since 1970."""

    done_samples: float
    total_samples: float | None
    samples_per_second: float | None
    """Wall-clock speed on its current GPUs, including evaluations and checkpoints."""
    speed_basis: SpeedBasis | None
    """Whether the job's own reports on this number of GPUs show that speed, or its curve predicts it."""
    curve: Curve | None
    """The corrected curve; its interval is that at the current number of GPUs."""
    expected_end: float | None

    @property
    def share(self) -> float | None:
        """The completed share of all work."""
        if self.total_samples is None:
            return None
        return min(1.0, self.done_samples / self.total_samples)


def estimate_progress(
    windows: Sequence[StepWindow],
    *,
    curve: Curve | None,
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
    corrected = correct_curve(curve, windows, gpus=gpus)
    speed = corrected.speed(gpus) if corrected is not None else 0.0
    reported = max((window.at for window in windows if window.at is not None), default=now)
    since = min(reported, now)

    end = None
    if planned is not None and speed > 0:
        seconds = max(0.0, planned - done) / speed
        end = max(now, since + seconds) if seconds < _NEVER_SECONDS else None
    observed = any(w.gpus == gpus for w in windows if not w.warmup and w.samples > 0)
    basis: SpeedBasis | None = ("measured" if observed else "predicted") if speed else None
    return Progress(done, planned, speed or None, basis, corrected, end)


def correct_curve(curve: Curve | None, windows: Sequence[StepWindow], *, gpus: int) -> Curve | None:
    """Correct the curve by the job's own reports; return None if there is neither a curve nor a report."""
    observations = _summarize_windows(windows)
    if not observations:
        return curve
    speeds = {count: speed for (count, _), (speed, _) in observations.items()}
    if curve is None:
        low, high = _interval(max(error for _, error in observations.values()))
        return Curve.from_points(speeds, low=low, high=high)
    curve = _fill_unknown(curve, speeds)
    observed = np.log2([count for count, _ in observations])
    ratios = np.log(
        np.clip(
            [speed / _expect_speed(curve, *key) for key, (speed, _) in observations.items()],
            1 / _MAX_RATIO,
            _MAX_RATIO,
        )
    )
    sigma = math.log(curve.high / curve.low) / (2 * _Z_90) or _DEFAULT_SIGMA
    sigma = max(sigma, float(np.abs(ratios).max()))  # an interval that missed was too narrow
    errors = np.array([error for _, error in observations.values()])
    all_counts = np.log2(np.arange(1, curve.max_gpus + 1))

    def kernel(a: Speeds, b: Speeds) -> Speeds:
        distance = np.abs(a[:, None] - b[None, :])
        return np.asarray(sigma**2 * np.exp(-distance / _CORRELATION_DOUBLINGS))

    covariance = kernel(observed, observed) + np.diag(errors**2)
    cross = kernel(observed, all_counts)
    gain = np.linalg.solve(covariance, cross).T
    factors = np.concatenate(([1.0], np.exp(gain @ ratios)))
    current = min(gpus, curve.max_gpus) - 1
    variance = sigma**2 - float(gain[current] @ cross[:, current])
    low, high = _interval(math.sqrt(max(variance, 0.0) + _MIN_ERROR**2))
    return replace(
        curve,
        packed=curve.packed * factors,
        split=None if curve.split is None else _scale(curve.split, factors),
        across=None if curve.across is None else _scale(curve.across, factors),
        low=low,
        high=high,
    )


def _summarize_windows(
    windows: Sequence[StepWindow],
) -> dict[tuple[int, int], tuple[float, float]]:
    """Return wall-clock samples per second and their relative σ, by GPUs and nodes."""
    grouped: dict[tuple[int, int], list[StepWindow]] = {}
    for window in windows:
        if not window.warmup and window.samples > 0:
            grouped.setdefault((window.gpus, window.nodes), []).append(window)
    observations = {}
    for key in list(grouped)[-_MAX_SHAPES:]:
        members = grouped[key]
        seconds = np.array([member.seconds for member in members])
        rates = np.array([member.samples for member in members]) / seconds
        mean = float(np.average(rates, weights=seconds))
        error = _SINGLE_WINDOW_ERROR
        if len(members) > 1:
            spread = math.sqrt(float(np.average((rates / mean - 1) ** 2, weights=seconds)))
            error = spread / math.sqrt(len(members) - 1)
        observations[key] = mean, min(max(error, _MIN_ERROR), _MAX_ERROR)
    return observations


def _expect_speed(curve: Curve, gpus: int, nodes: int) -> float:
    if nodes == 1:
        return curve.speed(gpus)
    per_node, extra = divmod(gpus, nodes)
    speed = curve.speed_on([per_node + 1] * extra + [per_node] * (nodes - extra))
    return speed if speed > 0 else curve.speed(gpus)


def _fill_unknown(curve: Curve, speeds: dict[int, float]) -> Curve:
    """Use the observed speed for numbers of GPUs on which the curve expects none."""
    unknown = {count: speed for count, speed in speeds.items() if curve.speed(count) <= 0}
    if not unknown:
        return curve
    packed = curve.packed.copy()
    for count, speed in unknown.items():
        packed[min(count, curve.max_gpus)] = speed
    return replace(curve, packed=packed)


def _scale(split: SplitSpeed, factors: Speeds) -> SplitSpeed:
    return lambda counts: split(counts) * float(factors[min(sum(counts), len(factors) - 1)])


def _interval(sigma: float) -> tuple[float, float]:
    return math.exp(-_Z_90 * sigma), math.exp(_Z_90 * sigma)


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
