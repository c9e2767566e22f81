"""How far a running job is: what it reports corrects its scaling curve and says when it will end.

A curve that was predicted or measured elsewhere is off by some factor, which is much the same for numbers of GPUs that
are close to each other. So the logarithm of that factor is taken for a Gaussian process over log₂(GPUs): its prior is the
curve's own interval, and every number of GPUs that the job has run on is an observation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.jobs.curve import Curve, Speeds, SplitSpeed
from gpuyard.steps.windows import StepWindow

_Z_90 = 1.645  # σ to either side of 90 % of a normal distribution
_UNKNOWN = 0.2  # σ of a curve that has no interval
_FIRST_WINDOW = 0.1  # σ of the speed where there is one window only
_LEAST_ERROR = 0.02  # σ; the next hour is never more like this one
_MOST_ERROR = 1.0  # σ; windows that differ by more say nothing
_MOST_RATIO = 1e4  # between what is seen and the curve; beyond it they are not of the same thing
_NEVER_SECONDS = 100 * 365 * 86400.0  # who would need longer has no end that could be said
_LAST_WINDOWS = 5  # whose losses are averaged: of one batch it says little
_DOUBLINGS = 3.0  # of GPUs, over which what was seen tells a third of what it tells right here


@dataclass(frozen=True)
class Progress:
    """What is known of a job's course. Work is in samples, and so is that of its curve; moments in seconds since 1970."""

    done_samples: float
    total_samples: float | None
    samples_per_second: float | None
    """With the GPUs that it has now, by the clock: evaluations and checkpoints count."""
    curve: Curve | None
    """Corrected; its interval is the one at the number of GPUs that it has now."""
    expected_end: float | None

    @property
    def share(self) -> float | None:
        """Of all work, that is done."""
        if self.total_samples is None:
            return None
        return min(1.0, self.done_samples / self.total_samples)


def progress_of(
    windows: Sequence[StepWindow],
    *,
    curve: Curve | None,
    gpus: int,
    now: float,
    total_samples: float | None = None,
    resumes: bool = False,
) -> Progress:
    """From all that a job has reported since it was first started.

    `resumes`: a new start goes on where the last one stopped, so that all starts count. `gpus` are those that it
    has now.
    """
    done = _done_samples(windows, resumes=resumes)
    planned, done = _planned(windows, total_samples, done)
    corrected = corrected_curve(curve, windows, gpus=gpus)
    speed = corrected.speed(gpus) if corrected is not None else 0.0
    reported = max((window.at for window in windows if window.at is not None), default=now)
    since = min(reported, now)

    end = None
    if planned is not None and speed > 0:
        seconds = max(0.0, planned - done) / speed
        end = max(now, since + seconds) if seconds < _NEVER_SECONDS else None
    return Progress(done, planned, speed or None, corrected, end)


def latest_loss(windows: Sequence[StepWindow]) -> float | None:
    """Of a job now, over its last reports; None where it reports none, or where the last was no number: it diverged."""
    if not windows or windows[-1].loss is None:
        return None
    last = [window.loss for window in windows[-_LAST_WINDOWS:] if window.loss is not None]
    return sum(last) / len(last)


