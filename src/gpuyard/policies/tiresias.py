"""Tiresias (Gu et al., NSDI 2019): least attained service in two queues, for jobs of unknown length.

A job starts in the first queue and moves to the second after 16 GPU-hours. Within a queue, jobs run in order of
submission; a job that does not fit is skipped. Each job runs with the GPUs that its user requested.
"""

from collections.abc import Mapping, Sequence

from gpuyard.policies.base import Policy, QueuePolicy, RankedQueue
from gpuyard.policies.placement import place
from gpuyard.policies.views import Allocation, JobView, Pool

_FIRST_QUEUE_GPU_S = 16 * 3600.0  # as in the simulations of the Pollux paper


class Tiresias(Policy):
    """Two queues by attained GPU time; jobs that cannot resume are never stopped."""

    name = "tiresias"
    summary = "least GPU time so far first, in two queues, with the requested GPUs"

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        kept = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        free = pool.gpus - sum(kept.values())
        allocated = dict(kept)
        for job in sorted(jobs, key=_rank):
            if job.id not in kept and job.requested_gpus <= free:
                allocated[job.id] = job.requested_gpus
                free -= job.requested_gpus
        return allocated

    def place(
        self, gpus: Mapping[str, int], jobs: Sequence[JobView], pool: Pool
    ) -> Mapping[str, Allocation]:
        return place(gpus, sorted(jobs, key=_rank), pool, emptiest=True)

    def as_queue(self) -> QueuePolicy:
        return RankedQueue(
            self, _rank
        )  # a waiting job has had no GPUs, so it is in the first queue


def _rank(job: JobView) -> tuple[bool, int, float]:
    return (job.attained_gpu_s >= _FIRST_QUEUE_GPU_S, -job.priority, job.submitted_s)
