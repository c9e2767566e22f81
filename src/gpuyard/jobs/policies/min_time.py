"""The lowest mean completion time: each GPU goes where its marginal gain is largest, restarts charged.

A second that a job saves is saved for itself and for all that are longer, since these get its GPUs when it ends. So
a job's speed counts as often as there are jobs at least as long (by weight, where jobs have weights). Where all scale
linearly this is Smith's rule, the shortest first; where they scale as a power of their GPUs, nearly heSRPT (Berg,
Vesilo, Harchol-Balter, 2020), which is optimal there. Where GPUs can be dealt in a few ways only, `few` seeks the best
of all, now and at later ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import comb, inf, prod

import numpy as np

from gpuyard.jobs.curve import CurvePoint, hull_of
from gpuyard.jobs.policies.base import InOrder, JobView, Policy, Pool, QueuePolicy, gpus_of
from gpuyard.jobs.policies.few import DealSearch
from gpuyard.jobs.policies.placement import place

_HORIZON_S = 3600.0  # a restart has to pay for itself within: later the GPUs are dealt anew anyhow
_ATTEMPTS = 3  # to deal again what splits would waste
_MOST_WAYS = 200  # that are followed
_EFFORT = 4000  # ways that are looked at to deal better at later ends, too
_OF_FAIR_SHARE = 2  # jobs' lengths are compared on so many times an equal share of the GPUs


class MinTime(Policy):
    """Greedy by marginal gain along each curve's concave hull, so that a step past a plateau is seen."""

    name = "min-time"
    summary = "lowest mean completion time: the next GPU where it gains most, restarts charged"
    only_on_change = True

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        given = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        left = pool.gpus - sum(given.values())
        free = [job for job in jobs if job.id not in given]
        dealt = given | (_best_of_few(free, left) or _greedy(free, left))
        for _ in range(_ATTEMPTS):
            slower = _split_in_vain(dealt, jobs, pool)
            if not slower:
                break
            free = [replace(job, most_gpus=slower.get(job.id, job.most_gpus)) for job in free]
            dealt = given | _greedy(free, left)
        return dealt

    def as_queue(self) -> QueuePolicy:
        """Urgency is then the order of GPU-seconds; what is dealt to a few is not tried in all ways."""
        return InOrder(self, _gpu_seconds)


def _split_in_vain(dealt: Mapping[str, int], jobs: Sequence[JobView], pool: Pool) -> dict[str, int]:
    """Of jobs that fewer GPUs on fewer machines would make faster than these, how many those are."""
    placed = place(dealt, jobs, pool, shrink=True)
    fewer = {job_id: gpus_of(allocation) for job_id, allocation in placed.items()}
    return {job_id: gpus for job_id, gpus in fewer.items() if gpus < dealt[job_id]}


def _gpu_seconds(job: JobView) -> tuple[int, float, float]:
    alone_s = job.seconds_left(job.asked_gpus)
    return (-job.priority, job.asked_gpus * alone_s / job.weight, job.submitted_s)


def _greedy(free: Sequence[JobView], left: int) -> dict[str, int]:
    """The best step that fits, again and again; then parts of steps for what is left over."""
    steps = _steps(free, left)
    got = dict.fromkeys((job.id for job in free), 0)
    refused = []
    for _, _, at, low, high in steps:
        job = free[at]
        if got[job.id] == low and high - low <= left:
            got[job.id] = high
            left -= high - low
        else:
            refused.append((at, low, high))
    for at, low, high in refused:
        if left and got[free[at].id] == low:
            more = _part(free[at], low, min(high, low + left))
            got[free[at].id] += more
            left -= more
    return {job_id: gpus for job_id, gpus in got.items() if gpus}


