"""Equal shares for all users: the user who holds the fewest GPUs is next."""

from typing import Any

from gpuyard.policies.base import QueuePolicy
from gpuyard.policies.views import JobView


class FairShare(QueuePolicy):
    """Keeps one queue per user, ordered by priority, then submission. A weight of 2 counts as two users."""

    name = "fair-share"
    summary = "the user with the fewest GPUs for their weight is next, with the requested GPUs"
    backfill = 8

    def rank(self, job: JobView) -> tuple[Any, ...]:
        return (-job.priority, job.submitted_s)

    def queue_key(self, job: JobView) -> str:
        return job.user or job.group

    def usage(self, key: str, held_gpus: int, weight: float) -> float:
        return held_gpus / weight if weight > 0 else float("inf")
