"""Decisions: which waiting jobs start now and for whom idle GPUs are withheld, and which running jobs are resized.

The live queue and the simulator both use it. A policy allocates GPUs as if it could move every job at once. Here, running
jobs keep their GPUs until they are stopped, and no GPU that a waiting job could use stays idle, unless the policy
withholds it for another job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuyard.policies.base import Policy
from gpuyard.policies.views import JobView, Pool


@dataclass(frozen=True)
class Decision:
    """The starts in the policy's order, and the job for which idle GPUs are withheld."""

    starts: Mapping[str, int] = field(default_factory=dict)
    withheld_for: str | None = None
    withheld_gpus: int = 0


def decide(
    jobs: Sequence[JobView],
    policy: Policy,
    pool: Pool,
    now_s: float,
    *,
    overdue: str | None = None,
) -> Decision:
    """Decide about all jobs on the GPUs of the pool, which include those of running jobs.

    `overdue` is a job that has waited so long that it comes first under every policy.
    """
    free = pool.gpus - sum(job.gpus for job in jobs)
    if free <= 0:
        return Decision()
    first = next((job for job in jobs if job.id == overdue and job.min_gpus <= pool.gpus), None)
    if first is not None:
        if first.min_gpus > free:
            return Decision({}, first.id, free)
        return Decision({first.id: min(first.requested_gpus, free)})
    starts = _allocate_to_waiting(jobs, policy, pool, now_s)
    idle = free - sum(starts.values())
    waiting = [job for job in jobs if not job.running and job.id not in starts]
    if idle > 0 and waiting:
        started = [
            replace(job, allocation=((0, starts[job.id]),)) if job.id in starts else job
            for job in jobs
        ]
        withheld_for = policy.withholds_for(started, pool, now_s)
        if withheld_for is not None:
            return Decision(starts, withheld_for, idle)
        for job in sorted(waiting, key=lambda job: (-job.priority, job.submitted_s)):
            if job.min_gpus <= idle:
                starts[job.id] = min(max(job.requested_gpus, job.min_gpus), idle)
                idle -= starts[job.id]
    return Decision(starts)


def choose_resizes(
    jobs: Sequence[JobView], policy: Policy, pool: Pool, now_s: float
) -> dict[str, int]:
    """Return job → new number of GPUs (0: it waits) for the running jobs that should be resized.

    A job grows only if it finishes sooner, including the restart. A job shrinks to make room for others; the policy
    decides whether that gains more than it costs.
    """
    allocation = _allocate(jobs, policy, pool, now_s)
    resizes = {}
    for job in jobs:
        count = allocation.get(job.id, 0)
        if not job.running or not job.elastic or count == job.gpus:
            continue
        if count > job.gpus and job.remaining_seconds(count) >= job.remaining_seconds(job.gpus):
            continue
        resizes[job.id] = count
    return resizes


def _allocate_to_waiting(
    jobs: Sequence[JobView], policy: Policy, pool: Pool, now_s: float
) -> dict[str, int]:
    """Return job → GPUs in the policy's order; running jobs keep their GPUs until they are stopped."""
    allocation = _allocate(jobs, policy, pool, now_s)
    remaining = pool.gpus - sum(allocation.values())
    if remaining > 0:  # a job that can run on fewer GPUs than it requests need not wait for all
        reduced = [
            job if allocation.get(job.id) else _reduce_request(job, remaining) for job in jobs
        ]
        if reduced != jobs:
            allocation = _allocate(reduced, policy, pool, now_s)
    waiting = {job.id for job in jobs if not job.running}
    remaining = pool.gpus - sum(job.gpus for job in jobs)
    starts = {}
    for id_, count in allocation.items():
        if id_ in waiting and 0 < count <= remaining:
            starts[id_] = count
            remaining -= count
    return starts


def _allocate(
    jobs: Sequence[JobView], policy: Policy, pool: Pool, now_s: float
) -> Mapping[str, int]:
    return policy.allocate(jobs, pool, now_s) if pool.gpus > 0 else {}


def _reduce_request(job: JobView, remaining: int) -> JobView:
    if job.running or not job.min_gpus <= remaining < job.requested_gpus:
        return job
    return replace(job, requested_gpus=remaining)
