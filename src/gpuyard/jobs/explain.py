"""Explain in sentences why a job waits, when it will start, and how likely it is to meet its deadline."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpuyard.errors import UserMistake, quote
from gpuyard.jobs.forecast import Forecast, ForecastInterval, Times, forecast, sample_times
from gpuyard.policies.base import Policy
from gpuyard.policies.views import JobView, Pool
from gpuyard.units import format_count, format_seconds, format_share

FormatTime = Callable[[float], str]
_MAX_NAMES = 3  # jobs that are named; the rest are counted
_NEARLY_CERTAIN = 0.995
_SAME_TIME_S = 1.0


@dataclass(frozen=True)
class TimeRange:
    """An expected time and its 90% interval; the interval is None if the time rests on an assumed length."""

    expected_s: float
    low_s: float | None = None
    high_s: float | None = None

    def format_interval(self, format_time: FormatTime) -> tuple[str, str] | None:
        """Format both ends of the interval; None if there is none, or if they look the same."""
        if self.low_s is None or self.high_s is None:
            return None
        low, high = format_time(self.low_s), format_time(self.high_s)
        return None if low == high else (low, high)


@dataclass(frozen=True)
class Explanation:
    """The outlook of one job if no other job is submitted."""

    job: str
    policy: str
    runs: bool
    reasons: tuple[str, ...]
    """Sentences on why the job waits or, if it runs, on what."""
    gpus: int | None
    """The GPUs that it has or will start with; None if it will not start."""
    start: TimeRange | None
    """None if it already runs or will not start."""
    end: TimeRange | None
    deadline_s: float | None
    deadline_probability: float | None
    """None if it has no deadline or depends on a job whose length is only assumed."""
    prospects: tuple[str, ...]
    """Sentences on its start, its end, and its deadline."""

    @property
    def sentences(self) -> tuple[str, ...]:
        return self.reasons + self.prospects

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
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
    format_time: FormatTime | None = None,
    assumed: Collection[str] = (),
) -> Explanation:
    """Explain one of the jobs. Without `format_time`, times are relative to `now_s`, as in "in 2 h".

    The lengths of the `assumed` jobs are guesses, so nothing that depends on them is certain.
    """
    job = next((view for view in jobs if view.id == job_id), None)
    if job is None:
        raise UserMistake(f"no job {quote(job_id)} waits or runs")
    outlook = forecast(jobs, pool, policy, now_s, job_id)
    first, end_s = outlook.first(job_id), outlook.ends.get(job_id)
    waits_for_assumed = _waits_for(outlook, job, jobs, assumed)
    end_is_assumed = waits_for_assumed or job_id in assumed
    start = end = probability = None
    if first is not None:
        sampled = sample_times(outlook, jobs, pool, job_id)
        if not job.running:
            start = _create_range(first.begin_s, sampled.starts_s, assumed=waits_for_assumed)
        if end_s is not None:
            end = _create_range(end_s, sampled.ends_s, assumed=end_is_assumed)
        if job.deadline_s is not None:
            probability = sampled.probability_by(job.deadline_s)
    elif job.deadline_s is not None:
        probability = 0.0
    writer = _SentenceWriter(
        job,
        first,
        outlook,
        format_time or (lambda time_s: _format_relative(time_s - now_s)),
        end_is_assumed,
    )
    return Explanation(
        job_id,
        policy.name,
        job.running,
        tuple(writer.describe_wait(jobs, pool, policy)),
        first.gpus if first else None,
        start,
        end,
        job.deadline_s,
        None if writer.is_assumed(probability) else probability,
        tuple(writer.describe_prospects(start, end, probability)),
    )


def _waits_for(
    outlook: Forecast, job: JobView, jobs: Sequence[JobView], assumed: Collection[str]
) -> bool:
    """Return whether a job waits for another one whose length is assumed."""
    first = outlook.first(job.id)
    starts_s = first.begin_s if first else math.inf
    return not job.running and any(
        other.running or (before is not None and before.begin_s < starts_s)
        for other in jobs
        if other.id in assumed and other.id != job.id and starts_s > outlook.now_s + _SAME_TIME_S
        for before in (outlook.first(other.id),)
    )


def _format_relative(seconds: float) -> str:
    return f"in {format_seconds(seconds)}" if seconds >= 0 else f"{format_seconds(-seconds)} ago"


def _create_range(expected_s: float, sampled_s: Times, *, assumed: bool) -> TimeRange:
    if assumed:
        return TimeRange(expected_s)
    low, high = np.percentile(sampled_s, (5, 95))
    return TimeRange(expected_s, min(float(low), expected_s), max(float(high), expected_s))


@dataclass(frozen=True)
class _SentenceWriter:
    """Writes the sentences about one job."""

    job: JobView
    first: ForecastInterval | None
    outlook: Forecast
    format_time: FormatTime
    assumed: bool
    """True if the job's end depends on a length that is only assumed."""

    def is_assumed(self, probability: float | None) -> bool:
        """Return whether this chance to meet the deadline is only assumed; a miss that is past is certain."""
        deadline_s = self.job.deadline_s
        is_open = deadline_s is not None and deadline_s > self.outlook.now_s
        return probability is not None and self.assumed and self.first is not None and is_open

    @property
    def _starts_s(self) -> float:
        return self.first.begin_s if self.first else math.inf

    def describe_wait(self, jobs: Sequence[JobView], pool: Pool, policy: Policy) -> Iterator[str]:
        """Describe why the job waits or, if it runs, on what."""
        needs = format_count(self.first.gpus if self.first else self.job.min_gpus, "GPU")
        if self.job.running:
            yield f"It runs on {needs}."
        elif self.job.min_gpus > pool.gpus:
            yield f"It needs {needs}, and there are {pool.gpus} here."
        elif self._starts_s <= self.outlook.now_s + _SAME_TIME_S:
            yield f"It is its turn: it starts on {needs} now."
        else:
            free = pool.gpus - sum(view.gpus for view in jobs)
            available = (
                f"{free} of {pool.gpus} are free" if free else f"none of {pool.gpus} is free"
            )
            held_back = self.first is not None and free >= self.first.gpus
            others = f", but {policy.name} leaves them to others" if held_back else ""
            yield f"It needs {needs}, and {available}{others}."
            yield from self._describe_others(jobs)
            yield f"The policy is {policy.name}: {policy.summary}."

    def _describe_others(self, jobs: Sequence[JobView]) -> Iterator[str]:
        """List the jobs that end and those that start before this one starts."""
        ends = self.outlook.ends
        ending = [
            view for view in jobs if view.running and ends.get(view.id, math.inf) <= self._starts_s
        ]
        if ending and self.first:
            names = [
                f"{_name(view)} on {format_count(view.gpus, 'GPU')} ({self.format_time(ends[view.id])})"
                for view in sorted(ending, key=lambda view: ends[view.id])
            ]
            yield f"It waits for the end of {_join_names(names)}."
        firsts = {view.id: self.outlook.first(view.id) for view in jobs if not view.running}
        ahead = [
            _name(view)
            for view in jobs
            if (first := firsts.get(view.id)) and first.begin_s < self._starts_s - _SAME_TIME_S
        ]
        if ahead:
            yield f"{_join_names(ahead)} start{'s' * (len(ahead) == 1)} before it."

    def describe_prospects(
        self, start: TimeRange | None, end: TimeRange | None, probability: float | None
    ) -> Iterator[str]:
        """Describe the job's start, its end, and its chance to meet the deadline."""
        if self.first is None:
            yield "As things are, it will not start."
        elif start is not None and self._starts_s > self.outlook.now_s + _SAME_TIME_S:
            yield f"It will start {self._format_range(start)}, on {format_count(self.first.gpus, 'GPU')}."
        if end is not None:
            yield f"It will end {self._format_range(end)}."
        if probability is not None and self.job.deadline_s is not None:
            deadline, assumed = self.format_time(self.job.deadline_s), self.is_assumed(probability)
            yield describe_deadline(probability, deadline, assumed=assumed)
        if end is not None:
            yield "This holds if no other job is submitted."

    def _format_range(self, times: TimeRange) -> str:
        """Format the expected time with its interval, or with the condition if it rests on an assumed length."""
        expected = self.format_time(times.expected_s)
        if times.low_s is None:
            return f"{expected} if the assumed lengths are right"
        interval = times.format_interval(self.format_time)
        return (
            f"{expected} (with 90% probability {' to '.join(interval)})" if interval else expected
        )


def describe_deadline(probability: float, deadline: str, *, assumed: bool = False) -> str:
    """Describe how likely a job is to meet its deadline; nothing is certain that rests on an assumed length."""
    if assumed:
        meets = "meet" if probability >= 0.5 else "miss"
        return f"It will {meets} its deadline ({deadline}) if the assumed lengths are right."
    if probability >= _NEARLY_CERTAIN:
        return f"It will almost certainly meet its deadline ({deadline})."
    if probability <= 1 - _NEARLY_CERTAIN:
        return f"It will almost certainly miss its deadline ({deadline})."
    return (
        f"It will meet its deadline ({deadline}) with a probability of {format_share(probability)}."
    )


def _name(view: JobView) -> str:
    return f"{view.id} of {view.user}" if view.user else view.id


def _join_names(names: Sequence[str]) -> str:
    if len(names) <= _MAX_NAMES:
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{', '.join(names[:_MAX_NAMES])} and {format_count(len(names) - _MAX_NAMES, 'other')}"
