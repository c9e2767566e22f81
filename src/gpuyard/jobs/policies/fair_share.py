"""Equal parts for all users: whoever holds the fewest GPUs is next."""

from typing import Any

from gpuyard.jobs.policies.base import JobView, QueuePolicy


class FairShare(QueuePolicy):
    """A line for each user; within it by priority, then in the order of submission. A weight of 2 counts as two users."""

    name = "fair-share"
    summary = "whoever holds the fewest GPUs for their weight is next, with the GPUs asked for"
    backfill = 8

    def rank(self, job: JobView) -> tuple[Any, ...]:
        return (-job.priority, job.submitted_s)

    def line_of(self, job: JobView) -> str:
        return job.user or job.group

    def claim(self, line: str, held_gpus: int, weight: float) -> float:
        return held_gpus / weight if weight > 0 else float("inf")
