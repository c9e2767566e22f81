"""What ran once, as a trace: the Philly table, Slurm's accounting, the leases of a shared server.

How such jobs would have scaled is not known: each asks for the GPUs that it had, for as long as it had them.
"""

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpuyard.economics.demand import gpus_of
from gpuyard.errors import UserMistake, quoted
from gpuyard.files import read_text
from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies.base import Pool
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.traces.rows import MOST_BYTES, TraceRow, read_rows, rows_of
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.share.store.lease import Lease

PHILLY = ("timestamp", "duration", "num_gpus")
SACCT = ("jobid", "submit", "start", "end", "alloctres")
# a job's name may have the delimiter in it, so that it comes last
SACCT_COMMAND = "sacct -P -X -o JobID,User,Account,Submit,Start,End,AllocTRES,JobName"
_UNKNOWN = {"", "Unknown", "None"}
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}")
_MOST_GPUS = 100_000
_LEAST_SECONDS = 1.0  # of a job: Slurm writes whole seconds, and a job has taken some time


def read_philly(path: Path) -> Trace:
    """The job table of Microsoft's Philly cluster (Jeon et al., ATC 2019), its virtual clusters as users."""
    jobs = [
        _past(
            f"philly-{number}",
            _seconds(row, "timestamp"),
            row.number("duration", most=1e9),
            row.count("num_gpus", most=_MOST_GPUS),
            row.text("cluster"),
        )
        for number, row in enumerate(read_rows(path, PHILLY, what="the Philly job table"), 1)
    ]
    return Trace.of(path, _from_zero(jobs))


def read_sacct(path: Path) -> Trace:
    """An export of Slurm's accounting; steps, jobs without GPUs and those that have not ended are left out."""
    text = read_text(path, most_bytes=MOST_BYTES)
    what = f"an export by `{SACCT_COMMAND}`"
    jobs, lines = [], dict[str, int]()
    for row in rows_of(text, str(path), SACCT, what=what, delimiter="|", free="jobname"):
        number = row.text("jobid")
        try:
            gpus = gpus_of(row.text("alloctres"))
        except UserMistake as mistake:
            raise row.wrong("AllocTRES", str(mistake)) from None
        if "." in number or gpus == 0 or {row.text("start"), row.text("end")} & _UNKNOWN:
            continue
        if gpus > _MOST_GPUS:
            raise row.wrong("AllocTRES", f"expected {_MOST_GPUS:,} GPUs or fewer, got {gpus:,}")
        begin, end = _seconds(row, "start"), _seconds(row, "end")
        if end < begin:
            raise row.wrong("end", "the job ends before it starts")
        jobs.append(
            _past(
                row.new("jobid", lines),
                min(_seconds(row, "submit"), begin),
                end - begin,
                gpus,
                row.text("user"),
                row.text("account"),
                begin_s=begin,
            )
        )
    if not jobs:
        raise UserMistake(f"{path}: no job in it has ended and had GPUs (gres/gpu in AllocTRES)")
    return Trace.of(path, _from_zero(jobs))


def lease_trace(leases: Iterable[Lease], gpus: int) -> Trace:
    """The leases of a server with so many GPUs that are over."""
    jobs = [
        _past(
            lease.id,
            min(lease.asked, lease.start),
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
        raise UserMistake("no lease of this machine is over yet: there is no history to simulate")
    return Trace.of(Path("leases"), _from_zero(jobs), Pool.uniform(1, gpus))


def _past(  # noqa: PLR0917 - the columns of a history, in one order
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
        SteadyWork(max(seconds, _LEAST_SECONDS), _rigid(gpus)),
        gpus,
        gpus,
        gpus,
        user=user,
        group=group,
        priority=priority,
        waited_s=None if begin_s is None else begin_s - submitted_s,
    )


def _from_zero(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """In seconds from the first submission, not from 1970."""
    first = min((job.submitted_s for job in jobs), default=0.0)
    return [replace(job, submitted_s=job.submitted_s - first) for job in jobs]


@cache
def _rigid(gpus: int) -> Curve:
    return Curve.rigid(gpus)


def _seconds(row: TraceRow, column: str) -> float:
    """Of a time without zone, as if it were UTC: only differences count."""
    text = row.text(column)
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise row.wrong(
            column, f"expected a time like 2026-01-31T09:00:00, got {quoted(text)}"
        ) from None
    return moment.replace(tzinfo=datetime.UTC).timestamp()
