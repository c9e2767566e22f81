"""Optimus (Peng et al., EuroSys 2018): one GPU each, then the next GPU to the job whose remaining time it shortens
most. The remaining work is known to it, as in the Pollux paper's "Optimus+Oracle"."""

import heapq
from collections.abc import Mapping, Sequence

from gpuyard.jobs.policies.base import Allocation, InOrder, JobView, Policy, Pool, QueuePolicy
from gpuyard.jobs.policies.placement import place


class Optimus(Policy):
    """Greedy by remaining time; it stops where no single GPU helps any job."""

    name = "optimus"
    summary = "one GPU each, then the next to the job whose remaining time it shortens most"

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        given = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        left = pool.gpus - sum(given.values())
        for job in sorted(jobs, key=lambda job: (-job.priority, job.submitted_s)):
            if job.id not in given and job.least_gpus <= left:
                given[job.id] = job.least_gpus
                left -= job.least_gpus
        gains = [
            (-gain, at)
            for at, job in enumerate(jobs)
            if job.elastic and job.id in given and (gain := _gain(job, given[job.id])) > 0
        ]
        heapq.heapify(gains)
        while left and gains:
            _, at = heapq.heappop(gains)
            job = jobs[at]
            given[job.id] += 1
            left -= 1
            gain = _gain(job, given[job.id])
            if gain > 0:
                heapq.heappush(gains, (-gain, at))
        return given

    def place(
        self, gpus: Mapping[str, int], jobs: Sequence[JobView], pool: Pool
    ) -> Mapping[str, Allocation]:
        """The smallest first, as in the paper."""
        order = sorted(jobs, key=lambda job: gpus.get(job.id, 0))
        return place(gpus, order, pool, emptiest=True)

    def as_queue(self) -> QueuePolicy:
        return InOrder(self, lambda job: (-job.priority, job.submitted_s))


def _gain(job: JobView, gpus: int) -> float:
    """Seconds that one GPU more saves."""
    if gpus >= job.most_gpus:
        return 0.0
    return job.seconds_left(gpus, charged=False) - job.seconds_left(gpus + 1, charged=False)
