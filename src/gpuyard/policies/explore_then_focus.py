"""For sweeps: many small trials first, then all GPUs for the best."""

from collections.abc import Mapping, Sequence

import numpy as np

from gpuyard.policies.base import Policy
from gpuyard.policies.views import JobView, Pool


class ExploreThenFocus(Policy):
    """Runs every trial on its minimum of GPUs until it has had its GPU-seconds.

    The remaining GPUs go to the best of the explored trials: by score, or to the one that can finish soonest.
    """

    name = "explore-then-focus"
    summary = "a short trial of each job on its fewest GPUs, then all GPUs for the best"

    def __init__(self, explore_gpu_s: float = 3600.0) -> None:
        self.explore_gpu_s = explore_gpu_s

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        allocated = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        free = pool.gpus - sum(allocated.values())
        movable = [job for job in jobs if job.id not in allocated]
        trials = [job for job in movable if job.attained_gpu_s < self.explore_gpu_s]
        explored = sorted(
            (job for job in movable if job.attained_gpu_s >= self.explore_gpu_s), key=_rank
        )
        fair_share = 1 if explored else free // max(1, len(trials))
        # powers of two, so that one more or fewer trial rarely moves all others
        per_trial = 1 << max(0, fair_share.bit_length() - 1)
        for job in sorted(trials, key=lambda job: (-job.priority, job.submitted_s)):
            gpus = max(job.min_gpus, min(per_trial, job.max_gpus))
            gpus = gpus if gpus <= free else job.min_gpus
            if gpus <= free:
                allocated[job.id] = gpus
                free -= gpus
        for job in explored:
            gpus = _find_fastest(job, free)
            if gpus:
                allocated[job.id] = gpus
                free -= gpus
        return allocated


def _rank(job: JobView) -> tuple[int, float, float]:
    """Rank the best trial first."""
    score = float("-inf") if job.score is None else job.score
    return (-job.priority, -score, job.remaining_seconds(job.max_gpus, include_restart=False))


def _find_fastest(job: JobView, free: int) -> int:
    """Return the number of GPUs with which the job ends first; a restart counts for any other than its own."""
    max_gpus = min(job.max_gpus, free)
    if max_gpus < job.min_gpus:
        return 0
    counts = np.arange(job.min_gpus, max_gpus + 1)
    speeds = job.curve.packed[np.minimum(counts, job.curve.max_gpus)]
    seconds = np.full(len(counts), np.inf)
    np.divide(job.remaining_work, speeds, out=seconds, where=speeds > 0)
    seconds += np.where(counts == job.gpus, 0.0, job.restart_s)
    fastest = int(seconds.argmin())
    return int(counts[fastest]) if np.isfinite(seconds[fastest]) else 0
