"""Announced jobs and leases as policies see them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpuyard.policies import JobView
from gpuyard.policies.curve import Curve
from gpuyard.share.models import Lease
from gpuyard.share.schedule import AnnouncedJob

DEFAULT_SECONDS = 3600.0
"""Assumed for leases and jobs of unknown length without a time limit."""


def view_job(announced: AnnouncedJob, gpus: int | None, priority: int, max_gpus: int) -> JobView:
    """Return the view of an announced job; `gpus` is None while it waits."""
    job = announced.job
    packed = np.zeros(job.max_gpus + 1)
    packed[job.min_gpus :] = job.speeds
    most = max(min(job.max_gpus, max_gpus), job.min_gpus)
    return JobView(
        id=announced.key,
        curve=Curve(packed),
        remaining_work=job.remaining_work,
        requested_gpus=min(job.requested_gpus, most),
        min_gpus=job.min_gpus,
        max_gpus=most,
        submitted_s=job.submitted,
        user=announced.user,
        deadline_s=job.deadline,
        priority=priority,
        elastic=job.elastic,
        restart_s=job.restart_seconds,
        allocation=None if gpus is None else ((0, gpus),),
        started_s=job.started,
        attained_gpu_s=job.attained_gpu_seconds,
        score=job.score,
    )


def reduce_view(view: JobView, gpus: int) -> JobView:
    """Return the view of a waiting job without this many GPUs, fewer than it needs, that it gets anyway."""
    if not gpus:
        return view
    packed = view.curve.packed[gpus:].copy()
    packed[0] = 0.0
    return replace(
        view,
        curve=Curve(packed),
        requested_gpus=view.requested_gpus - gpus,
        min_gpus=view.min_gpus - gpus,
        max_gpus=view.max_gpus - gpus,
    )


def view_leases(
    leases: Sequence[Lease], boot: float, now: float, known: Collection[str] = ()
) -> Iterator[JobView]:
    """Yield leases and requests as jobs that keep what they have, except the leases in `known`."""
    counted = {gpu for lease in leases if lease.id in known for gpu in lease.gpus}
    for lease in leases:
        if lease.id in known:
            continue
        gpus = set(lease.gpus) - counted  # parts of one GPU count once
        counted |= gpus
        if lease.held and not gpus:
            continue
        count = len(gpus) if lease.held else lease.count
        seconds = lease.seconds
        if lease.held and lease.until_boot is not None:
            seconds = max(0.0, lease.until_boot - boot)
        yield JobView(
            id=name_lease(lease),
            curve=Curve.rigid(count),
            remaining_work=DEFAULT_SECONDS if seconds is None else seconds,
            requested_gpus=count,
            min_gpus=count,
            max_gpus=count,
            submitted_s=min(lease.requested_at, now),
            user=lease.user,
            priority=lease.priority,
            allocation=((0, count),) if lease.held else None,
            started_s=lease.start,
        )


def name_lease(lease: Lease) -> str:
    return f"lease {lease.id}"
