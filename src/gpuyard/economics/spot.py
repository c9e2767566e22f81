"""Spot capacity: cheaper by the hour, taken away at random, so that work since the last checkpoint is lost.

The interval between checkpoints is J. T. Daly's higher-order estimate (2006) of J. W. Young's optimum
(1974), and the expected time is Daly's model: interruptions at random with a constant rate.
"""

import numpy as np

from gpuyard.economics.billing import Amounts, Array, array_of, check_not_negative
from gpuyard.errors import UserMistake


def young_interval_hours(checkpoint_hours: Amounts, interruptions_per_hour: Amounts) -> Array:
    """Young's first-order optimum: `sqrt(2 × time of a checkpoint × mean time between interruptions)`."""
    return np.sqrt(2 * array_of(checkpoint_hours) * _mean_hours(interruptions_per_hour))


def daly_interval_hours(checkpoint_hours: Amounts, interruptions_per_hour: Amounts) -> Array:
    """Daly's optimum: useful hours between two checkpoints. Infinite where nothing interrupts."""
    check_not_negative("the time of a checkpoint", checkpoint_hours)
    mean = _mean_hours(interruptions_per_hour)
    saving = array_of(checkpoint_hours)
    with np.errstate(invalid="ignore"):
        ratio = np.sqrt(saving / (2 * mean))
        first_order = young_interval_hours(checkpoint_hours, interruptions_per_hour)
        interval = first_order * (1 + ratio / 3 + ratio**2 / 9) - saving
    interval = np.where(saving < 2 * mean, interval, mean)
    return np.where(np.isinf(mean), np.inf, interval)


def spot_hours_per_useful_hour(
    interruptions_per_hour: Amounts,
    checkpoint_hours: Amounts = 0.0,
    restart_hours: Amounts = 0.0,
    interval_hours: Amounts | None = None,
) -> Array:
    """Rented hours for one hour of progress, at least 1: checkpoints, work done again, restarts.

    Without `interval_hours` checkpoints are Daly's optimum apart. Rates are of the whole job: a job on
    8 instances with 0.05 interruptions an hour each has 0.4.
    """
    check_not_negative("the time of a restart", restart_hours)
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
    # the limits that the formula can't give: checkpoints that cost nothing, and none at all
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
    """Dollars for so many hours of progress on spot capacity."""
    check_not_negative("hours", useful_hours)
    check_not_negative("the price", usd_per_hour)
    factor = spot_hours_per_useful_hour(
        interruptions_per_hour, checkpoint_hours, restart_hours, interval_hours
    )
    return array_of(useful_hours) * factor * usd_per_hour


def _mean_hours(interruptions_per_hour: Amounts) -> Array:
    check_not_negative("the interruption rate", interruptions_per_hour)
    rate = array_of(interruptions_per_hour)
    # what comes once in the age of the universe never comes, and would overflow
    rate = np.where(rate < 1e-30, 0.0, rate)
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / rate)
