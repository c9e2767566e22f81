"""The lowest mean completion time: each GPU goes where its marginal gain is largest, restarts charged.

A second that a job saves is saved for itself and for all longer jobs, since they get its GPUs when it ends. So a job's
speed counts as often as there are jobs at least as long, by weight. If all jobs scale linearly, this is Smith's rule: the
shortest first. If they scale as a power of their GPUs, it is close to heSRPT (Berg, Vesilo, Harchol-Balter, 2020), which is
then optimal. If there are only a few possible allocations, `brute_force` finds the best of them, now and at later ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import comb, inf, prod

import numpy as np

from gpuyard.policies.base import Policy, QueuePolicy, RankedQueue
from gpuyard.policies.brute_force import AllocationSearch
from gpuyard.policies.curve import CurvePoint, concave_hull
from gpuyard.policies.placement import place
from gpuyard.policies.views import JobView, Pool, count_gpus

_HORIZON_S = 3600.0  # within which a restart must pay off: later the GPUs are reallocated anyway
_MAX_ATTEMPTS = 3  # to reallocate GPUs that splitting over machines would waste
_MAX_BRUTE_FORCE = 200  # allocations
_MAX_SEARCH_STEPS = 4000  # allocations at later ends that the search may try
_SHARE_FACTOR = 2  # jobs' lengths are compared on this multiple of an equal share of the GPUs


class MinTime(Policy):
    """Greedy by marginal gain along each curve's concave hull, so that it sees beyond plateaus."""

    name = "min-time"
    summary = (
        "lowest mean completion time: each GPU goes to the job that gains most, restarts included"
    )
    only_on_change = True

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        kept = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        free = pool.gpus - sum(kept.values())
        movable = [job for job in jobs if job.id not in kept]
        allocated = kept | (
            _allocate_brute_force(movable, free) or _allocate_greedily(movable, free)
        )
        for _ in range(_MAX_ATTEMPTS):
            useful = _find_wasteful_splits(allocated, jobs, pool)
            if not useful:
                break
            movable = [replace(job, max_gpus=useful.get(job.id, job.max_gpus)) for job in movable]
            allocated = kept | _allocate_greedily(movable, free)
        return allocated

    def as_queue(self) -> QueuePolicy:
        """Order jobs by GPU-seconds, which equals urgency if jobs cannot be resized; never use brute force."""
        return RankedQueue(self, _rank_by_gpu_seconds)


def _find_wasteful_splits(
    allocated: Mapping[str, int], jobs: Sequence[JobView], pool: Pool
) -> dict[str, int]:
    """Return the better number of GPUs for each job that would be faster with fewer GPUs on fewer machines."""
    placed = place(allocated, jobs, pool, shrink=True)
    fewer = {job_id: count_gpus(allocation) for job_id, allocation in placed.items()}
    return {job_id: gpus for job_id, gpus in fewer.items() if gpus < allocated[job_id]}


def _rank_by_gpu_seconds(job: JobView) -> tuple[int, float, float]:
    alone_s = job.remaining_seconds(job.requested_gpus)
    return (-job.priority, job.requested_gpus * alone_s / job.weight, job.submitted_s)


def _allocate_greedily(jobs: Sequence[JobView], free: int) -> dict[str, int]:
    """Make the best step that fits, again and again; then use the remaining GPUs for parts of steps."""
    allocated = dict.fromkeys((job.id for job in jobs), 0)
    refused = []
    for _, _, index, low, high in _list_steps(jobs, free):
        job = jobs[index]
        if allocated[job.id] == low and high - low <= free:
            allocated[job.id] = high
            free -= high - low
        else:
            refused.append((index, low, high))
    for index, low, high in refused:
        job = jobs[index]
        if free > 0 and allocated[job.id] == low:
            added = _size_partial_step(job, low, min(high, low + free))
            allocated[job.id] += added
            free -= added
    return {job_id: gpus for job_id, gpus in allocated.items() if gpus}


