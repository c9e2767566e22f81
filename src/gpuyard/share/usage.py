"""The history of leases: GPU-hours by user, group, and project, with their utilization and cloud cost."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
    return CloudPrice(cheapest.usd_per_gpu_hour, cheapest.id, str(cheapest.date))


def usage_document(
    leases: Sequence[Lease], clock: Clock, price: CloudPrice | None, since: float | None = None
) -> dict[str, Any]:
    """Return the leases that ended after `since` or are held now, and sums over them."""
    recent = [lease for lease in leases if since is None or _end_time(lease, clock) >= since]
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
            "elapsed_seconds": _elapsed_seconds(lease, clock, since),
            "command": lease.command or None,
            "gpu_hours": _gpu_hours(lease, clock, since),
            "utilization": _mean_utilization([lease], clock, since),
            "waiting_seconds": _waiting_seconds(lease),
        }
        for lease in recent
    ]
    return {
        "leases": rows,
        "by_user": _sum_by(recent, lambda lease: [lease.user], clock, price, since),
        "by_group": _sum_by(recent, _GroupFinder().find, clock, price, since),
        "by_project": _sum_by(recent, lambda lease: [lease.project], clock, price, since),
        **_sum(recent, clock, price, since),
        "cloud_price": price.price if price else None,
        "cloud_price_date": price.date if price else None,
        "cloud_usd_per_gpu_hour": price.usd_per_gpu_hour if price else None,
    }


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
    since: float | None,
) -> list[dict[str, Any]]:
    groups: dict[str, list[Lease]] = defaultdict(list)
    for lease in leases:
        for key in keys(lease):
            groups[key].append(lease)
    rows = [
        {"name": name or None, "leases": len(group), **_sum(group, clock, price, since)}
        for name, group in groups.items()
    ]
    return sorted(rows, key=lambda row: -row["gpu_hours"])


def _sum(
    leases: Sequence[Lease], clock: Clock, price: CloudPrice | None, since: float | None
) -> dict[str, Any]:
    hours = sum(_gpu_hours(lease, clock, since) for lease in leases)
    return {
        "gpu_hours": hours,
        "utilization": _mean_utilization(leases, clock, since),
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


def _elapsed_seconds(lease: Lease, clock: Clock, since: float | None) -> float:
    start = lease.start or 0.0
    return max(0.0, _end_time(lease, clock) - (start if since is None else max(start, since)))


def _gpu_hours(lease: Lease, clock: Clock, since: float | None) -> float:
    hours = _elapsed_seconds(lease, clock, since) / 3600
    return hours * len(lease.gpus) * lease.parts / WHOLE


def _mean_utilization(leases: Sequence[Lease], clock: Clock, since: float | None) -> float | None:
    """Return the mean of all samples, weighted by GPU-hours; None if there are none."""
    sampled = [lease for lease in leases if lease.utilization_samples]
    hours = [max(_gpu_hours(lease, clock, since), 1e-9) for lease in sampled]
    means = [lease.utilization_sum / lease.utilization_samples for lease in sampled]
    if not sampled:
        return None
    return sum(h * m for h, m in zip(hours, means, strict=True)) / sum(hours)
