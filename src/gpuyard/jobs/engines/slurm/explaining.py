"""What Slurm says of a job that waits, why it asked for so many GPUs, and by its curve when it will be done."""

import math
from collections.abc import Iterator

from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.explain import Explanation, Range, deadline_sentence
from gpuyard.jobs.job import JobStatus
from gpuyard.share.turns.when import shown

_NEVER_SECONDS = 100 * 365 * 86400.0


def explain_job(
    record: SlurmRecord, status: JobStatus, slurm_start: float | None, now: float
) -> Explanation:
    """`slurm_start` is when Slurm means to start it, as far as it has looked; None: it does not say."""
    runs = status.state == "running"
    begins = status.started if runs else slurm_start
    begins = None if begins is None else begins if runs else max(now, begins)
    end = _end(record, status, begins, now)
    chance = None
    if record.job.deadline is not None and begins is not None and record.speed is not None:
        chance = record.speed.chance_within(record.job.deadline - begins)
    return Explanation(
        job=str(record.handle),
        policy=record.speed.policy if record.speed else "slurm",
        runs=runs,
        reasons=tuple(_reasons(record, status)),
        gpus=status.gpus or record.most_nodes * record.gpus_per_node,
        start=None if runs or begins is None else Range(begins, begins, begins),
        end=end,
        deadline_s=record.job.deadline,
        deadline_probability=chance,
        prospects=tuple(_prospects(record, None if runs else begins, end, chance)),
    )


def _end(record: SlurmRecord, status: JobStatus, begins: float | None, now: float) -> Range | None:
    """By its reports where it makes some, else by its curve."""
    if begins is None or record.speed is None:
        return None
    whole = [record.speed.seconds(factor) for factor in (1.0, record.speed.high, record.speed.low)]
    expected, low, high = (math.inf if one is None else begins + one for one in whole)
    if status.expected_end is not None:
        left = (status.expected_end - now) / max(expected - now, 1.0)
        expected, low, high = (now + left * max(0.0, one - now) for one in (expected, low, high))
    if not high < now + _NEVER_SECONDS:
        return None
    return Range(max(now, expected), max(now, low), max(now, high))


def _reasons(record: SlurmRecord, status: JobStatus) -> Iterator[str]:
    if status.state == "running":
        yield f"It runs on {status.gpus} GPUs of {', '.join(status.nodes)}."
    elif status.reason:
        yield f"{status.reason[0].upper()}{status.reason[1:]}."
    else:
        yield f"It is {status.state}."
    if record.speed is not None and record.speed.words:
        yield f"It asks for {record.speed.words}."
        yield (
            "`gpuyard queue rebalance` can change that while it runs."
            if record.elastic
            else "Slurm does not change that later."
        )


def _prospects(
    record: SlurmRecord, start: float | None, end: Range | None, chance: float | None
) -> Iterator[str]:
    if start is not None:
        yield f"Slurm means to start it {shown(start)}."
    if end is not None:
        low, high = shown(end.low_s), shown(end.high_s)
        between = "" if low == high else f" (with 90 % probability {low} to {high})"
        yield f"It will end {shown(end.expected_s)}{between}."
    if chance is not None and record.job.deadline is not None:
        yield deadline_sentence(chance, shown(record.job.deadline))
