"""The state changes of a job after its start, each in one transaction.

The supervisor commits what happens to its start. A job that is over is over at once. A job that continues, or that was
canceled, waits until nothing of the start is alive: its lock is free. Any process may commit that step, and it is
also how a start is found that was lost.
"""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpuyard.jobs.engines.local.paths import JobPaths, StartPaths
from gpuyard.jobs.engines.local.recorder import read_exit_status
from gpuyard.jobs.engines.local.start import is_alive, read_supervisor_error
from gpuyard.jobs.engines.local.store import Store, StoredJob, StoredStart
from gpuyard.jobs.job import FINAL, Handle, JobState

_LOST = ("evicted", "stopped", "lost")


def record_progress(store: Store, start: StoredStart, waiting_for: str = "") -> bool:
    """Commit that the supervisor has begun, waits for a lease, or has its GPUs.

    Return False if the job must not continue: the user has canceled it, or this is no longer its start.
    """
    with store.transaction():
        job = _read_job(store, start)
        if job is None:
            return False
        store.save_start(start)
        being_stopped = job.cancel_requested is not None or job.stop_reason is not None
        store.update_job(
            job,
            state="queued" if start.started is None else "running",
            started=job.started or start.started,
            reason=job.reason if being_stopped else waiting_for,
        )
    return job.cancel_requested is None


def record_end(store: Store, start: StoredStart) -> None:
    """Commit how a start ended, and with it the end of the job if the job is over."""
    with store.transaction():
        job = _read_job(store, start)
        if job is None:
            return
        store.save_start(start)
        changes = _next_state(job, start)
        if changes["state"] in FINAL and job.cancel_requested is None:
            store.update_job(job, **changes)


def close_dead_starts(
    store: Store, paths: JobPaths, in_progress: Iterable[StoredJob] | None = None
) -> None:
    """Move on the jobs whose start has no living processes any more; by default, look at all jobs in progress."""
    for job in store.jobs_in_progress() if in_progress is None else in_progress:
        if job.start is not None:
            start_paths = paths.start(job.number, job.start_count)
            if not is_alive(start_paths, job.start):
                _close_start(store, job.start, start_paths)


def _close_start(store: Store, dead: StoredStart, paths: StartPaths) -> None:
    with store.transaction():
        # read again: before the lock was free, the supervisor may have committed its lease or its end
        job = _read_job(store, dead)
        if job is None or job.start is None or is_alive(paths, job.start):
            return
        start, error = job.start, ""
        if start.outcome is None:
            status = read_exit_status(paths.exit_status)
            if status is None:
                error = read_supervisor_error(paths)
                start = replace(start, outcome="lost", ended=_last_output_time(paths))
            else:  # the command has finished, and its supervisor was killed before it could report that
                ended = paths.exit_status.stat().st_mtime
                start = replace(start, outcome="exited", exit_status=status, ended=ended)
            store.save_start(start)
        store.update_job(job, **_next_state(job, start, error))


def _next_state(job: StoredJob, start: StoredStart, error: str = "") -> dict[str, Any]:
    """Return the columns of the job that change after the end of its start."""
    if job.cancel_requested is not None:
        return _end_job(job, start, "cancelled")
    finished = start.outcome == "exited" and start.exit_status == 0 and job.stop_signaled is None
    if job.stop_reason is not None and not finished:
        return _requeue(
            job,
            start,
            reason=job.stop_reason,
            stop_reason=None,
            stop_signaled=None,
            resized_count=job.resized_count + 1,
        )
    if start.outcome in _LOST:
        return _handle_loss(job, start, error)
    if start.exit_status == 0:
        return _end_job(job, start, "succeeded")
    if start.outcome == "exited" and job.failed_count < job.job.spec.retries.failed:
        return _requeue(
            job,
            start,
            reason=f"failed with exit status {start.exit_status}",
            failed_count=job.failed_count + 1,
            exit_status=start.exit_status,
        )
    reason = "its time limit was reached" if start.outcome == "time_limit" else start.reason
    return _end_job(job, start, "failed", reason)


def _handle_loss(job: StoredJob, start: StoredStart, error: str) -> dict[str, Any]:
    if start.pid is None and not error:  # the runner was killed before it spawned a supervisor
        return _requeue(job, start, reason=job.reason)
    if job.lost_count < job.job.spec.retries.lost:
        return _requeue(job, start, reason="was lost", lost_count=job.lost_count + 1)
    reason = error or "its processes are gone"
    if start.outcome != "lost":
        evicted = start.outcome == "evicted"
        reason = "its GPUs were reserved" if evicted else "its supervisor was stopped"
    return _end_job(job, start, "lost", reason)


def _requeue(job: StoredJob, start: StoredStart, **changes: Any) -> dict[str, Any]:
    first_started = job.started or start.started
    return {"state": "queued", "gpus": None, "started": first_started, **changes}


def _end_job(
    job: StoredJob, start: StoredStart, state: JobState, reason: str = ""
) -> dict[str, Any]:
    return {
        "state": state,
        "started": job.started or start.started,
        "ended": time.time() if start.outcome == "lost" else start.ended,
        "exit_status": start.exit_status,
        "reason": reason,
    }


def _read_job(store: Store, start: StoredStart) -> StoredJob | None:
    """Return the job of a start; None if the job has ended or has moved on to another start."""
    job = store.job(Handle("local", str(start.job)))
    return job if job.in_progress and job.start_count == start.number else None


def _last_output_time(paths: StartPaths) -> float:
    """Return when a lost start last printed something; it may have been dead for long since."""
    with contextlib.suppress(OSError):
        return paths.log.stat().st_mtime
    return time.time()
