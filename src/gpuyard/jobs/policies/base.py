"""What a policy is told and what it answers.

    jobs (JobView) + what there is (Pool) + now  →  GPUs for each job

Which machines they are on is `placement`'s part. Policies keep nothing between two decisions: what they need to
know of the past (GPU-seconds so far, when it started) is in the view.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies.placement import place

Allocation = tuple[tuple[int, int], ...]
"""(machine, GPUs of it), in the machines' order: a job's GPUs."""


def gpus_of(allocation: Allocation | None) -> int:
    """How many they are."""
    return sum(gpus for _, gpus in allocation) if allocation else 0


@dataclass(frozen=True, slots=True)
class JobView:
    """One job that waits or runs, as policies see it."""

    id: str
    curve: Curve
    remaining_work: float  # in the curve's unit
    asked_gpus: int = 1  # what its user named
    least_gpus: int = 1
    most_gpus: int = 1
    submitted_s: float = 0.0
    user: str = ""
    group: str = ""
    deadline_s: float | None = None
    weight: float = 1.0
    priority: int = 0  # higher comes first
    elastic: bool = False  # can be stopped and go on, with any number of GPUs from least to most
    restart_s: float = 0.0  # what a stop and a start again costs
    allocation: Allocation | None = None  # its GPUs now; None while it waits
    started_s: float | None = None  # for the first time
    attained_gpu_s: float = 0.0  # what it had so far
    score: float | None = None  # how good its result is so far, higher is better
    starting_s: float = 0.0  # from now, until it works on the GPUs that it has

    @property
    def gpus(self) -> int:
        """It has now."""
        return gpus_of(self.allocation)

    @property
    def running(self) -> bool:
        return self.allocation is not None

    def seconds_left(self, gpus: int, *, charged: bool = True) -> float:
        """Until its end with so many GPUs from now on; `charged` adds the restart that a change costs."""
        stop = self.restart_s if gpus != self.gpus else self.starting_s
        return (stop if charged else 0.0) + self.curve.seconds(self.remaining_work, gpus)


@dataclass(frozen=True)
class Pool:
    """Machines and how many GPUs each has."""

    gpus_by_machine: tuple[int, ...]
    racks: tuple[int, ...] | None = None  # of each machine

    @classmethod
    def uniform(cls, machines: int, gpus: int, per_rack: int | None = None) -> "Pool":
        racks = tuple(m // per_rack for m in range(machines)) if per_rack else None
        return cls((gpus,) * machines, racks)

    @cached_property
    def gpus(self) -> int:
        """Total."""
        return sum(self.gpus_by_machine)

    def racks_of(self, allocation: Allocation) -> int:
        """How many racks these GPUs are in; 1 where nobody says."""
        if self.racks is None or len(allocation) < 2:
            return 1
        return len({self.racks[machine] for machine, _ in allocation})

    def free(self, jobs: Sequence[JobView]) -> npt.NDArray[np.int64]:
        """By machine, beside what these jobs have."""
        left = np.array(self.gpus_by_machine, dtype=np.int64)
        for job in jobs:
            for machine, gpus in job.allocation or ():
                left[machine] -= gpus
        return left


class Policy(ABC):
    """How GPUs are dealt to jobs: one object a policy, without state."""

    name: ClassVar[str]
    summary: ClassVar[str]  # one line for people
    round_s: ClassVar[float | None] = 60.0
    """It decides so often; None: at every submission and every end."""
    only_on_change: ClassVar[bool] = False
    """A round in which no job came or ended since the last one would change nothing, and can be left out."""

    @abstractmethod
    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        """GPUs for each job by its id, at most `pool.gpus` together; a job that isn't named gets none.

        A job that isn't `elastic` and runs keeps what it has; each gets none, or from `least_gpus` to `most_gpus`.
        """

    def place(
        self, gpus: Mapping[str, int], jobs: Sequence[JobView], pool: Pool
    ) -> Mapping[str, Allocation]:
        """Machines for what `allocate` gave."""
        return place(gpus, jobs, pool)

    def as_queue(self) -> "QueuePolicy | None":
        """The same for jobs of which none can be stopped or have other GPUs than it asks for, if it then starts them
        in an order that waiting doesn't change: for a history of many thousands, all that can be followed."""
        return None


