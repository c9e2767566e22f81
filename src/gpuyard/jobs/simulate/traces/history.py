"""Read histories as traces: the Philly table, Slurm's accounting, and the leases of a shared server.

Their jobs' scaling is not known, so each requests the GPUs that it had, for as long as it had them.
"""

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpuyard.economics.demand import count_gpus
from gpuyard.errors import UserMistake, quote
from gpuyard.files import read_text
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.traces.csv_rows import MAX_BYTES, TraceRow, parse_rows, read_rows
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.policies.curve import Curve
from gpuyard.policies.views import Pool
from gpuyard.share.models import Lease

PHILLY = ("timestamp", "duration", "num_gpus")
SACCT = ("jobid", "submit", "start", "end", "alloctres")
# the job name comes last because it may contain the delimiter
SACCT_COMMAND = "sacct -P -X -o JobID,User,Account,Submit,Start,End,AllocTRES,JobName"
_UNKNOWN = {"", "Unknown", "None"}
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}")
_MAX_GPUS = 100_000
_MIN_SECONDS = 1.0  # Slurm writes whole seconds, and every job takes some time


def read_philly(path: Path) -> Trace:
    """Read the job table of Microsoft's Philly cluster (Jeon et al., ATC 2019), with virtual clusters as users."""
    jobs = [
        _create_job(
            f"philly-{number}",
            _parse_seconds(row, "timestamp"),
            row.number("duration", maximum=1e9),
            row.count("num_gpus", maximum=_MAX_GPUS),
            row.text("cluster"),
        )
        for number, row in enumerate(read_rows(path, PHILLY, what="the Philly job table"), 1)
    ]
    return Trace.from_jobs(path, _make_relative(jobs))


def read_sacct(path: Path) -> Trace:
    """Read an export of Slurm's accounting, except steps, jobs without GPUs, and unfinished jobs."""
    text = read_text(path, max_bytes=MAX_BYTES)
    what = f"an export by `{SACCT_COMMAND}`"
    jobs, lines = [], dict[str, int]()
    for row in parse_rows(text, str(path), SACCT, what=what, delimiter="|", free_column="jobname"):
        number = row.text("jobid")
        try:
            gpus = count_gpus(row.text("alloctres"))
        except UserMistake as mistake:
            raise row.mistake("AllocTRES", str(mistake)) from None
        if "." in number or gpus == 0 or {row.text("start"), row.text("end")} & _UNKNOWN:
            continue
        if gpus > _MAX_GPUS:
            raise row.mistake("AllocTRES", f"expected {_MAX_GPUS:,} GPUs or fewer, got {gpus:,}")
        begin, end = _parse_seconds(row, "start"), _parse_seconds(row, "end")
        if end < begin:
            raise row.mistake("end", "the job ends before it starts")
        jobs.append(
            _create_job(
                row.unique_text("jobid", lines),
                min(_parse_seconds(row, "submit"), begin),
                end - begin,
                gpus,
                row.text("user"),
                row.text("account"),
                begin_s=begin,
            )
        )
    if not jobs:
        raise UserMistake(f"{path}: no finished job with GPUs found (gres/gpu in AllocTRES)")
    return Trace.from_jobs(path, _make_relative(jobs))


def trace_from_leases(leases: Iterable[Lease], gpus: int) -> Trace:
    """Create a trace from the finished leases of a server with that many GPUs."""
    jobs = [
        _create_job(
            lease.id,
            min(lease.requested_at, lease.start),
            lease.end - lease.start,
            len(lease.gpus),
            lease.user,
            lease.group,
            lease.priority,
            lease.start,
        )
        for lease in leases
        if lease.start is not None and lease.end is not None and lease.gpus
    ]
    if not jobs:
        raise UserMistake("the history of this machine has no finished lease to simulate")
    return Trace.from_jobs(Path("leases"), _make_relative(jobs), Pool.uniform(1, gpus))


def _create_job(  # noqa: PLR0917 - the columns of a history, in one order
    name: str,
    submitted_s: float,
    seconds: float,
    gpus: int,
    user: str,
    group: str = "",
    priority: int = 0,
    begin_s: float | None = None,
) -> TraceJob:
    return TraceJob(
        name,
        submitted_s,
        SteadyWork(max(seconds, _MIN_SECONDS), _rigid_curve(gpus)),
        gpus,
        gpus,
        gpus,
        user=user,
        group=group,
        priority=priority,
        recorded_wait_s=None if begin_s is None else begin_s - submitted_s,
    )


def _make_relative(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """Make times relative to the first submission instead of 1970."""
    first = min((job.submitted_s for job in jobs), default=0.0)
    return [replace(job, submitted_s=job.submitted_s - first) for job in jobs]


@cache
def _rigid_curve(gpus: int) -> Curve:
    return Curve.rigid(gpus)


def _parse_seconds(row: TraceRow, column: str) -> float:
    """Parse a time without a zone as UTC; only differences matter."""
    text = row.text(column)
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise row.mistake(
            column, f"expected a time like 2026-01-31T09:00:00, got {quote(text)}"
        ) from None
    return moment.replace(tzinfo=datetime.UTC).timestamp()
