"""Shortest remaining time first, for jobs whose curves tell how long they take."""

from collections.abc import Mapping, Sequence

from gpuyard.policies.base import Policy, QueuePolicy, RankedQueue
from gpuyard.policies.views import JobView, Pool


class ShortestFirst(Policy):
    """Runs the shortest jobs with the GPUs that they request.

    A shorter job stops a longer one only if that one can resume later and if their remaining times differ by more than
    the restart.
    """

    name = "shortest-first"
    summary = "shortest remaining time first, with the requested GPUs"
    round_s = None
    only_on_change = True  # running jobs only get shorter

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        allocated = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        free = pool.gpus - sum(allocated.values())
        candidates = [job for job in jobs if job.id not in allocated]
        for job in sorted(candidates, key=_rank):
            gpus = job.gpus or job.requested_gpus
            if gpus <= free:
                allocated[job.id] = gpus
                free -= gpus
        return allocated

    def as_queue(self) -> QueuePolicy:
        return RankedQueue(self, _rank)


def _rank(job: JobView) -> tuple[int, float, float]:
    """Rank by remaining time. A waiting job would start and also cost the job that it stops a restart."""
    gpus = job.gpus or job.requested_gpus
    stop_s = 0.0 if job.running else job.restart_s
    return (-job.priority, job.remaining_seconds(gpus) + stop_s, job.submitted_s)