class QueuePolicy(Policy):
    """One that starts jobs with the GPUs that they asked for, in some order, and never stops one.

    Jobs wait in lines, one for each `line_of`; within a line they are in the order of `rank`, which must not change
    while they wait. Next is the head of the line with the least `claim`. `WaitingLines` does it, for one decision here,
    and from event to event in the simulator, where 80,000 jobs must not be sorted 160,000 times.
    """

    round_s: ClassVar[float | None] = None
    backfill: ClassVar[int] = 0
    """When the first in turn doesn't fit, so many behind it are tried; 0: all wait for it."""
    passes_by: ClassVar[bool] = False
    """Whoever doesn't fit is passed by, by however many behind it."""

    @abstractmethod
    def rank(self, job: JobView) -> tuple[Any, ...]:
        """Smaller is earlier in its line."""

    def line_of(self, job: JobView) -> str:
        """All wait in one line."""
        return ""

    def claim(self, line: str, held_gpus: int, weight: float) -> float:
        """The line with the least is next, given what its running jobs hold and the weight of the first in it."""
        return 0.0

    def allocate(self, jobs: Sequence[JobView], pool: Pool, now_s: float) -> Mapping[str, int]:
        lines = WaitingLines(self)
        for job in jobs:
            if job.running:
                lines.hold(self.line_of(job), job.gpus)
            else:
                lines.join(job)
        kept = {job.id: job.gpus for job in jobs if job.running}
        started = lines.start(pool.gpus - sum(kept.values()))
        return kept | {job.id: job.asked_gpus for job in started}


class InOrder(QueuePolicy):
    """Another policy as a queue: the first by rank that fits, however many wait before it."""

    passes_by = True

    def __init__(self, policy: Policy, rank: Callable[[JobView], tuple[Any, ...]]) -> None:
        self.name = policy.name  # type: ignore[misc]
        self.summary = policy.summary  # type: ignore[misc]
        self.round_s = policy.round_s  # type: ignore[misc]
        self._rank = rank

    def rank(self, job: JobView) -> tuple[Any, ...]:
        return self._rank(job)


_Entry = tuple[tuple[Any, ...], int, JobView]
_Line = tuple[str, int]
"""Its name, and the GPUs that all in it ask for; 0: any number."""


@dataclass
class WaitingLines:
    """Who waits under a `QueuePolicy`, and what each line's running jobs hold."""

    policy: QueuePolicy
    held: dict[str, int] = field(default_factory=dict)
    _waiting: dict[_Line, list[_Entry]] = field(default_factory=dict)
    _joined: int = 0

    def join(self, job: JobView) -> None:
        # where some are passed by, those that ask for as many wait apart: nobody is looked at who can't fit
        line = self.policy.line_of(job), job.asked_gpus if self.policy.passes_by else 0
        heapq.heappush(
            self._waiting.setdefault(line, []), (self.policy.rank(job), self._joined, job)
        )
        self._joined += 1

    def hold(self, line: str, gpus: int) -> None:
        """Its running jobs hold so many more, or fewer where negative."""
        self.held[line] = self.held.get(line, 0) + gpus

    def start(self, free: int) -> list[JobView]:
        """Those whose turn it is, as long as their GPUs are free; they leave their lines and hold."""
        started = []
        passed: list[tuple[_Line, _Entry]] = []
        while free > 0 and (line := self._next(free)) is not None:
            entry = heapq.heappop(self._waiting[line])
            if not self._waiting[line]:
                del self._waiting[line]
            job = entry[2]
            if job.asked_gpus <= free:
                free -= job.asked_gpus
                self.hold(line[0], job.asked_gpus)
                started.append(job)
                continue
            passed.append((line, entry))
            if len(passed) > self.policy.backfill:
                break
        for line, entry in passed:
            heapq.heappush(self._waiting.setdefault(line, []), entry)
        return started

    def _next(self, free: int) -> _Line | None:
        fitting = [line for line in self._waiting if line[1] <= free]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        return min(fitting, key=self._turn)

    def _turn(self, line: _Line) -> tuple[float, tuple[Any, ...], int]:
        rank, joined, first = self._waiting[line][0]
        return (
            self.policy.claim(line[0], self.held.get(line[0], 0), first.weight),
            rank,
            joined,
        )
