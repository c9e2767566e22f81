"""`python -m gpuyard.jobs.engines.local.supervisor DIRECTORY JOB START LOCK`: run one start of a job.

The supervisor waits for a lease, runs the job's command on it, and commits each step to the job store. It depends on no
other process: the runner that spawned it may be gone.
"""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.recorder import record_exit_status
from gpuyard.jobs.engines.local.start import StartSpec
from gpuyard.jobs.engines.local.store import Outcome, Store, StoredStart
from gpuyard.jobs.engines.local.transitions import record_end, record_progress
from gpuyard.jobs.gpu_samples import start_sampling
from gpuyard.jobs.job import Handle
from gpuyard.jobs.log_files import open_log
from gpuyard.share.client import Client, open_client
from gpuyard.share.clock import Clock
from gpuyard.share.config import share_directory
from gpuyard.share.gpus import gpu_source
from gpuyard.share.launcher import refresh_end, run_leased, wait_for_lease
from gpuyard.share.models import Lease, LeaseRequest, QueueStatus
from gpuyard.share.processes import start_time

_RETRY_SECONDS = 2.0


class _Stopped(BaseException):
    """The job was canceled, or SIGTERM arrived, while no command runs."""


class Supervisor:
    """Runs one start. Its row is kept in memory too: each commit makes up for those that failed before."""

    def __init__(self, store: Path, start: StoredStart, spec: StartSpec) -> None:
        self._store = store
        pid = os.getpid()
        self._start = replace(start, pid=pid, process_start=start_time(pid))
        self._spec = spec
        self._end_is_committed = False

    def run(self) -> None:
        """Run the start to its end, and return only when the store has that end."""
        signal.signal(signal.SIGTERM, _raise_stopped)
        try:
            while not self._record_progress():  # nothing runs before the store knows its supervisor
                time.sleep(_RETRY_SECONDS)
            os.chdir(self._spec.cwd)
            client, lease, lock = self._wait_for_lease()
            self._run_command(client, lease, lock)
        except _Stopped:
            self._set_end("stopped")
        except UserMistake as mistake:  # asking again would not change the answer
            self._set_end("refused", reason=str(mistake))
        except OSError as error:
            self._set_end("refused", reason=f"{error.filename}: {error.strerror}")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while not self._end_is_committed:
            # only this process knows the exit status: it stays until the store can be written
            self._commit_end()
            if not self._end_is_committed:
                time.sleep(_RETRY_SECONDS)

    def _wait_for_lease(self) -> tuple[Client, Lease, int]:
        request = LeaseRequest(
            count=self._spec.gpus,
            seconds=self._spec.seconds,
            command=self._spec.title,
            project=self._spec.project,
            job=self._spec.job,
        )
        while True:
            try:
                client = open_client()
                return (client, *wait_for_lease(client, request, None, self._record_waiting))
            except UserMistake:
                raise
            except GpuyardError as error:  # the lease service may come back
                self._record_progress(waiting_for=str(error))
                time.sleep(_RETRY_SECONDS)

    def _record_waiting(self, status: QueueStatus) -> None:
        why = f": {status.reason}" if status.reason else ""
        self._start = replace(self._start, lease=status.lease.id)
        self._record_progress(f"number {status.position} in the queue for GPUs{why}")

    def _run_command(self, client: Client, lease: Lease, lock: int) -> None:
        self._start = replace(self._start, lease=lease.id, started=time.time())
        self._record_progress()

        def on_exit(status: int) -> None:
            current = refresh_end(lease, lock)
            is_over = current.until_boot is not None and current.until_boot <= Clock().boot()
            outcome: Outcome = "exited"
            if is_over and status != 0:
                outcome = "time_limit" if current.seconds is not None else "evicted"
            self._set_end(outcome, exit_status=status)
            self._commit_end()

        record = record_exit_status(self._spec.exit_status)
        source = gpu_source(share_directory(), client.config)

        def spawn(*arguments: Any) -> int:
            recorder = record(*arguments)  # first, because a process with threads must not fork
            start_sampling(self._spec.gpu_samples, lease.gpus, source.read)
            return recorder

        run_leased(client, lease, lock, self._spec.argv, on_exit, spawn=spawn)

    def _record_progress(self, waiting_for: str = "") -> bool:
        """Return whether the store could be written; a full disk does not stop a job that runs."""
        try:
            with Store.open_existing(self._store) as store:
                is_wanted = record_progress(store, self._start, waiting_for)
        except UserMistake as error:  # the user has removed the job
            raise _Stopped from error
        except GpuyardError:
            return False
        if not is_wanted:
            raise _Stopped
        return True

    def _set_end(
        self, outcome: Outcome, *, exit_status: int | None = None, reason: str = ""
    ) -> None:
        if self._start.outcome is None:
            self._start = replace(
                self._start,
                outcome=outcome,
                exit_status=exit_status,
                reason=reason,
                ended=time.time(),
            )

    def _commit_end(self) -> None:
        try:
            with Store.open_existing(self._store) as store:
                record_end(store, self._start)
            self._end_is_committed = True
        except UserMistake:  # the user has removed the job
            self._end_is_committed = True
        except GpuyardError:
            self._end_is_committed = False


def _raise_stopped(*_: object) -> NoReturn:
    raise _Stopped


def main() -> None:
    paths, job, number = JobPaths(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    # all processes that the command starts inherit the lock, too
    os.set_inheritable(int(sys.argv[4]), True)
    with Store.open_existing(paths.store) as store:
        stored = store.job(Handle("local", job))
        environment = store.environment(stored)
    if stored.start is None or stored.start.number != number:
        raise GpuyardError(f"start {number} of {stored.handle} not found in {paths.store}")
    start_paths = paths.start(stored.number, number)
    spec = StartSpec.from_job(stored, environment, stored.start.gpus, start_paths)
    log = open_log(start_paths.log)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(spec.environment)
    Supervisor(paths.store, stored.start, spec).run()


if __name__ == "__main__":
    main()
