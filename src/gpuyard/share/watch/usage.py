"""The history of leases: GPU-hours by user, group and project, how busy they were, and what they would have cost."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.share.store.clock import Clock, stamp
from gpuyard.share.store.config import ShareConfig
from gpuyard.share.store.lease import WHOLE, Lease


@dataclass(frozen=True)
class CloudPrice:
    """The cheapest on-demand price of one GPU of this kind."""

    usd_per_gpu_hour: float
    price: str
    date: str


def cloud_price(config: ShareConfig) -> CloudPrice | None:
    """None where the catalog has no row for these GPUs, or they are of several kinds."""
    kinds = {gpu.catalog for gpu in config.gpus}
    if len(kinds) != 1 or None in kinds:
        return None
    from gpuyard.catalog.prices import prices

    offered = [price for price in prices() if price.gpu in kinds]
    if not offered:
        return None
    cheapest = min(offered, key=lambda price: price.usd_per_hour / price.gpus)
    return CloudPrice(cheapest.usd_per_hour / cheapest.gpus, cheapest.id, str(cheapest.date))


def usage_document(
    leases: Sequence[Lease], clock: Clock, price: CloudPrice | None, since: float | None = None
) -> dict[str, Any]:
    """Every lease that ended after some time or is held now, and sums over them."""
    shown = [lease for lease in leases if since is None or _end(lease, clock) >= since]
    rows = [
        {
            "id": lease.id,
            "user": lease.user,
            "group": lease.group,
            "project": lease.project or None,
            "gpus": list(lease.gpus),
            "share": lease.parts / WHOLE,
            "start": stamp(lease.start),
            "end": stamp(lease.end),
            "ended": lease.ended,
            "command": lease.command,
            "gpu_hours": _gpu_hours(lease, clock, since),
            "utilisation": _utilisation([lease], clock, since),
        }
        for lease in shown
    ]
    total = _sum(shown, clock, price, since)
    return {
        "leases": rows,
        "by_user": _by(shown, lambda lease: lease.user, clock, price, since),
        "by_group": _by(shown, lambda lease: lease.group, clock, price, since),
        "by_project": _by(shown, lambda lease: lease.project, clock, price, since),
        **total,
        "cloud_price": price.price if price else None,
        "cloud_price_date": price.date if price else None,
        "cloud_usd_per_gpu_hour": price.usd_per_gpu_hour if price else None,
    }


def _by(
    leases: Sequence[Lease],
    key: Callable[[Lease], str],
    clock: Clock,
    price: CloudPrice | None,
    since: float | None,
) -> list[dict[str, Any]]:
    groups: dict[str, list[Lease]] = defaultdict(list)
    for lease in leases:
        groups[key(lease)].append(lease)
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
        "utilisation": _utilisation(leases, clock, since),
        "cloud_usd": hours * price.usd_per_gpu_hour if price else None,
    }


def _end(lease: Lease, clock: Clock) -> float:
    """Of one that is held: now, on the clock by which it started."""
    if lease.end is not None:
        return lease.end
    return (lease.start or 0.0) + max(0.0, clock.boot() - (lease.start_boot or 0.0))


def _gpu_hours(lease: Lease, clock: Clock, since: float | None) -> float:
    start = lease.start or 0.0
    seconds = _end(lease, clock) - (start if since is None else max(start, since))
    return max(0.0, seconds) / 3600 * len(lease.gpus) * lease.parts / WHOLE


def _utilisation(leases: Sequence[Lease], clock: Clock, since: float | None) -> float | None:
    """The mean of what was sampled, by GPU-hours; None where nobody could read any."""
    sampled = [lease for lease in leases if lease.utilisation_samples]
    hours = [max(_gpu_hours(lease, clock, since), 1e-9) for lease in sampled]
    means = [lease.utilisation_sum / lease.utilisation_samples for lease in sampled]
    if not sampled:
        return None
    return sum(h * m for h, m in zip(hours, means, strict=True)) / sum(hours)
