"""The history of leases: GPU-hours by user, group, and project, with their utilization and cloud cost."""

import bisect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuyard.share.caller import groups_of
from gpuyard.share.clock import Clock, iso_timestamp
from gpuyard.share.config import ShareConfig
from gpuyard.share.models import WHOLE, Lease


@dataclass(frozen=True)
class CloudPrice:
    """The cheapest on-demand price of one GPU."""

    usd_per_gpu_hour: float
    price: str
    title: str
    date: str


def cloud_price(config: ShareConfig) -> CloudPrice | None:
    """Return the price of this machine's GPUs; None if they differ or the catalog has no price for them."""
    models = {gpu.catalog for gpu in config.gpus}
    if len(models) != 1 or None in models:
        return None
    from gpuyard.catalog.prices import find_cheapest_price

    cheapest = find_cheapest_price(str(models.pop()))
    if cheapest is None:
        return None
    return CloudPrice(cheapest.usd_per_gpu_hour, cheapest.id, cheapest.title, str(cheapest.date))


@dataclass(frozen=True)
class Period:
    """A part of the history; it may be open on both sides."""

    begin: float = -math.inf
    end: float = math.inf

    def includes(self, lease: Lease, clock: Clock) -> bool:
        """Return whether a lease was held in this period."""
        return (lease.start or 0.0) < self.end and _end_time(lease, clock) >= self.begin

    def elapsed_seconds(self, lease: Lease, clock: Clock) -> float:
        """Return how long a lease was held in this period."""
        begin = max(lease.start or 0.0, self.begin)
        return max(0.0, min(_end_time(lease, clock), self.end) - begin)


ALWAYS = Period()


def usage_document(
    leases: Sequence[Lease], clock: Clock, price: CloudPrice | None, period: Period = ALWAYS
) -> dict[str, Any]:
    """Return the leases that were held in a period, and sums over them."""
    recent = [lease for lease in leases if period.includes(lease, clock)]
    rows = [
        {
            "id": lease.id,
            "user": lease.user,
            "group": lease.group,
            "project": lease.project or None,
            "gpus": list(lease.gpus),
            "share": lease.parts / WHOLE,
            "start": iso_timestamp(lease.start),
            "end": iso_timestamp(lease.end),
            "ended": lease.end_reason,
            "elapsed_seconds": period.elapsed_seconds(lease, clock),
            "command": lease.command or None,
            "gpu_hours": _gpu_hours(lease, clock, period),
            "utilization": _mean_utilization([lease], clock, period),
            "waiting_seconds": _waiting_seconds(lease),
        }
        for lease in recent
    ]
    return {
        "leases": rows,
        "by_user": _sum_by(recent, lambda lease: [lease.user], clock, price, period),
        "by_group": _sum_by(recent, _GroupFinder().find, clock, price, period),
        "by_project": _sum_by(recent, lambda lease: [lease.project], clock, price, period),
        **_sum(recent, clock, price, period),
        "over_time": _sum_over_time(recent, clock, period),
        "cloud_price": price.price if price else None,
        "cloud_price_title": price.title if price else None,
        "cloud_price_date": price.date if price else None,
        "cloud_usd_per_gpu_hour": price.usd_per_gpu_hour if price else None,
    }


def _sum_over_time(leases: Sequence[Lease], clock: Clock, period: Period) -> list[dict[str, Any]]:
    """Return how many GPUs were leased and how many of them computed on average, by hour, day, or week.

    A lease has one mean utilization, so it counts with that in all of its time.
    """
    if not leases:
        return []
    begin = max(period.begin, min(lease.start or 0.0 for lease in leases))
    edges = _split(begin, min(period.end, max(clock.wall(), begin + 1.0)))
    leased, computing = [0.0] * (len(edges) - 1), [0.0] * (len(edges) - 1)
    for lease in leases:
        start, end = lease.start or 0.0, _end_time(lease, clock)
        first = max(0, bisect.bisect_right(edges, start) - 1)
        last = min(len(edges) - 1, bisect.bisect_left(edges, end))
        utilization = _mean_utilization([lease], clock, period) or 0.0
        for index in range(first, last):
            part = Period(edges[index], edges[index + 1])
            gpus = _gpu_hours(lease, clock, part) * 3600 / (part.end - part.begin)
            leased[index] += gpus
            computing[index] += gpus * utilization
    return [
        {
            "from": iso_timestamp(edges[index]),
            "until": iso_timestamp(edges[index + 1]),
            "leased_gpus": leased[index],
            "computing_gpus": computing[index],
        }
        for index in range(len(leased))
    ]


