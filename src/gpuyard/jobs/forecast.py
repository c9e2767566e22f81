"""Forecast when jobs start and end if no other job is submitted.

The simulator's event loop runs from the current state to the end of one job. The forecast is then replayed with every
job's speed sampled from its curve's interval, which shows how certain it is.
"""

import bisect
import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuyard.jobs.simulate.loop import ActiveJob, EventLoop
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.policies.base import Policy
from gpuyard.policies.curve import Curve
from gpuyard.policies.views import JobView, Pool

_SAMPLES = 400
_NORMAL_90 = 1.645  # standard deviations to each side that include 90%
_MAX_DECISIONS = 2000
_SINGLE_ENDS = 100  # with more jobs than this, a decision waits for several ends
_ROUND_GROWTH = 0.05  # a round lasts at least this share of the time since the forecast began
_TOLERANCE_S = 1e-6
Times = npt.NDArray[np.float64]
Replay = Callable[[Mapping[str, float], str], tuple[float, float]]
"""A function from speed factors by job and a job's id to that job's start and end."""


@dataclass(frozen=True, slots=True)
class ForecastInterval:
    """A period in which a job holds a fixed number of GPUs."""

    job: str
    gpus: int
    begin_s: float
    lost_s: float  # at the beginning, to a start or a restart
    work_s: float  # at the expected speed


@dataclass(frozen=True)
class Forecast:
    """A policy's decisions from now to the end of one job."""

    now_s: float
    intervals: tuple[ForecastInterval, ...]
    """Ordered by their beginning."""
    ends: Mapping[str, float]
    """End of each job that ends within the forecast."""

    def first(self, job: str) -> ForecastInterval | None:
        """Return the job's first interval, or None if it never gets GPUs."""
        return next((interval for interval in self.intervals if interval.job == job), None)


@dataclass(frozen=True, eq=False)
class SampledTimes:
    """Start and end of one job, once for each sample of speeds."""

    starts_s: Times
    ends_s: Times

    def probability_by(self, deadline_s: float) -> float:
        """Return the probability that the job ends by the deadline."""
        return float((self.ends_s <= deadline_s + _TOLERANCE_S).mean())


