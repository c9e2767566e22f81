"""Goodput: the share of a run's time that makes progress, with checkpoints, lost work, and restarts taken off.

All functions accept floats or NumPy arrays that broadcast against each other. The checkpoint interval is J. T. Daly's
higher-order estimate (2006) of J. W. Young's optimum (1974). The expected run time is Daly's model of random
interruptions at a constant rate, each of which loses the work since the last checkpoint.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuyard.economics.billing import Amounts, Array, array_of, check_not_negative
from gpuyard.errors import UserMistake


@dataclass(frozen=True)
class MeanTime:
    """The mean hours between two interruptions, with a 90% interval and where it comes from."""

    hours: float
    low: float
    high: float
    basis: str

    def divide(self, count: float) -> "MeanTime":
        """Return the mean time of this many parts, each of which interrupts the whole."""
        return MeanTime(self.hours / count, self.low / count, self.high / count, self.basis)

    def join(self, other: "MeanTime") -> "MeanTime":
        """Return the mean time if either interrupts; rates add up."""
        hours, low, high = (
            1 / (1 / getattr(self, name) + 1 / getattr(other, name))
            for name in ("hours", "low", "high")
        )
        return MeanTime(hours, low, high, f"{self.basis}; {other.basis}")


@dataclass(frozen=True)
class Goodput:
    """The useful share of a job's time at one checkpoint interval, despite interruptions."""

    mean_time: MeanTime  # of the whole job
    checkpoint_seconds: float
    restart_seconds: float
    interval_seconds: float  # of work between two checkpoints
    share: float
    low: float
    high: float

    @property
    def stretch(self) -> float:
        """Hours of the job per hour of progress."""
        return 1 / self.share if self.share else float("inf")

    def as_json(self) -> dict[str, Any]:
        return {
            "goodput": self.share, "goodput_low": self.low, "goodput_high": self.high,
            "checkpoint_every_seconds": self.interval_seconds,
            "checkpoint_seconds": self.checkpoint_seconds, "restart_seconds": self.restart_seconds,
            "mean_hours_between_interruptions": self.mean_time.hours,
            "mean_hours_low": self.mean_time.low, "mean_hours_high": self.mean_time.high,
        }  # fmt: skip


def compute_goodput(
    mean_time: MeanTime,
    *,
    checkpoint_seconds: float,
    restart_seconds: float,
    interval_seconds: float | None = None,
) -> Goodput:
    """Return the goodput of a job; without an interval, at Daly's."""
    saving, restart = checkpoint_seconds / 3600, restart_seconds / 3600
    if interval_seconds is None:
        interval_seconds = 3600 * float(daly_interval_hours(saving, 1 / mean_time.hours))
    means = np.array([mean_time.hours, mean_time.low, mean_time.high])
    shares = 1 / hours_per_useful_hour(1 / means, saving, restart, interval_seconds / 3600)
    share, low, high = (float(value) for value in shares)
    return Goodput(
        mean_time, checkpoint_seconds, restart_seconds, interval_seconds, share, low, high
    )


def young_interval_hours(checkpoint_hours: Amounts, interruptions_per_hour: Amounts) -> Array:
    """Return Young's first-order optimum: `sqrt(2 × checkpoint time × mean time between interruptions)`."""
    return np.sqrt(2 * array_of(checkpoint_hours) * _mean_hours(interruptions_per_hour))


def daly_interval_hours(checkpoint_hours: Amounts, interruptions_per_hour: Amounts) -> Array:
    """Return Daly's optimal hours of work between two checkpoints; infinite without interruptions."""
    check_not_negative("the checkpoint time", checkpoint_hours)
    mean = _mean_hours(interruptions_per_hour)
    saving = array_of(checkpoint_hours)
    with np.errstate(invalid="ignore"):
        ratio = np.sqrt(saving / (2 * mean))
        first_order = young_interval_hours(checkpoint_hours, interruptions_per_hour)
        interval = first_order * (1 + ratio / 3 + ratio**2 / 9) - saving
    interval = np.where(saving < 2 * mean, interval, mean)
    return np.where(np.isinf(mean), np.inf, interval)


def hours_per_useful_hour(
    interruptions_per_hour: Amounts,
    checkpoint_hours: Amounts = 0.0,
    restart_hours: Amounts = 0.0,
    interval_hours: Amounts | None = None,
) -> Array:
    """Return the hours per hour of progress: 1 plus checkpoints, repeated work, and restarts.

    Without `interval_hours`, checkpoints use Daly's interval. Rates are those of the whole job: a job on 8
    instances with 0.05 interruptions per hour each has 0.4.
    """
    check_not_negative("the restart time", restart_hours)
    saving, mean = array_of(checkpoint_hours), _mean_hours(interruptions_per_hour)
    if interval_hours is None:
        interval = daly_interval_hours(checkpoint_hours, interruptions_per_hour)
    else:
        interval = array_of(interval_hours)
        if np.any(~(interval > 0)):
            raise UserMistake("the checkpoint interval must be above zero")
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exposed = (interval + saving) / mean
        per_segment = np.where(np.isinf(mean), interval + saving, mean * np.expm1(exposed))
        factor = np.exp(array_of(restart_hours) / mean) * per_segment / interval
    # limits that the formula cannot express: checkpoints that cost nothing, and no checkpoints
    factor = np.where(interval == 0, np.exp(array_of(restart_hours) / mean), factor)
    return np.where(np.isinf(interval), 1.0, factor)


def spot_usd(
    useful_hours: Amounts,
    usd_per_hour: Amounts,
    *,
    interruptions_per_hour: Amounts,
    checkpoint_hours: Amounts = 0.0,
    restart_hours: Amounts = 0.0,
    interval_hours: Amounts | None = None,
) -> Array:
    """Return the price of this many hours of progress on spot capacity."""
    check_not_negative("hours", useful_hours)
    check_not_negative("the price", usd_per_hour)
    factor = hours_per_useful_hour(
        interruptions_per_hour, checkpoint_hours, restart_hours, interval_hours
    )
    return array_of(useful_hours) * factor * usd_per_hour


def _mean_hours(interruptions_per_hour: Amounts) -> Array:
    check_not_negative("the interruption rate", interruptions_per_hour)
    rate = array_of(interruptions_per_hour)
    # a rate below one in the age of the universe counts as zero, because it would overflow
    rate = np.where(rate < 1e-30, 0.0, rate)
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / rate)
