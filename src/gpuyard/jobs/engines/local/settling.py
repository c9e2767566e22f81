"""What is known of each start becomes the job's state. Whoever looks does it, for the store is only as new as the last look."""

import time

from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.start import StartEnd, StartView, look
from gpuyard.jobs.engines.local.store import Store, StoredJob
from gpuyard.specs.job import Retries

_LOST = ("evicted", "stopped")


def settle(store: Store, paths: JobPaths) -> None:
    """Bring all jobs that have been started up to date."""
    for row in store.open_rows():
        if row.in_progress:
            settle_one(store, row, look(paths.start(row.number, row.starts)))


def settle_one(store: Store, row: StoredJob, view: StartView) -> None:
    """Write down what this start has come to, if that is something new."""
    if view.alive and (view.end is None or leaves_something(row, view)):
        _write_progress(store, row, view)
    elif row.cancelled is not None:
        status = None if view.end is None else view.end.exit_status
        store.change(row, state="cancelled", ended=_ended(view), exit_status=status, reason="")
    elif row.stopping is not None:
        store.change(
            row,
            state="queued",
            gpus=None,
            stopping=None,
            resized=row.resized + 1,
            reason=row.stopping,
        )
    elif view.end is None or view.end.how in _LOST:
        _lost(store, row, view)
    else:
        _finished(store, row, view)


def leaves_something(row: StoredJob, view: StartView) -> bool:
    """It has ended, but what it started has not, and has to before the job can be called over or go on."""
    if view.end is None or not view.alive:
        return False
    stopped = row.cancelled is not None or row.stopping is not None
    return stopped or _is_retried(row, view.end)


def _write_progress(store: Store, row: StoredJob, view: StartView) -> None:
    progress = view.progress
    if progress is None:
        return
    state = "running" if progress.lease else "queued"
    reason = progress.waits_for
    if row.cancelled is not None:
        reason = "is being cancelled"
    elif row.stopping is not None:
        reason = "is being stopped to go on with another number of GPUs"
    started = _started(row, view)
    if (row.state, row.reason, row.started) != (state, reason, started):
        store.change(row, state=state, reason=reason, started=started)


def _lost(store: Store, row: StoredJob, view: StartView) -> None:
    if not view.began:  # the runner was killed before it set it off: nothing ran
        store.change(row, state="queued", gpus=None)
    elif row.lost < _retries(row).lost:
        store.change(row, state="queued", gpus=None, lost=row.lost + 1, reason="was lost")
    else:
        reason = "its GPUs were reserved" if view.end else view.fault or "its processes are gone"
        store.change(row, state="lost", ended=_ended(view), reason=reason)


def _finished(store: Store, row: StoredJob, view: StartView) -> None:
    end, started = view.end, _started(row, view)
    assert end is not None  # noqa: S101 - for mypy
    if end.exit_status == 0:
        store.change(
            row, state="succeeded", started=started, ended=end.ended, exit_status=0, reason=""
        )
    elif _is_retried(row, end):
        store.change(
            row,
            state="queued",
            gpus=None,
            started=started,
            failed=row.failed + 1,
            exit_status=end.exit_status,
            reason=f"ended with exit status {end.exit_status}",
        )
    else:
        reason = "its time limit was reached" if end.how == "time" else end.reason
        store.change(
            row,
            state="failed",
            started=started,
            ended=end.ended,
            exit_status=end.exit_status,
            reason=reason,
        )


def _started(row: StoredJob, view: StartView) -> float | None:
    """For the first time."""
    return row.started or (view.progress.started if view.progress is not None else None)


def _is_retried(row: StoredJob, end: StartEnd) -> bool:
    failed = end.how == "exit" and end.exit_status != 0
    return failed and row.failed < _retries(row).failed


def _retries(row: StoredJob) -> Retries:
    return row.job.spec.retries


def _ended(view: StartView) -> float:
    return time.time() if view.end is None else view.end.ended