def _split(begin: float, end: float) -> list[float]:
    """Split a time into hours, days, or weeks of this machine's time zone; the first and the last may be shorter."""
    days = (end - begin) / 86400
    step = timedelta(hours=1) if days <= 2 else timedelta(1 if days <= 100 else 7)
    edge = datetime.fromtimestamp(begin).replace(minute=0, second=0, microsecond=0)
    if step >= timedelta(1):
        edge = edge.replace(hour=0)
    edges = [begin]
    while (edge := edge + step).timestamp() < end:
        edges.append(edge.timestamp())
    return [*edges, end]


class _GroupFinder:
    """Finds all groups of a lease's user: the primary one at that time, and those of the account now."""

    def __init__(self) -> None:
        self._groups: dict[int, frozenset[str]] = {}

    def find(self, lease: Lease) -> Iterable[str]:
        if lease.uid not in self._groups:
            self._groups[lease.uid] = groups_of(lease.uid)
        return {lease.group, *self._groups[lease.uid]}


def _sum_by(
    leases: Sequence[Lease],
    keys: Callable[[Lease], Iterable[str]],
    clock: Clock,
    price: CloudPrice | None,
    period: Period,
) -> list[dict[str, Any]]:
    groups: dict[str, list[Lease]] = defaultdict(list)
    for lease in leases:
        for key in keys(lease):
            groups[key].append(lease)
    rows = [
        {"name": name or None, "leases": len(group), **_sum(group, clock, price, period)}
        for name, group in groups.items()
    ]
    return sorted(rows, key=lambda row: -row["gpu_hours"])


def _sum(
    leases: Sequence[Lease], clock: Clock, price: CloudPrice | None, period: Period
) -> dict[str, Any]:
    hours = sum(_gpu_hours(lease, clock, period) for lease in leases)
    return {
        "gpu_hours": hours,
        "utilization": _mean_utilization(leases, clock, period),
        "cloud_usd": hours * price.usd_per_gpu_hour if price else None,
        "mean_waiting_seconds": sum(map(_waiting_seconds, leases)) / len(leases)
        if leases
        else None,
    }


def _waiting_seconds(lease: Lease) -> float:
    """Return the time from the request to the start."""
    return max(0.0, (lease.start or lease.requested_at) - lease.requested_at)


def _end_time(lease: Lease, clock: Clock) -> float:
    """Return the end of a lease, or the current time (on the clock of its start) if it is held."""
    if lease.end is not None:
        return lease.end
    return (lease.start or 0.0) + max(0.0, clock.boot() - (lease.start_boot or 0.0))


def _gpu_hours(lease: Lease, clock: Clock, period: Period) -> float:
    hours = period.elapsed_seconds(lease, clock) / 3600
    return hours * len(lease.gpus) * lease.parts / WHOLE


def _mean_utilization(leases: Sequence[Lease], clock: Clock, period: Period) -> float | None:
    """Return the mean of all samples, weighted by GPU-hours; None if there are none."""
    sampled = [lease for lease in leases if lease.utilization_samples]
    hours = [max(_gpu_hours(lease, clock, period), 1e-9) for lease in sampled]
    means = [lease.utilization_sum / lease.utilization_samples for lease in sampled]
    if not sampled:
        return None
    return sum(h * m for h, m in zip(hours, means, strict=True)) / sum(hours)
