"""Search all allocations of GPUs to a few jobs, now and at each end, for the lowest sum of completion times.

Restarts are charged. The search prunes a branch if it could not beat the best result even with all GPUs for each job at
once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from gpuyard.policies.views import JobView

_TOLERANCE_S = 1e-9
Counts = tuple[int, ...]
"""GPUs of each job."""


@dataclass(frozen=True)
class _JobConstants:
    """The properties of a job that do not change during the search."""

    weight: float
    restart_s: float
    speeds: tuple[float, ...]  # by GPUs
    counts: tuple[int, ...]  # possible numbers of GPUs, including 0
    fastest: float

    @classmethod
    def from_view(cls, job: JobView, gpus: int) -> "_JobConstants":
        speeds = tuple(job.curve.speed(count) for count in range(gpus + 1))
        allowed = range(max(1, job.min_gpus), min(job.max_gpus, gpus) + 1)
        counts = (0, *(count for count in allowed if speeds[count] > 0))
        fastest = max(speeds[count] for count in counts)
        return cls(job.weight, job.restart_s, speeds, counts, fastest)


@dataclass(frozen=True)
class _State:
    """The unfinished jobs, by index."""

    now_s: float
    total: float  # weighted completion times so far
    remaining: dict[int, float]  # work
    gpus: dict[int, int]
    ready_s: dict[int, float]  # when each works on its GPUs


@dataclass
class AllocationSearch:
    """A search to the last end that tries at most `max_steps` allocations.

    Steps are counted instead of timed, so that the result is the same on every machine.
    """

    jobs: Sequence[JobView]
    gpus: int
    max_steps: int
    best: Counts | None = None
    lowest: float = inf
    _constants: list[_JobConstants] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._constants = [_JobConstants.from_view(job, self.gpus) for job in self.jobs]

    def improve(self, allocated: Mapping[str, int], total: float) -> dict[str, int]:
        """Return a better allocation than this one with this sum, or else this one."""
        self.lowest = total
        indices = range(len(self.jobs))
        state = _State(
            0.0,
            0.0,
            {index: self.jobs[index].remaining_work for index in indices},
            {index: self.jobs[index].gpus for index in indices},
            {index: self.jobs[index].startup_s for index in indices},
        )
        self._explore(state, None)
        if self.best is None:
            return dict(allocated)
        return {job.id: gpus for job, gpus in zip(self.jobs, self.best, strict=True) if gpus}

    def _explore(self, state: _State, first: Counts | None) -> None:
        if not state.remaining:
            self.lowest, self.best = state.total, first
            return
        branches = []
        for counts in self._list_allocations(tuple(state.remaining), self.gpus):
            if self.max_steps <= 0:
                return
            self.max_steps -= 1
            after = self._advance(state, counts)
            if after is not None and (bound := self._bound(after)) < self.lowest - _TOLERANCE_S:
                branches.append((bound, counts, after))
        branches.sort(key=lambda branch: branch[:2])
        for bound, counts, after in branches:
            if bound < self.lowest - _TOLERANCE_S:
                self._explore(after, first or counts)

    def _list_allocations(self, jobs: Sequence[int], gpus: int) -> Iterator[Counts]:
        if not jobs:
            yield ()
            return
        for count in self._constants[jobs[0]].counts:
            if count > gpus:
                break
            for rest in self._list_allocations(jobs[1:], gpus - count):
                yield (count, *rest)

    def _advance(self, state: _State, counts: Counts) -> _State | None:
        """Return the state at the next end, or None if no job would ever end."""
        allocated = dict(zip(state.remaining, counts, strict=True))
        ready, ends = {}, {}
        for index, gpus in allocated.items():
            constants = self._constants[index]
            ready[index] = state.now_s + constants.restart_s
            if gpus == state.gpus[index]:
                ready[index] = max(state.now_s, state.ready_s[index])
            run_s = state.remaining[index] / constants.speeds[gpus] if gpus else inf
            ends[index] = ready[index] + run_s
        now_s = min(ends.values())
        if now_s == inf:
            return None
        ended = [index for index in allocated if ends[index] <= now_s + _TOLERANCE_S]
        remaining = {
            index: work
            - self._constants[index].speeds[allocated[index]] * max(0.0, now_s - ready[index])
            for index, work in state.remaining.items()
            if index not in ended
        }
        total = state.total + now_s * sum(self._constants[index].weight for index in ended)
        return _State(now_s, total, remaining, allocated, ready)

    def _bound(self, state: _State) -> float:
        """Return a lower bound on the sum from this state on."""
        total = state.total
        for index, work in state.remaining.items():
            constants = self._constants[index]
            restart_s = 0.0 if state.gpus[index] else constants.restart_s
            total += constants.weight * (state.now_s + work / constants.fastest + restart_s)
        return total
