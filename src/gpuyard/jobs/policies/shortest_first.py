"""Shortest remaining time first, for jobs whose curves say how long they take."""

from collections.abc import Mapping, Sequence

from gpuyard.jobs.policies.base import InOrder, JobView, Policy, Pool, QueuePolicy


class ShortestFirst(Policy):
    """With the GPUs asked for. A shorter job stops a longer one only if that can go on later, and only if what is
    left of both differs by more than the restart."""

    name = "shortest-first"
    summary = "the job with the least time left first, with the GPUs asked for"
    round_s = None
    only_on_change = True  # those that run only get shorter

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        given = {job.id: job.gpus for job in jobs if job.running and not job.elastic}
        left = pool.gpus - sum(given.values())
        waiting = [job for job in jobs if job.id not in given]
        for job in sorted(waiting, key=_turn):
            gpus = job.gpus or job.asked_gpus
            if gpus <= left:
                given[job.id] = gpus
                left -= gpus
        return given

    def as_queue(self) -> QueuePolicy:
        return InOrder(self, _turn)


def _turn(job: JobView) -> tuple[int, float, float]:
    """What runs need not start; what waits would have to, and to stop another one for it costs that one a restart."""
    gpus = job.gpus or job.asked_gpus
    stop_s = 0.0 if job.running else job.restart_s
    return (-job.priority, job.seconds_left(gpus) + stop_s, job.submitted_s)
