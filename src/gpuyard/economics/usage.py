"""Read the output of `gpuyard usage --json` as a demand for GPUs and as finished runs per month."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.economics.demand import Demand, demand_by_hour
from gpuyard.errors import UserMistake

_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2099, 12, 31, tzinfo=UTC)
_MIN_MONTHS = 7 * 24 / HOURS_PER_MONTH
_MAX_GPUS = 100_000


@dataclass(frozen=True)
class UsedGpus:
    """A lease that has ended, with times in seconds since 1970."""

    start: float
    end: float
    gpus: float
    project: str
    finished: bool
    """True if the command finished by itself, neither killed nor out of time."""


def read_usage(text: str, name: str) -> tuple[UsedGpus, ...]:
    """Return the leases that have ended."""
    try:
        leases = json.loads(text)["leases"]
        return tuple(_parse_lease(lease) for lease in leases if lease["end"] is not None)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise UserMistake(
            f"{name}: this is not the output of `gpuyard usage --json`; create it with: "
            "gpuyard usage --json > usage.json"
        ) from None


def _parse_lease(lease: dict[str, Any]) -> UsedGpus:
    start, end = (datetime.fromisoformat(lease[key]) for key in ("start", "end"))
    gpus = len(lease["gpus"]) * float(lease.get("share", 1.0))
    # the wall clock may have been set back during the lease
    if not _FIRST <= start <= _LAST or not _FIRST <= end <= _LAST or not 0 < gpus <= _MAX_GPUS:
        raise ValueError(lease)
    return UsedGpus(
        start.timestamp(),
        max(start, end).timestamp(),
        gpus,
        str(lease.get("project") or ""),
        lease.get("ended") == "finished",
    )


def demand_from_usage(leases: Sequence[UsedGpus], name: str) -> Demand:
    """Return the mean GPUs held in each hour, from the first start to the last end."""
    if not leases:
        raise UserMistake(f"{name}: it contains no lease that has ended")
    starts, ends, gpus = (
        np.array([getattr(lease, field) for lease in leases], dtype=np.float64)
        for field in ("start", "end", "gpus")
    )
    return demand_by_hour(starts, ends, gpus, name)


def runs_per_month(leases: Sequence[UsedGpus], name: str, project: str | None = None) -> float:
    """Count leases that finished by themselves as runs; a history under a week is an error."""
    seconds = (
        max(lease.end for lease in leases) - min(lease.start for lease in leases) if leases else 0.0
    )
    months = seconds / 3600 / HOURS_PER_MONTH
    if months < _MIN_MONTHS:
        raise UserMistake(
            f"{name}: its leases span less than a week, too little for runs per month"
        )
    runs = [lease for lease in leases if lease.finished and project in (None, lease.project)]
    if not runs:
        of_project = "" if project is None else f" of project {project!r}"
        raise UserMistake(f"{name}: it contains no finished lease{of_project}")
    return len(runs) / months
