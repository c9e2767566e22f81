"""Correct a scaling curve by a running job's own reports.

A curve that was predicted or measured elsewhere is off by some factor, which is similar for similar numbers of GPUs.
The logarithm of that factor is modeled as a Gaussian process over log₂(GPUs). Its prior is the curve's own interval;
each number of GPUs that the job has run on is an observation.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpuyard.jobs.progress import MIN_ERROR, summarize_windows
from gpuyard.policies.curve import Curve, Speeds, SplitSpeed
from gpuyard.reporting.windows import StepWindow

_Z_90 = 1.645  # σ to either side of 90% of a normal distribution
_DEFAULT_SIGMA = 0.2  # for a curve without an interval
_MAX_RATIO = 1e4  # between observed and expected speed; beyond it the curve is of something else
_CORRELATION_DOUBLINGS = 3.0  # of GPUs, over which the correlation falls to 1/e


def interpolate_curve(windows: Sequence[StepWindow]) -> Curve | None:
    """Return a curve through the reported speeds; None without any."""
    observations = summarize_windows(windows)
    if not observations:
        return None
    speeds = {count: speed for (count, _), (speed, _) in observations.items()}
    low, high = _interval(max(error for _, error in observations.values()))
    return Curve.from_points(speeds, low=low, high=high)


def correct_curve(curve: Curve, windows: Sequence[StepWindow], *, gpus: int) -> Curve:
    """Correct the curve by the job's own reports."""
    observations = summarize_windows(windows)
    if not observations:
        return curve
    speeds = {count: speed for (count, _), (speed, _) in observations.items()}
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
    low, high = _interval(math.sqrt(max(variance, 0.0) + MIN_ERROR**2))
    return replace(
        curve,
        packed=curve.packed * factors,
        split=None if curve.split is None else _scale(curve.split, factors),
        across=None if curve.across is None else _scale(curve.across, factors),
        low=low,
        high=high,
    )


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
