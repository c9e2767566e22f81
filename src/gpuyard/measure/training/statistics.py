"""Estimates a rate and its 95% confidence interval from the windows of one run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Rate:
    """A rate per second and its 95% confidence interval."""

    per_second: float
    low: float
    high: float


def estimate_rate(seconds: Sequence[float], count_per_window: float) -> Rate:
    """Divide the total count by the total time.

    The interval is Student's t on the windows' mean time. Its relative width is applied to the rate
    (first order), so the interval is symmetric around it.
    """
    mean_seconds = fmean(seconds)
    per_second = count_per_window / mean_seconds
    if len(seconds) < 2:
        return Rate(per_second, 0.0, math.inf)
    half_seconds = student_t_quantile(len(seconds) - 1) * stdev(seconds) / math.sqrt(len(seconds))
    relative = half_seconds / mean_seconds
    return Rate(per_second, per_second * max(0.0, 1 - relative), per_second * (1 + relative))


def student_t_quantile(degrees_of_freedom: int, confidence: float = 0.95) -> float:
    """Return the t with this probability between −t and t: 12.706 for 1 degree of freedom, 2.262 for 9."""
    low, high = 0.0, 1.0
    while _probability_within(high, degrees_of_freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _probability_within(middle, degrees_of_freedom) < confidence:
            low = middle
        else:
            high = middle
    return high


def _probability_within(t: float, degrees_of_freedom: int) -> float:
    # Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 (odd) and 26.7.4 (even)
    angle = math.atan(t / math.sqrt(degrees_of_freedom))
    cosine = math.cos(angle)
    odd = degrees_of_freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(2 + odd, degrees_of_freedom + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
