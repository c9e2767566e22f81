"""Optimus (Peng et al., EuroSys 2018): one GPU for each job, then each further GPU to the job that gains most.

The gain is the reduction of the remaining time. The remaining work is known, as for "Optimus+Oracle" in the Pollux paper.
"""

import heapq
from collections.abc import Mapping, Sequence

from gpuyard.policies.base import Policy, QueuePolicy, RankedQueue
from gpuyard.policies.placement import place
from gpuyard.policies.views import Allocation, JobView, Pool


class Optimus(Policy):
    """Greedy by remaining time; stops when no single GPU helps any job."""

    name = "optimus"
    summary = "one GPU each, then the next to the job whose remaining time it shortens most"

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        allocated = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        free = pool.gpus - sum(allocated.values())
        for job in sorted(jobs, key=lambda job: (-job.priority, job.submitted_s)):
            if job.id not in allocated and job.min_gpus <= free:
                allocated[job.id] = job.min_gpus
                free -= job.min_gpus
        gains = [
            (-gain, index)
            for index, job in enumerate(jobs)
            if job.elastic and job.id in allocated and (gain := _gain(job, allocated[job.id])) > 0
        ]
        heapq.heapify(gains)
        while free and gains:
            _, index = heapq.heappop(gains)
            job = jobs[index]
            allocated[job.id] += 1
            free -= 1
            gain = _gain(job, allocated[job.id])
            if gain > 0:
                heapq.heappush(gains, (-gain, index))
        return allocated

    def place(
        self, gpus: Mapping[str, int], jobs: Sequence[JobView], pool: Pool
    ) -> Mapping[str, Allocation]:
        """Place the smallest jobs first, as in the paper."""
        order = sorted(jobs, key=lambda job: gpus.get(job.id, 0))
        return place(gpus, order, pool, emptiest=True)

    def as_queue(self) -> QueuePolicy:
        return RankedQueue(self, lambda job: (-job.priority, job.submitted_s))


def _gain(job: JobView, gpus: int) -> float:
    """Return the seconds that one more GPU saves."""
    if gpus >= job.max_gpus:
        return 0.0
    before = job.remaining_seconds(gpus, include_restart=False)
    return before - job.remaining_seconds(gpus + 1, include_restart=False)
