"""`python -m gpuyard.jobs.engines.local.runner DIRECTORY LOCK`: start and stop a user's jobs as the share decides.

There is one runner per user. All its state is in the job store: if it is killed, jobs that run continue, and jobs that
wait do so until the next command about jobs starts another runner. It exits when all jobs have ended.
"""

import contextlib
import fcntl
import hashlib
import math
import os
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.pruning import prune_jobs, read_keep_seconds
from gpuyard.jobs.engines.local.reports import StepReports
from gpuyard.jobs.engines.local.start import create_lock, spawn_supervisor
from gpuyard.jobs.engines.local.stopping import StartStopper
from gpuyard.jobs.engines.local.store import Store, StoredJob
from gpuyard.jobs.engines.local.transitions import close_dead_starts
from gpuyard.jobs.engines.local.views import announce_job, keep_measurements
from gpuyard.jobs.job import FINAL, Handle
from gpuyard.reporting.windows import latest_loss
from gpuyard.share.client import open_client
from gpuyard.share.schedule import MAX_JOBS, MAX_SPEEDS, JobAnnouncement
from gpuyard.temporary import remove_leftovers

_ROUND_SECONDS = 0.25
_IDLE_SECONDS = 2.0
_ASK_AGAIN_SECONDS = 1.0  # whether waiting jobs may start: leases of other users may have ended
_MAX_ASK_AGAIN_SECONDS = 3.0  # if the answer has been the same for a while
_PATIENCE = 10  # the pause grows to this fraction of the time without a change
_ANNOUNCE_AGAIN_SECONDS = 5.0  # if no job waits; an announcement expires after 20 s
_ESTIMATE_AGAIN_SECONDS = 30.0  # the remaining work of jobs, if none of them has changed
_AFTER_ERROR_SECONDS = 1.0
_NOTE_SECONDS = 5.0  # between notes that the runner works
_IN_QUEUE = "in the queue for GPUs"
_PRUNED_PER_ROUND = 50
_PRUNE_AGAIN_SECONDS = 3600.0


