"""How far a job is, from three witnesses: Slurm's queue by our UUID, what its script wrote, and Slurm's database."""

import os
import pwd
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.engines.slurm.records import SlurmRecord
from gpuyard.jobs.engines.slurm.rows import SlurmJob, queue_rows
from gpuyard.jobs.engines.slurm.script.place import NO_DIRECTORY
from gpuyard.jobs.engines.slurm.starts import Start, starts_of
from gpuyard.jobs.job import FINAL, JobState, JobStatus

_WORST_FIRST: tuple[JobState, ...] = ("lost", "failed", "cancelled", "succeeded")

_NOT_STARTED = {
    127: "its script did not start: there is no python3 on its first node",
    NO_DIRECTORY: "its script did not start: its directory can't be made on its first node, or others may "
    "write to it; set $GPUYARD_HOME to one that all nodes share",
}


@dataclass(frozen=True)
class QueueSnapshot:
    """What Slurm's queue said at one moment; `rows` is None where it did not answer."""

    rows: tuple[SlurmJob, ...] | None
    reason: str = ""


@dataclass(frozen=True)
class TaskStatus:
    """How far a job is, or one task of an array."""

    state: JobState
    exit_status: int | None = None
    restarts: int = 0
    gpus: int | None = None
    nodes: tuple[str, ...] = ()
    started: float | None = None
    ended: float | None = None
    reason: str = ""


def queue_snapshot() -> QueueSnapshot:
    try:
        return QueueSnapshot(tuple(queue_rows()))
    except GpuyardError as silent:
        return QueueSnapshot(None, str(silent))


def task_status(
    record: SlurmRecord, task: str | None, rows: Sequence[SlurmJob] | None, why: str
) -> TaskStatus | None:
    """None where neither Slurm nor the script tell how it ended, or that it has not."""
    starts = starts_of(record.directory, task)
    last = starts[-1] if starts else None
    if rows is None:
        told = _from_start(starts) if last and last.end else None
        return told or replace(_so_far(starts), state="unknown", reason=why)
    own = [row for row in rows if row.uuid == record.job.uuid and row.task == task]
    if own:
        row = max(own, key=lambda one: (not one.final, one.submitted or 0.0))
        return _from_row(record, row, starts)
    return _from_start(starts) if last and last.end else None


def combined(record: SlurmRecord, parts: Sequence[TaskStatus], logs: Sequence[str]) -> JobStatus:
    """One status of all parts: of an array, it runs until its last task has ended."""
    job = record.job
    states = [part.state for part in parts]
    if len(parts) == 1:
        state = states[0]
    elif "unknown" in states:
        state = "unknown"
    elif all(one in FINAL for one in states):
        state = next(worst for worst in _WORST_FIRST if worst in states)
    else:
        state = "queued" if set(states) == {"queued"} else "running"
    ends = [part.ended for part in parts if part.ended is not None]
    nodes = dict.fromkeys(node for part in parts for node in part.nodes)
    return JobStatus(
        handle=record.handle,
        state=state,
        uuid=job.uuid,
        name=job.name,
        user=_user(),
        restarts=sum(part.restarts for part in parts),
        exit_status=max((p.exit_status for p in parts if p.exit_status is not None), default=None)
        if state in FINAL
        else None,
        gpus=sum(part.gpus or 0 for part in parts) or None,
        min_gpus=job.spec.gpus.min,
        max_gpus=job.spec.gpus.max,
        nodes=tuple(nodes),
        submitted=job.submitted,
        started=min((p.started for p in parts if p.started is not None), default=None),
        ended=max(ends) if ends and state in FINAL else None,
        deadline=job.deadline,
        priority=job.spec.priority,
        reason=next((p.reason for p in parts if p.reason and p.state == state), ""),
        command=job.spec.command,
        logs=tuple(logs),
    )


def finish(record: SlurmRecord, status: JobStatus) -> bool:
    """Keep how it ended, as Slurm forgets it; whether nobody had done so before."""
    names = [field.name for field in fields(TaskStatus)]
    end = {name: value for name, value in asdict(status).items() if name in names}
    with records.held(record.job.uuid, wait=False) as ours:
        latest = records.read(record.job.uuid)
        if not ours or latest.end:
            return False
        replace(latest, end=end).write()
        return True


def finished(record: SlurmRecord) -> TaskStatus | None:
    """As `finish` kept it."""
    if not record.end:
        return None
    try:
        return TaskStatus(**{**record.end, "nodes": tuple(record.end["nodes"])})
    except (TypeError, KeyError):
        return None  # written by another version


def _from_row(record: SlurmRecord, row: SlurmJob, starts: Sequence[Start]) -> TaskStatus:
    so_far = _so_far(starts)
    told = _from_start(starts)
    if row.state == "failed" and told is not None and told.state in {"failed", "lost"}:
        return told  # it knows better why
    reason = row.reason
    if row.state == "failed" and not starts:
        reason = _NOT_STARTED.get(row.exit_status or 0, reason)
    has_run = row.final or row.state == "running"
    return TaskStatus(
        state=row.state,
        exit_status=row.exit_status if row.final else None,
        restarts=max(so_far.restarts, row.restarts),
        gpus=so_far.gpus
        if record.elastic and starts  # it may have nodes beside those of this row
        else row.node_count * record.gpus_per_node
        if has_run and row.nodes
        else so_far.gpus,
        nodes=so_far.nodes or ((row.nodes,) if row.nodes else ()),
        started=so_far.started or (row.started if has_run else None),
        ended=row.ended if row.final else None,
        reason=reason or (so_far.reason if row.final and row.state != "succeeded" else ""),
    )


def _from_start(starts: Sequence[Start]) -> TaskStatus | None:
    if not starts or (state := starts[-1].end) is None:
        return None
    return replace(_so_far(starts), state=state, exit_status=starts[-1].exit_status)


def _so_far(starts: Sequence[Start]) -> TaskStatus:
    if not starts:
        return TaskStatus("unknown")
    last = starts[-1]
    return TaskStatus(
        "unknown",
        restarts=len(starts) - 1,
        gpus=last.gpus,
        nodes=last.nodes,
        started=starts[0].started,
        ended=last.ended,
        reason="" if last.outcome == "succeeded" else last.reason,
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
