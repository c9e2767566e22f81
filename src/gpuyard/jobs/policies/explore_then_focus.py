"""For sweeps: many small trials first, then all GPUs on the best."""

from collections.abc import Mapping, Sequence

import numpy as np

from gpuyard.jobs.policies.base import JobView, Policy, Pool


class ExploreThenFocus(Policy):
    """Every trial first gets its least GPUs until it has had so many GPU-seconds. What they leave goes to the best of
    those that were tried: by score, else the one that can be finished soonest."""

    name = "explore-then-focus"
    summary = "every trial a little on its least GPUs, then all GPUs to the best ones"

    def __init__(self, explore_gpu_s: float = 3600.0) -> None:
        self.explore_gpu_s = explore_gpu_s

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        given = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        left = pool.gpus - sum(given.values())
        free = [job for job in jobs if job.id not in given]
        trials = [job for job in free if job.attained_gpu_s < self.explore_gpu_s]
        tried = sorted(
            (job for job in free if job.attained_gpu_s >= self.explore_gpu_s), key=_worth
        )
        abreast = 1 if tried else left // max(1, len(trials))
        # powers of two, so that a trial more or less seldom moves all others
        each = 1 << max(0, abreast.bit_length() - 1)
        for job in sorted(trials, key=lambda job: (-job.priority, job.submitted_s)):
            gpus = max(job.least_gpus, min(each, job.most_gpus))
            gpus = gpus if gpus <= left else job.least_gpus
            if gpus <= left:
                given[job.id] = gpus
                left -= gpus
        for job in tried:
            gpus = _focused(job, left)
            if gpus:
                given[job.id] = gpus
                left -= gpus
        return given


def _worth(job: JobView) -> tuple[int, float, float]:
    """The best first."""
    score = float("-inf") if job.score is None else job.score
    return (-job.priority, -score, job.seconds_left(job.most_gpus, charged=False))


def _focused(job: JobView, free: int) -> int:
    """The number of GPUs, of those that are free, with which it ends first; where it has them, it stays on them."""
    most = min(job.most_gpus, free)
    if most < job.least_gpus:
        return 0
    counts = np.arange(job.least_gpus, most + 1)
    speeds = job.curve.packed[np.minimum(counts, job.curve.most_gpus)]
    seconds = np.full(len(counts), np.inf)
    np.divide(job.remaining_work, speeds, out=seconds, where=speeds > 0)
    seconds += np.where(counts == job.gpus, 0.0, job.restart_s)
    first = int(seconds.argmin())
    return int(counts[first]) if np.isfinite(seconds[first]) else 0
