"""First come, first served: the default of most queues."""

from typing import Any

from gpuyard.policies.base import QueuePolicy
from gpuyard.policies.views import JobView


class Fifo(QueuePolicy):
    """Starts jobs by priority, then in order of submission; all wait for the first one that does not fit."""

    name = "fifo"
    summary = "first come, first served, with the requested GPUs"

    def rank(self, job: JobView) -> tuple[Any, ...]:
        return (-job.priority, job.submitted_s)