class _ForecastLoop(EventLoop):
    """The simulator's loop from now to the end of one job.

    It decides less often the further ahead it looks and the more jobs there are.
    """

    def __init__(
        self, jobs: Sequence[JobView], pool: Pool, policy: Policy, now_s: float, until: str
    ) -> None:
        trace = Trace("now", tuple(_trace_job(view) for view in jobs))
        active = [
            _active_job(index, job, view, now_s, pool)
            for index, (job, view) in enumerate(zip(trace.jobs, jobs, strict=True))
        ]
        super().__init__(trace, policy, pool, active=active)
        self.now_s, self.until = now_s, until
        self.ends_per_decision = max(1, len(jobs) // _SINGLE_ENDS)

    def first_decision(self) -> float:
        return self.now_s

    def is_round(self, now_s: float) -> bool:  # noqa: ARG002
        return True

    def is_finished(self) -> bool:
        return self.until not in self.active or self.decisions >= _MAX_DECISIONS

    def next_decision(self, now_s: float, changed: bool) -> float:  # noqa: ARG002
        ends = [job.end_s for job in self.active.values() if job.end_s < math.inf]
        next_s = heapq.nsmallest(self.ends_per_decision, ends)[-1] if ends else math.inf
        if self.policy.round_s is not None and not self.policy.only_on_change:
            round_s = max(self.policy.round_s, _ROUND_GROWTH * (now_s - self.now_s))
            next_s = min(next_s, now_s + round_s)
        return next_s


def _trace_job(view: JobView) -> TraceJob:
    return TraceJob(
        view.id, view.submitted_s, SteadyWork(view.remaining_work, view.curve), view.requested_gpus,
        view.min_gpus, view.max_gpus, view.user, view.group, view.deadline_s, view.weight,
        view.priority, view.elastic, view.restart_s, score=view.score,
    )  # fmt: skip


def _active_job(index: int, job: TraceJob, view: JobView, now_s: float, pool: Pool) -> ActiveJob:
    active = ActiveJob(
        index, job, since_s=now_s, started_s=view.started_s, attained_gpu_s=view.attained_gpu_s
    )
    if view.allocation is not None:
        active.run_on(view.allocation, pool, since_s=now_s, resumed_s=now_s + view.startup_s)
    return active


def forecast(
    jobs: Sequence[JobView], pool: Pool, policy: Policy, now_s: float, until: str
) -> Forecast:
    """Let each job run as fast as its curve says, up to the end of the job `until`."""
    outcome = _ForecastLoop(jobs, pool, policy, now_s, until).run()
    intervals: list[ForecastInterval] = []
    already_running = {view.id for view in jobs if view.running}
    for interval in sorted(outcome.intervals, key=lambda interval: interval.begin_s):
        view = jobs[interval.job]
        seconds = interval.end_s - interval.begin_s
        lost_s = min(view.startup_s if view.id in already_running else view.restart_s, seconds)
        already_running.discard(view.id)  # later intervals begin with a restart
        intervals.append(
            ForecastInterval(view.id, interval.gpus, interval.begin_s, lost_s, seconds - lost_s)
        )
    ends = {
        view.id: end_s
        for view, end_s in zip(jobs, outcome.ended_s.tolist(), strict=True)
        if not math.isnan(end_s)
    }
    return Forecast(now_s, tuple(intervals), ends)


def sample_times(outlook: Forecast, jobs: Sequence[JobView], pool: Pool, job: str) -> SampledTimes:
    """Replay the forecast with speeds sampled from each job's interval; the samples are always the same."""
    rng = random.Random(0)
    curves = {view.id: view.curve for view in jobs}
    certain = all(curve.low == curve.high == 1 for curve in curves.values())
    samples = 1 if certain else _SAMPLES
    chains: dict[str, list[ForecastInterval]] = {}
    for interval in outlook.intervals:
        chains.setdefault(interval.job, []).append(interval)
    if any(len(chain) > 1 for chain in chains.values()):
        replay = _replay_resized(outlook, chains)
    else:
        replay = _replay_in_order(outlook, chains, pool.gpus)
    times = [
        replay({id_: _sample_factor(curve, rng) for id_, curve in curves.items()}, job)
        for _ in range(samples)
    ]
    starts, ends = np.array(times).T
    return SampledTimes(starts, ends if job in outlook.ends else np.full(samples, np.inf))


def _sample_factor(curve: Curve, rng: random.Random) -> float:
    """Sample actual / expected speed: log-normal on each side of 1, with 90% between low and high."""
    deviations = rng.gauss(0.0, 1.0) / _NORMAL_90
    return float(curve.high**deviations if deviations > 0 else curve.low**-deviations)


def _replay_in_order(
    outlook: Forecast, chains: Mapping[str, Sequence[ForecastInterval]], gpus: int
) -> Replay:
    """Replay jobs that keep their GPUs: each starts when enough GPUs are free, in the forecast's order."""

    def replay(factors: Mapping[str, float], job: str) -> tuple[float, float]:
        free, time_s = gpus, outlook.now_s
        running: list[tuple[float, int]] = []
        for id_, (interval,) in chains.items():
            while running and (running[0][0] <= time_s + _TOLERANCE_S or free < interval.gpus):
                end_s, freed = heapq.heappop(running)
                time_s, free = max(time_s, end_s), free + freed
            end_s = time_s + interval.lost_s + interval.work_s / factors[id_]
            if id_ == job:
                return time_s, end_s
            heapq.heappush(running, (end_s, interval.gpus))
            free -= interval.gpus
        return math.inf, math.inf

    return replay


def _replay_resized(outlook: Forecast, chains: Mapping[str, Sequence[ForecastInterval]]) -> Replay:
    """Replay jobs that are resized or moved.

    Each job starts as long after the end that made room for it as in the forecast, and then goes through the same
    numbers of GPUs.
    """
    by_end = sorted((end_s, id_) for id_, end_s in outlook.ends.items())
    ends = [end_s for end_s, _ in by_end]
    predecessors: dict[str, tuple[str, float]] = {}  # job that made room, and seconds after its end
    for id_, chain in chains.items():
        last = bisect.bisect_right(ends, chain[0].begin_s + _TOLERANCE_S) - 1
        if last >= 0:
            end_s, predecessor = by_end[last]
            predecessors[id_] = predecessor, chain[0].begin_s - end_s

    def replay(factors: Mapping[str, float], job: str) -> tuple[float, float]:
        replayed_ends: dict[str, float] = {}
        for id_, chain in chains.items():
            start_s = chain[0].begin_s
            predecessor, delay_s = predecessors.get(id_, ("", 0.0))
            if predecessor in replayed_ends:
                start_s = replayed_ends[predecessor] + delay_s
            end_s, expected_s = start_s, chain[0].begin_s
            for interval in chain:
                begin_s = (
                    end_s + interval.begin_s - expected_s
                )  # it may have been stopped for a while
                end_s = begin_s + interval.lost_s + interval.work_s / factors[id_]
                expected_s = interval.begin_s + interval.lost_s + interval.work_s
            if id_ == job:
                return start_s, end_s
            replayed_ends[id_] = end_s
        return math.inf, math.inf

    return replay