class Runner:
    """The decisions of a runner, one round at a time."""

    def __init__(self, paths: JobPaths, store: Store) -> None:
        self._paths = paths
        self._store = store
        self._reports = StepReports(paths)
        self._stopper = StartStopper(paths, store)
        # one user may have several home directories, each with a runner
        self._id = hashlib.sha256(os.fsencode(paths.directory)).hexdigest()[:16]
        self._error = ""
        self._revision: tuple[int, int] | None = None
        self._in_progress: Sequence[StoredJob] = ()
        self._waiting: Sequence[StoredJob] = ()
        self._has_unmeasured = True
        self._queue: tuple[object, ...] = ()
        """The facts about jobs on which a decision depends."""
        self._announced: Sequence[JobAnnouncement] = ()
        self._refused: dict[str, str] = {}
        """Why jobs cannot be announced, by their UUID."""
        self._announced_queue: tuple[object, ...] = ()
        self._asked_at = self._estimated_at = self._changed_at = self._prune_at = -math.inf

    def run_round(self) -> bool:
        """Stop and start jobs as needed; return whether any job is open."""
        self._read_jobs()
        close_dead_starts(self._store, self._paths, self._in_progress)
        self._read_jobs()
        in_progress, waiting = self._in_progress, self._waiting
        for job in in_progress:
            self._stopper.advance(job)
        if self._is_time_to_ask():
            try:
                self._ask_share(waiting, in_progress)
            except GpuyardError as error:  # e.g. the lease service is unreachable
                self._error = str(error)
                for job in waiting:
                    if job.reason != str(error):
                        self._store.update_job(job, reason=str(error))
                raise
        if self._has_unmeasured:
            self._measure_finished_starts()
        self._prune_jobs()
        return bool(waiting or in_progress or self._store.has_open_jobs())

    def _read_jobs(self) -> None:
        """Read the open jobs if any process has changed the store since the last time."""
        revision = self._store.revision()
        if revision == self._revision:
            return
        self._revision = revision
        jobs = self._store.open_jobs()
        self._in_progress = [job for job in jobs if job.in_progress]
        self._waiting = [
            job for job in jobs if not job.in_progress and self._check_dependencies(job)
        ]
        self._queue = tuple(
            (job.number, job.state, job.start_count, job.gpus, job.stop_reason) for job in jobs
        )
        self._has_unmeasured = True

    def _measure_finished_starts(self) -> None:
        """Keep the reports of finished starts as measurements, and their last loss for lists of jobs."""
        self._has_unmeasured = False
        for job in self._store.unmeasured_jobs():
            loss = latest_loss(StepReports(self._paths, tail_only=True).read_job(job))
            if not self._store.update_job(job, measured_starts=job.finished_starts, loss=loss):
                self._has_unmeasured = True
                continue
            for number in range(job.measured_starts + 1, job.finished_starts + 1):
                remove_leftovers(self._paths.start(job.number, number).directory)
            keep_measurements(job, self._reports)
            if job.state in FINAL:
                self._reports.forget(job)

    def _prune_jobs(self) -> None:
        """Delete some of the jobs that ended long ago; once there are none, look again later."""
        if time.monotonic() >= self._prune_at:
            before = time.time() - read_keep_seconds(self._store)
            pruned = prune_jobs(self._store, self._paths, before, limit=_PRUNED_PER_ROUND)
            pause = 0.0 if pruned == _PRUNED_PER_ROUND else _PRUNE_AGAIN_SECONDS
            self._prune_at = time.monotonic() + pause

    def _is_time_to_ask(self) -> bool:
        """Return whether jobs have changed since the last announcement, or enough time has passed."""
        changed = self._queue != self._announced_queue
        interval = _ANNOUNCE_AGAIN_SECONDS
        if self._waiting:
            unchanged_seconds = time.monotonic() - self._changed_at
            interval = max(_ASK_AGAIN_SECONDS, unchanged_seconds / _PATIENCE)
            interval = min(interval, _MAX_ASK_AGAIN_SECONDS)
        return changed or (bool(self._queue) and time.monotonic() - self._asked_at >= interval)

    def _check_dependencies(self, job: StoredJob) -> bool:
        """Return whether the jobs before it have succeeded; cancel it if one of them cannot any more."""
        for text in job.job.spec.after:
            dependency = self._store.job(Handle.parse(text))
            if dependency.state == "succeeded":
                continue
            if dependency.state in FINAL:
                reason = f"comes after {text}, which is {dependency.state}"
                self._store.update_job(job, state="cancelled", ended=time.time(), reason=reason)
            elif job.reason != (reason := f"comes after {text}"):
                self._store.update_job(job, reason=reason)
            return False
        return True

    def _ask_share(self, waiting: Sequence[StoredJob], in_progress: Sequence[StoredJob]) -> None:
        """Announce the open jobs to the share, and do what its policy decides for all users."""
        client, self._asked_at = open_client(), time.monotonic()
        try:
            age = self._asked_at - self._estimated_at
            limit = _ANNOUNCE_AGAIN_SECONDS if in_progress else _ESTIMATE_AGAIN_SECONDS
            if self._queue != self._announced_queue or age >= limit:
                self._estimated_at = self._asked_at
                self._announced = self._describe_jobs(waiting, in_progress, len(client.config.gpus))
            answer = client.schedule(self._id, list(self._announced))
        finally:
            client.close()
        if self._queue != self._announced_queue:
            self._changed_at = self._asked_at
        self._announced_queue = self._queue
        for job in in_progress:
            if job.uuid in answer.resizes and job.stop_reason is None:
                self._stop_to_resize(job, answer.resizes[job.uuid])
        for job in waiting:
            reason = answer.reasons.get(job.uuid) or self._refused.get(job.uuid, _IN_QUEUE)
            # why it was stopped, lost, or failed says more than its place in the queue
            is_place = job.reason.endswith((_IN_QUEUE, self._error or _IN_QUEUE))
            is_known = job.start_count and job.reason and not is_place
            if job.uuid in answer.starts:
                self._start(job, answer.starts[job.uuid])
            elif job.reason != reason and not is_known:
                self._store.update_job(job, reason=reason)

    def _describe_jobs(
        self, waiting: Sequence[StoredJob], in_progress: Sequence[StoredJob], total_gpus: int
    ) -> Sequence[JobAnnouncement]:
        first = sorted(waiting, key=lambda job: (-job.job.spec.priority, job.job.submitted))
        jobs, now = [*in_progress, *first][:MAX_JOBS], time.time()
        announced: list[JobAnnouncement] = []
        speeds = 0
        self._refused = {}
        for job in jobs:
            try:
                announcement = announce_job(job, self._reports, total_gpus, now)
            except UserMistake as error:  # must not keep the other jobs from being announced
                self._refused[job.uuid] = str(error)
                continue
            speeds += len(announcement.speeds)
            if announced and speeds > MAX_SPEEDS:
                break
            announced.append(announcement)
        return announced

    def _stop_to_resize(self, job: StoredJob, gpus: int) -> None:
        stop_reason = "was stopped to make room for other jobs"
        if gpus:
            stop_reason = f"was stopped to continue with {gpus} GPUs instead of {job.gpus}"
        reason = "is being stopped to continue with another number of GPUs"
        self._store.update_job(job, stop_reason=stop_reason, reason=reason)

    def _start(self, job: StoredJob, gpus: int) -> None:
        """Start a job unless it was canceled in the meantime."""
        paths = self._paths.start(job.number, job.start_count + 1)
        # a runner that was killed before the store had the start has left these files
        shutil.rmtree(paths.directory, ignore_errors=True)
        with create_lock(paths) as lock:
            start = self._store.add_start(job, gpus)
            if start is not None:
                spawn_supervisor(self._paths, start, lock)
                return
        shutil.rmtree(paths.directory)


def main() -> None:
    paths, lock = JobPaths(Path(sys.argv[1])), int(sys.argv[2])
    os.chdir("/")
    os.set_inheritable(lock, False)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    with Store(paths.store) as store:
        runner = Runner(paths, store)
        while True:
            _run_until_idle(runner, paths, lock)
            # a command that submitted a job after the last round saw the lock and started no runner
            fcntl.flock(lock, fcntl.LOCK_UN)
            if not store.has_open_jobs():
                return
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another runner has started


def _run_until_idle(runner: Runner, paths: JobPaths, lock: int) -> None:
    idle_since, message, noted_at = None, "", 0.0
    while True:
        busy = True
        if time.monotonic() - noted_at >= _NOTE_SECONDS:
            noted_at = time.monotonic()
            os.utime(lock)  # shows that it is not hung
        try:
            busy = runner.run_round()
        except Exception as error:  # one failure (a full disk, a bug) must not stop all jobs
            if not paths.store.exists():
                raise SystemExit(0) from error
            message = _log_error(error, message)
            time.sleep(_AFTER_ERROR_SECONDS)
        _reap_children()
        if busy:
            idle_since = None
        else:
            idle_since = idle_since or time.monotonic()
            if time.monotonic() - idle_since >= _IDLE_SECONDS:
                return
        time.sleep(_ROUND_SECONDS)


def _log_error(error: Exception, last_message: str) -> str:
    """Log an error once: a lasting one would fill the log. Return its message."""
    message = str(error) if isinstance(error, GpuyardError) else traceback.format_exc()
    if message != last_message:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")
            sys.stderr.flush()
    return message


def _reap_children() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
