"""Why a job waits, when it will start, and how likely it is to be done by its deadline, in words."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpuyard.errors import UserMistake, quoted
from gpuyard.jobs.forecast import Forecast, ForecastStay, Moments, drawn_times, forecast
from gpuyard.jobs.policies.base import JobView, Policy, Pool
from gpuyard.units import counted, format_seconds, format_share

Say = Callable[[float], str]
"""How a moment is shown."""
_NAMED = 3  # jobs that are named; more are counted
_SURE = 0.995
_SAME_S = 1.0  # moments that are said as one


@dataclass(frozen=True)
class Range:
    """What is expected, and between which moments it is with 90 % probability."""

    expected_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True)
class Explanation:
    """What will come of one job, if no other one is submitted."""

    job: str
    policy: str
    runs: bool
    reasons: tuple[str, ...]
    """Why it waits, one sentence each; of a job that runs, what it has."""
    gpus: int | None
    """That it has, or will start with; None: it will not start."""
    start: Range | None
    """None where it runs, or where it never starts."""
    end: Range | None
    deadline_s: float | None
    deadline_probability: float | None
    """None where it has no deadline."""
    prospects: tuple[str, ...]
    """When it starts and ends, and whether that is in time, one sentence each."""

    @property
    def sentences(self) -> tuple[str, ...]:
        return self.reasons + self.prospects

    def document(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {
            "reasons": list(self.reasons),
            "prospects": list(self.prospects),
        }


def explain(
    job_id: str,
    jobs: Sequence[JobView],
    pool: Pool,
    policy: Policy,
    *,
    now_s: float,
    say: Say | None = None,
) -> Explanation:
    """`say` shows moments on the clock of `now_s`; without it they are said from now, as "in 2 h"."""
    job = next((view for view in jobs if view.id == job_id), None)
    if job is None:
        raise UserMistake(f"no job {quoted(job_id)} waits or runs")
    found = forecast(jobs, pool, policy, now_s, job_id)
    first, end_s = found.first(job_id), found.ends.get(job_id)
    start = end = chance = None
    if first is not None:
        drawn = drawn_times(found, jobs, pool, job_id)
        start = None if job.running else _range(first.begin_s, drawn.starts_s)
        end = None if end_s is None else _range(end_s, drawn.ends_s)
        chance = None if job.deadline_s is None else drawn.chance_by(job.deadline_s)
    elif job.deadline_s is not None:
        chance = 0.0
    words = _Words(job, first, found, say or (lambda moment_s: _from_now(moment_s - now_s)))
    return Explanation(
        job_id,
        policy.name,
        job.running,
        tuple(words.waiting(jobs, pool, policy)),
        first.gpus if first else None,
        start,
        end,
        job.deadline_s,
        chance,
        tuple(words.prospects(start, end, chance)),
    )


def _from_now(seconds: float) -> str:
    return f"in {format_seconds(seconds)}" if seconds >= 0 else f"{format_seconds(-seconds)} ago"


def _range(expected_s: float, drawn: Moments) -> Range:
    low, high = np.percentile(drawn, (5, 95))
    return Range(expected_s, min(float(low), expected_s), max(float(high), expected_s))


@dataclass(frozen=True)
class _Words:
    """What there is to say about one job."""

    job: JobView
    first: ForecastStay | None
    found: Forecast
    say: Say

    @property
    def _starts_s(self) -> float:
        return self.first.begin_s if self.first else math.inf

    def waiting(self, jobs: Sequence[JobView], pool: Pool, policy: Policy) -> Iterator[str]:
        """Why it waits; of a job that runs, what it has."""
        needs = counted(self.first.gpus if self.first else self.job.least_gpus, "GPU")
        if self.job.running:
            yield f"It runs on {needs}."
        elif self.job.least_gpus > pool.gpus:
            yield f"It needs {needs}, and there are {pool.gpus} here."
        elif self._starts_s <= self.found.now_s + _SAME_S:
            yield f"It is its turn: it starts on {needs} now."
        else:
            free = pool.gpus - sum(view.gpus for view in jobs)
            there = f"{free} of {pool.gpus} are free" if free else f"none of {pool.gpus} is free"
            kept = self.first is not None and free >= self.first.gpus
            others = f", but {policy.name} leaves them to others" if kept else ""
            yield f"It needs {needs}, and {there}{others}."
            yield from self._before(jobs)
            yield f"The policy is {policy.name}: {policy.summary}."

    def _before(self, jobs: Sequence[JobView]) -> Iterator[str]:
        """Those that end and those that start before it does."""
        ends = self.found.ends
        ending = [
            view for view in jobs if view.running and ends.get(view.id, math.inf) <= self._starts_s
        ]
        if ending and self.first:
            ordered = sorted(ending, key=lambda view: ends[view.id])
            named = [
                f"{_name(v)} on {counted(v.gpus, 'GPU')} ({self.say(ends[v.id])})" for v in ordered
            ]
            yield f"It waits for the end of {_listed(named)}."
        firsts = {view.id: self.found.first(view.id) for view in jobs if not view.running}
        ahead = [
            view
            for view in jobs
            if (other := firsts.get(view.id)) and other.begin_s < self._starts_s - _SAME_S
        ]
        if ahead:
            yield f"{_listed([_name(v) for v in ahead])} start{'s' * (len(ahead) == 1)} before it."

    def prospects(
        self, start: Range | None, end: Range | None, chance: float | None
    ) -> Iterator[str]:
        """When it starts and ends, and whether that is in time."""
        if self.first is None:
            yield "As things are, it will not start."
        elif start is not None and self._starts_s > self.found.now_s + _SAME_S:
            yield f"It will start {self._between(start)}, on {counted(self.first.gpus, 'GPU')}."
        if end is not None:
            yield f"It will end {self._between(end)}."
        if chance is not None and self.job.deadline_s is not None:
            yield deadline_sentence(chance, self.say(self.job.deadline_s))
        if end is not None:
            yield "This holds if no other job is submitted."

    def _between(self, moments: Range) -> str:
        """The interval only where it can be told from the moment."""
        low, high = self.say(moments.low_s), self.say(moments.high_s)
        expected = self.say(moments.expected_s)
        return expected if low == high else f"{expected} (with 90 % probability {low} to {high})"


def deadline_sentence(chance: float, when: str) -> str:
    """How likely it is met."""
    deadline = f"its deadline ({when})"
    if chance >= _SURE:
        return f"It will almost certainly meet {deadline}."
    if chance <= 1 - _SURE:
        return f"It will almost certainly miss {deadline}."
    return f"It will meet {deadline} with a probability of {format_share(chance)}."


def _name(view: JobView) -> str:
    return f"{view.id} of {view.user}" if view.user else view.id


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{', '.join(names[:_NAMED])} and {counted(len(names) - _NAMED, 'other')}"
