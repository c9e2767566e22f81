"""A job of the store as policies see it."""

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.engines.local.store import Row
from gpuyard.jobs.policies import JobView

_UNKNOWN_SECONDS = 3600.0  # a job of which nothing is known is taken to last so long


def view_of(row: Row, total_gpus: int) -> JobView:
    """What it asks for, at most what this machine has; its work is in seconds where its curve is not known."""
    job, spec = row.job, row.job.spec
    most = min(spec.gpus.max, total_gpus)
    return JobView(
        id=str(row.number),
        curve=Curve.rigid(most),
        remaining_work=spec.time_limit or _UNKNOWN_SECONDS,
        asked_gpus=most,
        least_gpus=min(spec.gpus.min, most),
        most_gpus=most,
        submitted_s=job.submitted,
        deadline_s=job.deadline,
        priority=spec.priority,
        allocation=((0, row.gpus),) if row.gpus is not None else None,
        started_s=row.started,
    )
