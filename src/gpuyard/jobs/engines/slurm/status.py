"""The status of a job from three sources: Slurm's queue, the files that its script wrote, and Slurm's database."""

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.engines.slurm.records import SlurmRecord, TaskStatus
from gpuyard.jobs.engines.slurm.script.task_directory import NO_DIRECTORY
from gpuyard.jobs.engines.slurm.starts import Start, has_message_file, read_starts
from gpuyard.jobs.job import FINAL, JobState, JobStatus
from gpuyard.slurm.jobs import SlurmJob, list_jobs

_SIGNALED = 128  # A shell adds the number of the signal that ended a process.
_WORST_FIRST: tuple[JobState, ...] = ("lost", "failed", "cancelled", "succeeded")
_NOT_STARTED = {
    127: "its script did not start: python3 not found on its first node",
    NO_DIRECTORY: "its script did not start: its directory cannot be created on its first node, or others can "
    "write to it; set $GPUYARD_HOME to a directory that all nodes share",
}


@dataclass(frozen=True)
class QueueSnapshot:
    """Slurm's queue at one moment; `jobs` is None if Slurm did not answer."""

    jobs: tuple[SlurmJob, ...] | None
    reason: str = ""


def read_queue() -> QueueSnapshot:
    try:
        return QueueSnapshot(tuple(list_jobs()))
    except GpuyardError as error:
        return QueueSnapshot(None, str(error))


def read_task_status(
    record: SlurmRecord, task: str | None, queue: QueueSnapshot
) -> TaskStatus | None:
    """Return the status of a task; None if it has no recorded result and Slurm lost it or ended it.

    A result that its script recorded counts, whatever Slurm says: Slurm may requeue a job that has finished. Only why a
    job was stopped is for Slurm to say.
    """
    starts = read_starts(record.directory, task)
    recorded = _recorded_status(starts)
    if recorded is not None and recorded.state != "cancelled":
        return recorded
    if queue.jobs is None:
        return recorded or replace(_status_so_far(starts), state="unknown", reason=queue.reason)
    newest = find_newest_job(record, task, queue)
    if newest is None:
        return recorded
    if _was_interrupted(newest, starts, has_message_file(record, newest.number, task)):
        return None
    return _status_in_queue(record, newest, starts)


def find_newest_job(record: SlurmRecord, task: str | None, queue: QueueSnapshot) -> SlurmJob | None:
    """Find the task in Slurm's queue; it has several jobs there if it was submitted again."""
    own = [job for job in queue.jobs or () if job.comment == record.comment and job.task == task]
    return max(own, key=lambda job: (not job.is_final, job.submitted or 0.0), default=None)


def _was_interrupted(job: SlurmJob, starts: Sequence[Start], script_ran: bool) -> bool:
    """Return whether Slurm ended a job although its command did not: after a lost node, a failed launch, or a kill."""
    if job.slurm_state != "FAILED":
        return job.state == "lost"
    if starts:
        return starts[-1].final_state is None
    killed = (job.exit_status or 0) > _SIGNALED
    return killed or not (script_ran or job.exit_status in _NOT_STARTED)


def combine_tasks(
    record: SlurmRecord, tasks: Sequence[TaskStatus], logs: Sequence[str]
) -> JobStatus:
    """Combine the statuses of all tasks: an array runs until its last task has finished."""
    job = record.summary
    states = [task.state for task in tasks]
    if len(tasks) == 1:
        state = states[0]
    elif "unknown" in states:
        state = "unknown"
    elif all(state in FINAL for state in states):
        state = next(worst for worst in _WORST_FIRST if worst in states)
    else:
        state = "queued" if set(states) == {"queued"} else "running"
    final = state in FINAL
    exit_statuses = [task.exit_status for task in tasks if task.exit_status is not None]
    ends = [task.ended for task in tasks if task.ended is not None]
    return JobStatus(
        handle=record.handle,
        state=state,
        uuid=record.uuid,
        name=job.name,
        user=_user_name(),
        restarts=sum(task.restarts for task in tasks),
        exit_status=max(exit_statuses, default=None) if final else None,
        gpus=sum(task.gpus or 0 for task in tasks) or None,
        min_gpus=job.min_gpus,
        max_gpus=job.max_gpus,
        nodes=tuple(dict.fromkeys(node for task in tasks for node in task.nodes)),
        submitted=job.submitted,
        started=min((task.started for task in tasks if task.started is not None), default=None),
        ended=max(ends, default=None) if final else None,
        deadline=job.deadline,
        priority=job.priority,
        reason=next((task.reason for task in tasks if task.reason and task.state == state), ""),
        canceling=record.canceled and not final,
        command=job.command,
        logs=tuple(logs),
    )


def keep_result(record: SlurmRecord, status: JobStatus) -> bool:
    """Keep the result, as Slurm forgets it; return whether this call was the first to do so."""
    result = TaskStatus(**{field.name: getattr(status, field.name) for field in fields(TaskStatus)})
    with records.lock(record.uuid, wait=False) as locked:
        latest = records.read(record.uuid)
        if not locked or latest.result:
            return False
        replace(latest, result=result).write()
        return True


def _status_in_queue(record: SlurmRecord, job: SlurmJob, starts: Sequence[Start]) -> TaskStatus:
    so_far = _status_so_far(starts)
    reason = job.reason
    if job.state == "failed" and not starts:
        reason = _NOT_STARTED.get(job.exit_status or 0, reason)
    has_run = job.is_final or job.state == "running"
    # An elastic job may have nodes of companions as well.
    queue_gpus = has_run and job.nodes and not (record.elastic and starts)
    return TaskStatus(
        state=job.state,
        exit_status=job.exit_status if job.is_final else None,
        restarts=max(so_far.restarts, job.restarts),
        gpus=job.node_count * record.gpus_per_node if queue_gpus else so_far.gpus,
        nodes=so_far.nodes or ((job.nodes,) if job.nodes else ()),
        started=so_far.started or (job.started if has_run else None),
        ended=job.ended if job.is_final else None,
        reason=reason or (so_far.reason if job.is_final and job.state != "succeeded" else ""),
    )


def _recorded_status(starts: Sequence[Start]) -> TaskStatus | None:
    """Return the recorded end of the job: any success, or what its last start recorded; None if there is none."""
    last = next((start for start in starts if start.outcome == "succeeded"), None)
    if last is None and starts:
        last = starts[-1]
    if last is None or (state := last.final_state) is None:
        return None
    so_far = _status_so_far(starts[: starts.index(last) + 1])
    return replace(so_far, state=state, exit_status=last.exit_status)


def _status_so_far(starts: Sequence[Start]) -> TaskStatus:
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


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
