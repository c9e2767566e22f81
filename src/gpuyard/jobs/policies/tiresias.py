"""Tiresias (Gu et al., NSDI 2019): least attained service in two queues, for jobs of unknown length.

A job begins in the first queue and falls into the second when it has had 16 GPU-hours. Within a queue the first
submitted comes first; who doesn't fit is passed by. It runs with the GPUs that its user asked for.
"""

from collections.abc import Mapping, Sequence

from gpuyard.jobs.policies.base import Allocation, InOrder, JobView, Policy, Pool, QueuePolicy
from gpuyard.jobs.policies.placement import place

_FIRST_QUEUE_GPU_S = 16 * 3600.0  # what the simulations of the Pollux paper set


class Tiresias(Policy):
    """Two queues by GPU time so far; those that can't go on after a stop are left alone."""

    name = "tiresias"
    summary = "least GPU time so far first, in two queues, with the GPUs asked for"

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        kept = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        left = pool.gpus - sum(kept.values())
        given = dict(kept)
        for job in sorted(jobs, key=_turn):
            if job.id not in kept and job.asked_gpus <= left:
                given[job.id] = job.asked_gpus
                left -= job.asked_gpus
        return given

    def place(
        self, gpus: Mapping[str, int], jobs: Sequence[JobView], pool: Pool
    ) -> Mapping[str, Allocation]:
        return place(gpus, sorted(jobs, key=_turn), pool, emptiest=True)

    def as_queue(self) -> QueuePolicy:
        return InOrder(self, _turn)  # who waits has had nothing, and stays in the first queue


def _turn(job: JobView) -> tuple[bool, int, float]:
    return (job.attained_gpu_s >= _FIRST_QUEUE_GPU_S, -job.priority, job.submitted_s)