def _allocate_brute_force(jobs: Sequence[JobView], free: int) -> dict[str, int] | None:
    """Return the best of all allocations, or None if there are too many."""
    counts = [(0, *range(max(1, job.min_gpus), min(job.max_gpus, free) + 1)) for job in jobs]
    priorities = {job.priority for job in jobs}
    possible = min(prod(map(len, counts)), comb(free + len(jobs), len(jobs)))
    if len(priorities) > 1 or not 1 < possible <= _MAX_BRUTE_FORCE:
        return None
    best, lowest = None, inf
    for option in product(*counts):
        if 0 < sum(option) <= free:
            allocated = {job.id: gpus for job, gpus in zip(jobs, option, strict=True) if gpus}
            total = _simulate_greedy(jobs, free, allocated)
            if total < lowest:
                best, lowest = allocated, total
    return (
        None
        if best is None
        else AllocationSearch(jobs, free, _MAX_SEARCH_STEPS).improve(best, lowest)
    )


def _simulate_greedy(jobs: Sequence[JobView], gpus: int, allocated: Mapping[str, int]) -> float:
    """Return the weighted sum of completion times from now if later allocations are greedy, at each end."""
    total = now_s = 0.0
    while jobs:
        remaining = {job.id: job.remaining_seconds(allocated.get(job.id, 0)) for job in jobs}
        step_s = min(remaining.values())
        if step_s == inf:
            return inf
        now_s += step_s
        total += now_s * sum(job.weight for job in jobs if remaining[job.id] <= step_s)
        jobs = [
            _advance(job, allocated.get(job.id, 0), step_s)
            for job in jobs
            if remaining[job.id] > step_s
        ]
        allocated = _allocate_greedily(jobs, gpus)
    return total


def _advance(job: JobView, gpus: int, seconds: float) -> JobView:
    lost_s = job.restart_s if gpus != job.gpus else job.startup_s
    done = job.curve.speed(gpus) * max(0.0, seconds - lost_s)
    return replace(
        job,
        remaining_work=max(0.0, job.remaining_work - done),
        allocation=((0, gpus),) if gpus else None,
        startup_s=max(0.0, lost_s - seconds),
    )


def _list_steps(jobs: Sequence[JobView], gpus: int) -> list[tuple[int, float, int, int, int]]:
    """Return each job's steps up its hull, best first: (−priority, −gain per GPU, job, from GPUs, to GPUs)."""
    steps = []
    for index, (job, urgency) in enumerate(zip(jobs, _rate_urgency(jobs, gpus), strict=True)):
        for (low, slow), (high, fast) in pairwise(_value_hull(job, gpus)):
            gain = urgency * (fast - slow) / (high - low)
            steps.append((-job.priority, -gain, index, low, high))
    return sorted(steps)


def _rate_urgency(jobs: Sequence[JobView], gpus: int) -> list[float]:
    """Return the value of a unit of each job's work: how many wait for it, times how long it takes."""
    if not jobs:
        return []
    share = max(1, round(_SHARE_FACTOR * gpus / len(jobs)))
    lengths = []
    for job in jobs:
        speeds = job.curve.best
        count = min(max(share, job.min_gpus), job.max_gpus, len(speeds) - 1)
        lengths.append(count / speeds[count] if speeds[count] > 0 else 0.0)  # GPU-seconds per work
    work = np.array([job.remaining_work for job in jobs])
    weights = np.array([job.weight for job in jobs])
    per_work = np.array(lengths)
    longest_first = np.argsort(per_work * work / weights, kind="stable")[::-1]
    behind = np.empty(len(jobs))
    behind[longest_first] = np.cumsum(weights[longest_first])
    urgencies: list[float] = (behind * per_work).tolist()
    return urgencies


def _value_hull(job: JobView, gpus: int) -> list[CurvePoint]:
    """Return the hull of the job's speeds, each reduced by the cost of the restart that leads there."""
    hull = job.curve.hull(job.min_gpus, min(job.max_gpus, gpus))
    if not job.restart_s and not job.running:
        return list(hull)
    points = {}
    for count, speed in hull[1:]:
        run_s = min(job.remaining_work / speed, _HORIZON_S)
        points[count] = speed * run_s / (run_s + job.restart_s)
    if job.running:
        points[job.gpus] = job.curve.speed(job.gpus)
    return concave_hull(sorted(points.items()))


def _size_partial_step(job: JobView, low: int, high: int) -> int:
    """Return how many GPUs to add for a step that does not fit whole; 0 if that would restart the job."""
    if job.running and low == job.gpus:
        return 0
    speeds = job.curve.packed[low : high + 1].copy()
    speeds[1 : max(1, job.min_gpus - low)] = 0.0
    return int(speeds.argmax())
