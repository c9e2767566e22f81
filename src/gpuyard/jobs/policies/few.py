"""All ways to deal GPUs to a few jobs, now and at each end, restarts charged: the one with the lowest sum of completion
times. A branch ends where even jobs that had all GPUs at once could not be better than the best found so far."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from gpuyard.jobs.policies.base import JobView

_AT_ONCE_S = 1e-9
Way = tuple[int, ...]
"""GPUs of each job."""


@dataclass(frozen=True)
class _Few:
    """What does not change while jobs are followed."""

    weight: float
    restart_s: float
    speeds: tuple[float, ...]  # by GPUs
    counts: tuple[int, ...]  # that it can have; none among them
    fastest: float

    @classmethod
    def of(cls, job: JobView, gpus: int) -> "_Few":
        speeds = tuple(job.curve.speed(count) for count in range(gpus + 1))
        able = range(max(1, job.least_gpus), min(job.most_gpus, gpus) + 1)
        counts = (0, *(count for count in able if speeds[count] > 0))
        fastest = max(speeds[count] for count in counts)
        return cls(job.weight, job.restart_s, speeds, counts, fastest)


@dataclass(frozen=True)
class _State:
    """Jobs that are not over, by their number: what is left, the GPUs of each, when it works on them."""

    now_s: float
    total: float
    left: dict[int, float]
    has: dict[int, int]
    ready_s: dict[int, float]


@dataclass
class DealSearch:
    """Deals to the last end; `effort` ways are looked at, counted and not timed, so that the answer is the same on
    any machine."""

    jobs: Sequence[JobView]
    gpus: int
    effort: int
    best: Way | None = None
    least: float = inf
    _few: list[_Few] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._few = [_Few.of(job, self.gpus) for job in self.jobs]

    def improve(self, found: Mapping[str, int], total: float) -> dict[str, int]:
        """What is dealt now: this one, with this sum, or a better."""
        self.least = total
        every = range(len(self.jobs))
        state = _State(
            0.0,
            0.0,
            {at: self.jobs[at].remaining_work for at in every},
            {at: self.jobs[at].gpus for at in every},
            {at: self.jobs[at].starting_s for at in every},
        )
        self._follow(state, None)
        if self.best is None:
            return dict(found)
        dealt = zip(self.jobs, self.best, strict=True)
        return {job.id: gpus for job, gpus in dealt if gpus}

    def _follow(self, state: _State, first: Way | None) -> None:
        if not state.left:
            self.least, self.best = state.total, first
            return
        later = []
        for way in self._ways(tuple(state.left), self.gpus):
            if self.effort <= 0:
                return
            self.effort -= 1
            after = self._after(state, way)
            if after is not None and (bound := self._bound(after)) < self.least - _AT_ONCE_S:
                later.append((bound, way, after))
        later.sort(key=lambda each: each[:2])
        for bound, way, after in later:
            if bound < self.least - _AT_ONCE_S:
                self._follow(after, first or way)

    def _ways(self, jobs: Sequence[int], gpus: int) -> Iterator[Way]:
        if not jobs:
            yield ()
            return
        for count in self._few[jobs[0]].counts:
            if count > gpus:
                break
            for rest in self._ways(jobs[1:], gpus - count):
                yield (count, *rest)

    def _after(self, state: _State, way: Way) -> _State | None:
        """As it is at the next end; None: nobody would ever end."""
        given = dict(zip(state.left, way, strict=True))
        ready, ends = {}, {}
        for at, gpus in given.items():
            few = self._few[at]
            ready[at] = state.now_s + few.restart_s
            if gpus == state.has[at]:
                ready[at] = max(state.now_s, state.ready_s[at])
            ends[at] = ready[at] + state.left[at] / few.speeds[gpus] if gpus else inf
        now_s = min(ends.values())
        if now_s == inf:
            return None
        over = [at for at in given if ends[at] <= now_s + _AT_ONCE_S]
        left = {
            at: work - self._few[at].speeds[given[at]] * max(0.0, now_s - ready[at])
            for at, work in state.left.items()
            if at not in over
        }
        total = state.total + now_s * sum(self._few[at].weight for at in over)
        return _State(now_s, total, left, given, ready)

    def _bound(self, state: _State) -> float:
        """No less than this comes of it."""
        return state.total + sum(
            self._few[at].weight
            * (state.now_s + work / self._few[at].fastest + self._starting_s(at, state))
            for at, work in state.left.items()
        )

    def _starting_s(self, at: int, state: _State) -> float:
        return 0.0 if state.has[at] else self._few[at].restart_s
