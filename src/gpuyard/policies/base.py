"""The interface of policies.

    jobs (JobView) + machines (Pool) + now  →  GPUs for each job

`placement` chooses the machines. Policies keep no state between decisions: the view has all that they need to know of the
past, such as a job's GPU-seconds so far and its first start.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from gpuyard.policies.placement import place
from gpuyard.policies.views import Allocation, JobView, Pool


class Policy(ABC):
    """A rule that allocates GPUs to jobs, without state."""

    name: ClassVar[str]
    summary: ClassVar[str]  # one line for people
    round_s: ClassVar[float | None] = 60.0
    """The time between decisions; None decides at every submission and every end."""
    only_on_change: ClassVar[bool] = False
    """True if a round can be skipped when no job came or ended since the last one."""

    @abstractmethod
    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        """Return GPUs by job id, at most `pool.gpus` in total; a job that is not named gets none.

        A running job that is not `elastic` keeps its GPUs. Others get none, or from `min_gpus` to `max_gpus`.
        """

    def place(
        self, gpus: Mapping[str, int], jobs: Sequence[JobView], pool: Pool
    ) -> Mapping[str, Allocation]:
        """Choose machines for the GPUs that `allocate` returned."""
        return place(gpus, jobs, pool)

    def withholds_for(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> str | None:
        """Return the waiting job for which GPUs stay idle on purpose; None if the policy does that for none.

        Jobs that start now are already running in `jobs`.
        """
        return None

    def as_queue(self) -> "QueuePolicy | None":
        """Return an equivalent queue for jobs that can be neither stopped nor resized.

        None if the policy's order of waiting jobs changes with time. Only a queue is fast enough for histories of
        many thousands of jobs.
        """
        return None


class QueuePolicy(Policy):
    """A policy that starts jobs in some order with the GPUs that they request, and never stops one.

    Jobs with the same `queue_key` wait in one queue, ordered by `rank`, which must not change while they wait. The first
    job of the queue with the lowest `usage` is next. `WaitingQueues` implements this for a single decision, and from event
    to event in the simulator, which must not sort 80,000 jobs 160,000 times.
    """

    round_s: ClassVar[float | None] = None
    backfill: ClassVar[int] = 0
    """How many jobs behind the next one are tried if it does not fit; 0: all wait for it."""
    skips_blocked: ClassVar[bool] = False
    """True if a job that does not fit is skipped, by any number of jobs behind it."""

    @abstractmethod
    def rank(self, job: JobView) -> tuple[Any, ...]:
        """Return the sort key within a queue; the smallest is first."""

    def queue_key(self, job: JobView) -> str:
        """Return the queue that the job waits in; by default, all share one."""
        return ""

    def usage(self, key: str, held_gpus: int, weight: float) -> float:
        """Return the queue's usage, given the GPUs of its running jobs and the weight of its first job."""
        return 0.0

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        queues = WaitingQueues(self)
        for job in jobs:
            if job.running:
                queues.hold(self.queue_key(job), job.gpus)
            else:
                queues.add(job)
        kept = {job.id: job.gpus for job in jobs if job.running}
        started = queues.start(pool.gpus - sum(kept.values()))
        return kept | {job.id: job.requested_gpus for job in started}

    def withholds_for(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> str | None:
        """Return the first job that does not fit if those behind it wait for it."""
        if self.skips_blocked:
            return None
        queues = WaitingQueues(self)
        for job in jobs:
            if job.running:
                queues.hold(self.queue_key(job), job.gpus)
            else:
                queues.add(replace(job, requested_gpus=job.min_gpus))
        queues.start(pool.gpus - sum(job.gpus for job in jobs))
        return queues.blocked


class RankedQueue(QueuePolicy):
    """Another policy as a queue: the first job by rank that fits, however many wait before it."""

    skips_blocked = True

    def __init__(self, policy: Policy, rank: Callable[[JobView], tuple[Any, ...]]) -> None:
        self.name = policy.name  # type: ignore[misc]
        self.summary = policy.summary  # type: ignore[misc]
        self.round_s = policy.round_s  # type: ignore[misc]
        self._rank = rank

    def rank(self, job: JobView) -> tuple[Any, ...]:
        return self._rank(job)


_Entry = tuple[tuple[Any, ...], int, JobView]
_Queue = tuple[str, int]
"""The queue's key, and the GPUs that each of its jobs requests; 0 if they differ."""


@dataclass
class WaitingQueues:
    """The waiting jobs under a `QueuePolicy`, and the GPUs that each queue's running jobs hold."""

    policy: QueuePolicy
    held: dict[str, int] = field(default_factory=dict)
    blocked: str | None = None
    """The first job that did not fit, if jobs behind it were not tried any more."""
    _waiting: dict[_Queue, list[_Entry]] = field(default_factory=dict)
    _added: int = 0

    def add(self, job: JobView) -> None:
        # if blocked jobs are skipped, there is one queue per number of GPUs: jobs that cannot fit are never looked at
        queue = self.policy.queue_key(job), job.requested_gpus if self.policy.skips_blocked else 0
        entry = self.policy.rank(job), self._added, job
        heapq.heappush(self._waiting.setdefault(queue, []), entry)
        self._added += 1

    def hold(self, key: str, gpus: int) -> None:
        """Count that many more GPUs as held by the queue's running jobs; fewer if negative."""
        self.held[key] = self.held.get(key, 0) + gpus

    def start(self, free: int) -> list[JobView]:
        """Remove and return the jobs that start on the free GPUs, which they now hold."""
        started = []
        blocked: list[tuple[_Queue, _Entry]] = []
        while free > 0 and (queue := self._next_queue(free)) is not None:
            entry = heapq.heappop(self._waiting[queue])
            if not self._waiting[queue]:
                del self._waiting[queue]
            job = entry[2]
            if job.requested_gpus <= free:
                free -= job.requested_gpus
                self.hold(queue[0], job.requested_gpus)
                started.append(job)
                continue
            blocked.append((queue, entry))
            if len(blocked) > self.policy.backfill:
                self.blocked = blocked[0][1][2].id
                break
        for queue, entry in blocked:
            heapq.heappush(self._waiting.setdefault(queue, []), entry)
        return started

    def _next_queue(self, free: int) -> _Queue | None:
        fitting = [queue for queue in self._waiting if queue[1] <= free]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        return min(fitting, key=self._order)

    def _order(self, queue: _Queue) -> tuple[float, tuple[Any, ...], int]:
        rank, added, first = self._waiting[queue][0]
        usage = self.policy.usage(queue[0], self.held.get(queue[0], 0), first.weight)
        return usage, rank, added
