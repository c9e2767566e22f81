"""Why a job waits, why it requested its number of GPUs, and when it is expected to finish."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.engines.slurm.sizing import SpeedEstimate
from gpuyard.jobs.explain import Explanation, TimeRange, describe_deadline
from gpuyard.jobs.job import JobStatus
from gpuyard.share.timeparse import format_time

_NEVER_SECONDS = 100 * 365 * 86400.0


@dataclass(frozen=True)
class _Outlook:
    """The work that remains from a point in time; the end and the chance to meet the deadline both follow from it."""

    since: float
    speed: SpeedEstimate

    def end(self, now: float) -> TimeRange | None:
        """Return the expected end and its interval; None if the job has run longer than the interval."""
        factors = (1.0, self.speed.high, self.speed.low)
        expected, low, high = (self.since + (self.speed.seconds(f) or math.inf) for f in factors)
        if not now < high < now + _NEVER_SECONDS:
            return None
        return TimeRange(max(now, expected), max(now, low), high)

    def probability_by(self, deadline: float, now: float) -> float | None:
        """Return the probability of an end by the deadline, given that the job has not ended by now."""
        by_deadline = self.speed.finish_probability(deadline - self.since)
        by_now = self.speed.finish_probability(now - self.since)
        if deadline <= now:
            return 0.0
        if by_deadline is None or by_now is None or by_now >= 1:
            return None
        return (by_deadline - by_now) / (1 - by_now)


def explain_job(
    record: SlurmRecord, status: JobStatus, slurm_start: float | None, now: float
) -> Explanation:
    """Explain a job; `slurm_start` is Slurm's own estimate of its start, None if there is none yet."""
    runs = status.state == "running"
    start = status.started if runs else slurm_start
    if start is not None and not runs:
        start = max(now, start)
    outlook = _create_outlook(record, status, start, now)
    end = None if outlook is None else outlook.end(now)
    chance = None
    if record.job.deadline is not None and outlook is not None and end is not None:
        chance = outlook.probability_by(record.job.deadline, now)
    return Explanation(
        job=str(record.handle),
        policy=record.speed.policy if record.speed else "slurm",
        runs=runs,
        reasons=tuple(_describe_reasons(record, status)),
        gpus=status.gpus or record.max_nodes * record.gpus_per_node,
        start=None if runs or start is None else TimeRange(start, start, start),
        end=end,
        deadline_s=record.job.deadline,
        deadline_probability=chance,
        prospects=tuple(_describe_prospects(record, None if runs else start, end, chance)),
    )


def _create_outlook(
    record: SlurmRecord, status: JobStatus, start: float | None, now: float
) -> _Outlook | None:
    """Take the remaining work from the job's reports, or from its curve if it has reported nothing."""
    if start is None or record.speed is None or record.speed.samples is None:
        return None
    if status.expected_end is None:
        return _Outlook(start, record.speed)
    remaining = max(status.expected_end - now, 1.0) * record.speed.samples_per_second
    return _Outlook(now, replace(record.speed, samples=remaining))


def _describe_reasons(record: SlurmRecord, status: JobStatus) -> Iterator[str]:
    if status.state == "running":
        yield f"It runs on {status.gpus} GPUs of {', '.join(status.nodes)}."
    elif status.reason:
        yield f"{status.reason[0].upper()}{status.reason[1:]}."
    else:
        yield f"It is {status.state}."
    if record.speed is not None and record.speed.rationale:
        yield f"It requests {record.speed.rationale}."
        yield (
            "`gpuyard queue rebalance` can change that while it runs."
            if record.elastic
            else "Slurm does not change that later."
        )


def _describe_prospects(
    record: SlurmRecord, start: float | None, end: TimeRange | None, chance: float | None
) -> Iterator[str]:
    if start is not None:
        yield f"Slurm plans to start it {format_time(start)}."
    if end is not None:
        interval = end.format_interval(format_time)
        within = f" (90% interval: {' to '.join(interval)})" if interval else ""
        yield f"It is expected to finish {format_time(end.expected_s)}{within}."
    if chance is not None and record.job.deadline is not None:
        yield describe_deadline(chance, format_time(record.job.deadline))
