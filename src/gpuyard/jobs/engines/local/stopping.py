"""Stopping starts: ask first, with time for a checkpoint if the job continues later, then kill."""

import os
import signal
import subprocess
import time

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.start import StartSpec, signal_supervisor, stop_processes
from gpuyard.jobs.engines.local.store import Store, StoredJob, StoredStart
from gpuyard.jobs.log_files import open_log
from gpuyard.share.client import open_client
from gpuyard.specs.job import Checkpoint

_KILL_GRACE_SECONDS = 1.0


class StartStopper:
    """Stops starts step by step. Its memory is not saved: the next runner asks again, which is harmless."""

    def __init__(self, paths: JobPaths, store: Store) -> None:
        self._paths = paths
        self._store = store
        self._asked_at: dict[tuple[int, int], float] = {}
        self._checkpoint_commands: dict[tuple[int, int], subprocess.Popen[bytes]] = {}

    def advance(self, job: StoredJob) -> None:
        """Take the next step with a start in progress, if it has to stop.

        That is so if the job was canceled, if it continues with other GPUs, or if its command has ended: it is still in
        progress then because processes that the command left behind are alive.
        """
        start = job.start
        if start is None or not (
            job.cancel_requested is not None or job.stop_reason is not None or start.outcome
        ):
            return
        key = (start.job, start.number)
        checkpoint = (
            job.job.spec.checkpoint if job.cancel_requested is None and job.stop_reason else None
        )
        if key not in self._asked_at:
            self._asked_at[key] = time.monotonic()
            if checkpoint is not None and checkpoint.command is not None:
                self._run_checkpoint_command(job, start, checkpoint.command)
            else:
                self._ask(job, start, checkpoint)
        elif key in self._checkpoint_commands:
            if checkpoint is None or self._checkpoint_is_over(key, checkpoint):
                del self._checkpoint_commands[key]
                self._ask(job, start, checkpoint)
        elif time.monotonic() - self._asked_at[key] >= _grace_seconds(checkpoint):
            stop_processes(self._paths.start(*key), start, _KILL_GRACE_SECONDS)

    def _ask(self, job: StoredJob, start: StoredStart, checkpoint: Checkpoint | None) -> None:
        key = (start.job, start.number)
        if job.stop_reason and not self._store.update_job(job, stop_signaled=time.time()):
            del self._asked_at[key]  # another process has changed the job; look again
            return
        self._asked_at[key] = time.monotonic()
        signal_supervisor(start, signal.Signals[checkpoint.signal if checkpoint else "SIGTERM"])

    def _run_checkpoint_command(
        self, job: StoredJob, start: StoredStart, command: tuple[str, ...]
    ) -> None:
        """Start the command in the job's directory, with its environment; it prints to the job's log."""
        paths = self._paths.start(start.job, start.number)
        try:
            environment = self._store.environment(job)
            spec = StartSpec.from_job(job, environment, start.gpus, paths)
            log = open_log(paths.log)
            try:
                self._checkpoint_commands[start.job, start.number] = subprocess.Popen(
                    command,
                    cwd=spec.cwd,
                    env=spec.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            finally:
                os.close(log)
        except (OSError, GpuyardError):
            self._ask(job, start, None)  # the job may have written a checkpoint by itself

    def _checkpoint_is_over(self, key: tuple[int, int], checkpoint: Checkpoint) -> bool:
        command = self._checkpoint_commands[key]
        if command.poll() is not None:
            return True
        if time.monotonic() - self._asked_at[key] < checkpoint.time:
            return False
        os.killpg(command.pid, signal.SIGKILL)  # not waited for yet, so the pid is not reused
        command.wait()
        return True


def _grace_seconds(checkpoint: Checkpoint | None) -> float:
    client = open_client()
    client.close()
    grace = client.config.grace_seconds
    return grace if checkpoint is None else max(grace, checkpoint.time)