def _best_of_few(free: Sequence[JobView], left: int) -> dict[str, int] | None:
    """The best of all ways to deal, where they are few."""
    counts = [(0, *range(max(1, job.least_gpus), min(job.most_gpus, left) + 1)) for job in free]
    priorities = {job.priority for job in free}
    ways = min(prod(map(len, counts)), comb(left + len(free), len(free)))
    if len(priorities) > 1 or not 1 < ways <= _MOST_WAYS:
        return None
    best, least = None, inf
    for way in product(*counts):
        if 0 < sum(way) <= left:
            dealt = {job.id: gpus for job, gpus in zip(free, way, strict=True) if gpus}
            total = _followed(free, left, dealt)
            if total < least:
                best, least = dealt, total
    return None if best is None else DealSearch(free, left, _EFFORT).improve(best, least)


def _followed(jobs: Sequence[JobView], gpus: int, dealt: Mapping[str, int]) -> float:
    """The weighted sum of completion times, from now, if this is dealt now and greedily at each end."""
    total = now_s = 0.0
    while jobs:
        left = {job.id: job.seconds_left(dealt.get(job.id, 0)) for job in jobs}
        step_s = min(left.values())
        if step_s == inf:
            return inf
        now_s += step_s
        total += now_s * sum(job.weight for job in jobs if left[job.id] <= step_s)
        jobs = [_later(job, dealt.get(job.id, 0), step_s) for job in jobs if left[job.id] > step_s]
        dealt = _greedy(jobs, gpus)
    return total


def _later(job: JobView, gpus: int, seconds: float) -> JobView:
    lost = job.restart_s if gpus != job.gpus else job.starting_s
    return replace(
        job,
        remaining_work=max(
            0.0, job.remaining_work - job.curve.speed(gpus) * max(0.0, seconds - lost)
        ),
        allocation=((0, gpus),) if gpus else None,
        starting_s=max(0.0, lost - seconds),
    )


def _steps(jobs: Sequence[JobView], gpus: int) -> list[tuple[int, float, int, int, int]]:
    """Every job's way up its hull: (−priority, −gain a GPU, job, from GPUs, to GPUs), the best first."""
    steps = []
    for at, (job, urgency) in enumerate(zip(jobs, _urgencies(jobs, gpus), strict=True)):
        for (low, slow), (high, fast) in pairwise(_worth(job, gpus)):
            steps.append((-job.priority, -urgency * (fast - slow) / (high - low), at, low, high))
    return sorted(steps)


def _urgencies(jobs: Sequence[JobView], gpus: int) -> list[float]:
    """What a unit of each job's work is worth: how many wait for it, times how long it takes."""
    if not jobs:
        return []
    share = max(1, round(_OF_FAIR_SHARE * gpus / len(jobs)))
    lengths = []
    for job in jobs:
        speeds = job.curve.best
        on = min(max(share, job.least_gpus), job.most_gpus, len(speeds) - 1)
        lengths.append(on / speeds[on] if speeds[on] > 0 else 0.0)  # GPU-seconds a unit of work
    work = np.array([job.remaining_work for job in jobs])
    weights = np.array([job.weight for job in jobs])
    per_work = np.array(lengths)
    longest_first = np.argsort(per_work * work / weights, kind="stable")[::-1]
    behind = np.empty(len(jobs))
    behind[longest_first] = np.cumsum(weights[longest_first])
    urgencies: list[float] = (behind * per_work).tolist()
    return urgencies


def _worth(job: JobView, gpus: int) -> list[CurvePoint]:
    """The hull of its speeds, each less what the restart costs that leads there."""
    hull = job.curve.hull(job.least_gpus, min(job.most_gpus, gpus))
    if not job.restart_s and not job.running:
        return list(hull)
    points = {}
    for count, speed in hull[1:]:
        lasts_s = min(job.remaining_work / speed, _HORIZON_S)
        points[count] = speed * lasts_s / (lasts_s + job.restart_s)
    if job.running:
        points[job.gpus] = job.curve.speed(job.gpus)
    return hull_of(sorted(points.items()))


def _part(job: JobView, low: int, high: int) -> int:
    """How many GPUs more of a step that doesn't fit whole; none to a job that would be restarted for them."""
    if job.running and low == job.gpus:
        return 0
    speeds = job.curve.packed[low : high + 1].copy()
    speeds[1 : max(1, job.least_gpus - low)] = 0.0
    return int(speeds.argmax())
