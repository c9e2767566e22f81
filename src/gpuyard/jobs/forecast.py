"""When jobs will start and end if no other one comes: the policy is asked again and again, up to one job's end. Then
the same is replayed with every job as fast as its curve's interval allows, for how sure that is."""

import bisect
import heapq
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies.base import JobView, Policy, Pool

DRAWS = 400
_NORMAL_90 = 1.645  # standard deviations to each side that 90 % are within
_MOST_DECISIONS = 2000
_SINGLE_ENDS = 100  # of more jobs, several ends are waited for before the next decision
_LONGER = 0.05  # a policy that decides in rounds is asked ever more seldom: after so much of what has passed
_AT_ONCE_S = 1e-6
Moments = npt.NDArray[np.float64]
Replay = Callable[[Mapping[str, float], str], tuple[float, float]]
"""When a job starts and ends, with every job so many times as fast as expected."""


@dataclass(frozen=True, slots=True)
class ForecastStay:
    """A job on a number of GPUs for some time."""

    job: str
    gpus: int
    begin_s: float
    lost_s: float  # at its beginning, to a start or a restart
    work_s: float  # at the speed that is expected


@dataclass(frozen=True)
class Forecast:
    """What a policy would do from now to the end of one job."""

    now_s: float
    stays: tuple[ForecastStay, ...]
    """In the order in which they begin."""
    ends: Mapping[str, float]
    """Of the jobs that have ended by then."""

    def first(self, job: str) -> ForecastStay | None:
        """None where it never gets GPUs."""
        return next((stay for stay in self.stays if stay.job == job), None)


@dataclass(frozen=True, eq=False)
class DrawnTimes:
    """When one job starts and ends, once for each draw of speeds."""

    starts_s: Moments
    ends_s: Moments

    def chance_by(self, deadline_s: float) -> float:
        """That it has ended by then."""
        return float((self.ends_s <= deadline_s + _AT_ONCE_S).mean())


@dataclass
class _Active:
    """A job that is not over, as it is at `seen_s`."""

    view: JobView
    seen_s: float
    begin_s: float = 0.0  # of its stay
    ready_s: float = 0.0  # when it works, after the start

    @property
    def end_s(self) -> float:
        if not self.view.running:
            return math.inf
        return max(self.ready_s, self.seen_s) + self.view.seconds_left(self.view.gpus)

    def advance(self, to_s: float) -> None:
        if not self.view.running:
            self.seen_s = to_s
            return
        view, gpus = self.view, self.view.gpus
        worked_s = max(0.0, to_s - max(self.ready_s, self.seen_s))
        self.view = replace(
            view,
            remaining_work=max(0.0, view.remaining_work - worked_s * view.curve.speed(gpus)),
            attained_gpu_s=view.attained_gpu_s + gpus * (to_s - self.seen_s),
        )
        self.seen_s = to_s

    def deal(self, gpus: int) -> ForecastStay | None:
        """Other GPUs from now on; what was before is a stay that is over."""
        if gpus == self.view.gpus:
            return None
        over = self.stay()
        self.view = replace(
            self.view,
            allocation=((0, gpus),) if gpus else None,
            started_s=self.seen_s if self.view.started_s is None else self.view.started_s,
        )
        self.begin_s, self.ready_s = self.seen_s, self.seen_s + self.view.restart_s
        return over

    def stay(self) -> ForecastStay | None:
        """From its beginning until it was seen."""
        if not self.view.running:
            return None
        lost_s = max(0.0, min(self.ready_s, self.seen_s) - self.begin_s)
        worked_s = self.seen_s - self.begin_s - lost_s
        return ForecastStay(self.view.id, self.view.gpus, self.begin_s, lost_s, worked_s)