def corrected_curve(
    curve: Curve | None, windows: Sequence[StepWindow], *, gpus: int
) -> Curve | None:
    """The curve as the job's own reports have it; None where there is neither."""
    seen = _observations(windows)
    if not seen:
        return curve
    if curve is None:
        low, high = _interval(max(error for _, error in seen.values()))
        speeds = {count: speed for (count, _), (speed, _) in seen.items()}
        return Curve.of_points(speeds, low=low, high=high)
    # what it has run on and the curve knows nothing of is taken as it was seen
    curve = _filled(curve, {count: speed for (count, _), (speed, _) in seen.items()})
    places = np.log2([count for count, _ in seen])
    found = [speed / _expected(curve, *where) for where, (speed, _) in seen.items()]
    ratios = np.log(np.clip(found, 1 / _MOST_RATIO, _MOST_RATIO))
    sigma = math.log(curve.high / curve.low) / (2 * _Z_90) or _UNKNOWN
    sigma = max(sigma, float(np.abs(ratios).max()))  # an interval that was missed was too narrow
    errors = np.array([error for _, error in seen.values()])
    every = np.log2(np.arange(1, curve.most_gpus + 1))

    def kernel(one: Speeds, other: Speeds) -> Speeds:
        apart = np.abs(one[:, None] - other[None, :])
        return np.asarray(sigma**2 * np.exp(-apart / _DOUBLINGS))

    among = kernel(places, places) + np.diag(errors**2)
    gain = np.linalg.solve(among, kernel(places, every)).T
    factors = np.concatenate(([1.0], np.exp(gain @ ratios)))
    here = min(gpus, curve.most_gpus) - 1
    left = sigma**2 - float(gain[here] @ kernel(places, every)[:, here])
    low, high = _interval(math.sqrt(max(left, 0.0) + _LEAST_ERROR**2))
    return replace(
        curve,
        packed=curve.packed * factors,
        split=None if curve.split is None else _scaled(curve.split, factors),
        across=None if curve.across is None else _scaled(curve.across, factors),
        low=low,
        high=high,
    )


def _observations(windows: Sequence[StepWindow]) -> dict[tuple[int, int], tuple[float, float]]:
    """By GPUs and nodes: samples a second by the clock, and one σ of it, relative."""
    grouped: dict[tuple[int, int], list[StepWindow]] = {}
    for window in windows:
        if not window.warmup and window.samples > 0:
            grouped.setdefault((window.gpus, window.nodes), []).append(window)
    seen = {}
    for where, members in grouped.items():
        seconds = np.array([member.seconds for member in members])
        rates = np.array([member.samples for member in members]) / seconds
        mean = float(np.average(rates, weights=seconds))
        error = _FIRST_WINDOW
        if len(members) > 1:
            spread = math.sqrt(float(np.average((rates / mean - 1) ** 2, weights=seconds)))
            error = spread / math.sqrt(len(members) - 1)
        seen[where] = mean, min(max(error, _LEAST_ERROR), _MOST_ERROR)
    return seen


def _expected(curve: Curve, gpus: int, nodes: int) -> float:
    if nodes == 1:
        return curve.speed(gpus)
    each, over = divmod(gpus, nodes)
    speed = curve.speed_on([each + 1] * over + [each] * (nodes - over))
    return speed if speed > 0 else curve.speed(gpus)


def _filled(curve: Curve, speeds: dict[int, float]) -> Curve:
    unknown = {count: speed for count, speed in speeds.items() if curve.speed(count) <= 0}
    if not unknown:
        return curve
    packed = curve.packed.copy()
    for count, speed in unknown.items():
        packed[min(count, curve.most_gpus)] = speed
    return replace(curve, packed=packed)


def _scaled(split: SplitSpeed, factors: Speeds) -> SplitSpeed:
    return lambda counts: split(counts) * float(factors[min(sum(counts), len(factors) - 1)])


def _interval(sigma: float) -> tuple[float, float]:
    return math.exp(-_Z_90 * sigma), math.exp(_Z_90 * sigma)


def _done_samples(windows: Sequence[StepWindow], *, resumes: bool) -> float:
    by_start: dict[str, float] = {}
    for window in windows:
        counted = by_start.get(window.start, 0.0) + window.samples
        by_start[window.start] = (
            counted if window.samples_done is None else max(counted, window.samples_done)
        )
    if not by_start:
        return 0.0
    return sum(by_start.values()) if resumes else by_start[windows[-1].start]


def _planned(
    windows: Sequence[StepWindow], total_samples: float | None, done: float
) -> tuple[float | None, float]:
    """All samples and those done; a loop that numbers its steps knows better than a count of them."""
    last = windows[-1] if windows else None
    if last is None or last.number is None:
        return total_samples, done
    if last.total:
        share = min(1.0, last.number / last.total)
        planned = total_samples or last.total * last.samples / last.steps
        return planned, share * planned
    return total_samples, last.number * last.samples / last.steps
