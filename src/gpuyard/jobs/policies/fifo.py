"""First come, first served: what most queues do when nobody has set them up."""

from typing import Any

from gpuyard.jobs.policies.base import JobView, QueuePolicy


class Fifo(QueuePolicy):
    """In the order of submission, those of a higher priority first; all wait for the first that doesn't fit."""

    name = "fifo"
    summary = "first come, first served, with the GPUs asked for"

    def rank(self, job: JobView) -> tuple[Any, ...]:
        return (-job.priority, job.submitted_s)