def forecast(
    jobs: Sequence[JobView], pool: Pool, policy: Policy, now_s: float, until: str
) -> Forecast:
    """Each job as fast as its curve says, up to the end of the job `until`."""
    active = {job.id: _Active(job, now_s, now_s, now_s) for job in jobs}
    over: list[ForecastStay | None] = []
    ends: dict[str, float] = {}
    time_s, at_once = now_s, max(1, len(jobs) // _SINGLE_ENDS)
    for _ in range(_MOST_DECISIONS):
        given = policy.allocate([job.view for job in active.values()], pool, time_s)
        over += [job.deal(given.get(id_, 0)) for id_, job in active.items()]
        soonest_s = _soonest(active.values(), at_once)
        if policy.round_s is not None and not policy.only_on_change:
            round_s = max(policy.round_s, _LONGER * (time_s - now_s))
            soonest_s = min(soonest_s, time_s + round_s)
        if until in ends or math.isinf(soonest_s):
            break
        time_s = soonest_s
        ending = {id_: job.end_s for id_, job in active.items() if job.end_s <= time_s + _AT_ONCE_S}
        for id_, job in active.items():
            job.advance(ending.get(id_, time_s))
        for id_, end_s in ending.items():
            over.append(active.pop(id_).stay())
            ends[id_] = end_s
    over += [job.stay() for job in active.values()]
    stays = sorted((stay for stay in over if stay is not None), key=lambda stay: stay.begin_s)
    return Forecast(now_s, tuple(stays), ends)


def _soonest(jobs: Iterable[_Active], at_once: int) -> float:
    """When so many have ended, or all that run."""
    ends = [end_s for job in jobs if (end_s := job.end_s) < math.inf]
    return heapq.nsmallest(at_once, ends)[-1] if ends else math.inf


def drawn_times(
    found: Forecast, jobs: Sequence[JobView], pool: Pool, job: str, draws: int = DRAWS
) -> DrawnTimes:
    """The same again with every job faster or slower than expected by what its curve's interval allows; always the
    same draws."""
    chance = random.Random(0)
    curves = {view.id: view.curve for view in jobs}
    if all(curve.low == curve.high == 1 for curve in curves.values()):
        draws = 1
    chains: dict[str, list[ForecastStay]] = {}
    for stay in found.stays:
        chains.setdefault(stay.job, []).append(stay)
    resized = any(len(chain) > 1 for chain in chains.values())
    replay = _after_ends(found, chains) if resized else _in_line(found, chains, pool.gpus)
    drawn = [
        replay({id_: _factor(curve, chance) for id_, curve in curves.items()}, job)
        for _ in range(draws)
    ]
    starts, ends = np.array(drawn).T
    return DrawnTimes(starts, ends if job in found.ends else np.full(draws, np.inf))


def _factor(curve: Curve, chance: random.Random) -> float:
    """How many times as fast as expected: log-normal on each side of 1, with 90 % from low to high."""
    deviations = chance.gauss(0.0, 1.0) / _NORMAL_90
    return float(curve.high**deviations if deviations > 0 else curve.low**-deviations)


def _in_line(found: Forecast, chains: Mapping[str, Sequence[ForecastStay]], gpus: int) -> Replay:
    """Jobs that keep their GPUs to the end: each starts when its GPUs are free, in the order of the forecast."""

    def replay(factors: Mapping[str, float], job: str) -> tuple[float, float]:
        free, time_s = gpus, found.now_s
        running: list[tuple[float, int]] = []
        for id_, (stay,) in chains.items():
            while running and (running[0][0] <= time_s + _AT_ONCE_S or free < stay.gpus):
                end_s, freed = heapq.heappop(running)
                time_s, free = max(time_s, end_s), free + freed
            end_s = time_s + stay.lost_s + stay.work_s / factors[id_]
            if id_ == job:
                return time_s, end_s
            heapq.heappush(running, (end_s, stay.gpus))
            free -= stay.gpus
        return math.inf, math.inf

    return replay


def _after_ends(found: Forecast, chains: Mapping[str, Sequence[ForecastStay]]) -> Replay:
    """Jobs that are moved: each starts as long after the end that made room for it as in the forecast, and goes on
    through the same numbers of GPUs."""
    by_end = sorted((end_s, id_) for id_, end_s in found.ends.items())
    ends = [end_s for end_s, _ in by_end]
    room: dict[str, tuple[str, float]] = {}
    for id_, chain in chains.items():
        before = bisect.bisect_right(ends, chain[0].begin_s + _AT_ONCE_S) - 1
        if before >= 0:
            end_s, other = by_end[before]
            room[id_] = other, chain[0].begin_s - end_s

    def replay(factors: Mapping[str, float], job: str) -> tuple[float, float]:
        drawn: dict[str, float] = {}
        for id_, chain in chains.items():
            start_s = chain[0].begin_s
            if id_ in room and room[id_][0] in drawn:
                start_s = drawn[room[id_][0]] + room[id_][1]
            end_s, expected_s = start_s, chain[0].begin_s
            for stay in chain:
                begin_s = end_s + stay.begin_s - expected_s  # it may have been stopped for a while
                end_s = begin_s + stay.lost_s + stay.work_s / factors[id_]
                expected_s = stay.begin_s + stay.lost_s + stay.work_s
            if id_ == job:
                return start_s, end_s
            drawn[id_] = end_s
        return math.inf, math.inf

    return replay
