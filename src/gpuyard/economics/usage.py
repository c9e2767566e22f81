"""What `gpuyard usage --json` printed, as a demand: how many GPUs people held when, and how many runs they finished."""

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
_SHORTEST_MONTHS = 7 * 24 / HOURS_PER_MONTH
_MOST_GPUS = 100_000


@dataclass(frozen=True)
class UsedGpus:
    """A lease that has ended, in seconds since 1970."""

    start: float
    end: float
    gpus: float
    project: str
    finished: bool
    """By itself: it was not killed, and its time was not over."""


def read_usage(text: str, name: str) -> tuple[UsedGpus, ...]:
    """Leases that are held now are left out."""
    try:
        leases = json.loads(text)["leases"]
        return tuple(_used(lease) for lease in leases if lease["end"] is not None)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise UserMistake(
            f"{name}: this is not what `gpuyard usage --json` prints; write it with: "
            "gpuyard usage --json > usage.json"
        ) from None


def _used(lease: dict[str, Any]) -> UsedGpus:
    start, end = (datetime.fromisoformat(lease[key]) for key in ("start", "end"))
    gpus = len(lease["gpus"]) * float(lease.get("share", 1.0))
    # the wall clock may have been set back while it ran
    if not _FIRST <= start <= _LAST or not _FIRST <= end <= _LAST or not 0 < gpus <= _MOST_GPUS:
        raise ValueError(lease)
    return UsedGpus(
        start.timestamp(),
        max(start, end).timestamp(),
        gpus,
        str(lease.get("project") or ""),
        lease.get("ended") == "finished",
    )


def demand_of_usage(used: Sequence[UsedGpus], name: str) -> Demand:
    """Mean GPUs that were held in each hour, from the first start to the last end."""
    if not used:
        raise UserMistake(f"{name}: no lease in it has ended")
    starts, ends, gpus = (
        np.array([getattr(one, field) for one in used], dtype=np.float64)
        for field in ("start", "end", "gpus")
    )
    return demand_by_hour(starts, ends, gpus, name)


def runs_per_month(used: Sequence[UsedGpus], name: str, project: str | None = None) -> float:
    """Leases that finished by themselves, a run each; of less than a week nothing is said."""
    months = (
        (max(one.end for one in used) - min(one.start for one in used)) / 3600 / HOURS_PER_MONTH
        if used
        else 0.0
    )
    if months < _SHORTEST_MONTHS:
        raise UserMistake(f"{name}: its leases span less than a week, too little for runs a month")
    runs = [one for one in used if one.finished and project in (None, one.project)]
    if not runs:
        whose = "" if project is None else f" of the project {project!r}"
        raise UserMistake(f"{name}: no lease{whose} in it has finished")
    return len(runs) / months
