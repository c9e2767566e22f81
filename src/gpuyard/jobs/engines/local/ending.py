"""Starts that are to end: first they are asked, with time for a checkpoint where they go on later, then they are ended."""

import os
import signal
import subprocess
import time

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.local.paths import JobPaths, StartPaths
from gpuyard.jobs.engines.local.settling import leaves_something
from gpuyard.jobs.engines.local.start import StartView, ask_to_end, end_all, read_order
from gpuyard.jobs.engines.local.store import StoredJob
from gpuyard.jobs.log_files import open_log
from gpuyard.share.service.desk import open_desk
from gpuyard.specs.job import Checkpoint

_LAST_GRACE_SECONDS = 1.0


class Endings:
    """What was asked of whom; a runner that takes over asks again, which does no harm."""

    def __init__(self, paths: JobPaths) -> None:
        self._paths = paths
        self._asked: dict[StartPaths, float] = {}
        self._writing: dict[StartPaths, subprocess.Popen[bytes]] = {}
        """Commands that make a job write a checkpoint."""

    def look(self, row: StoredJob, view: StartView) -> None:
        """Go one step further with a start, if it is to end."""
        if row.cancelled is None and row.stopping is None and not leaves_something(row, view):
            return
        start = self._paths.start(row.number, row.starts)
        checkpoint = row.job.spec.checkpoint if row.cancelled is None and row.stopping else None
        if start not in self._asked:
            self._asked[start] = time.monotonic()
            if checkpoint is not None and checkpoint.command is not None:
                self._write_checkpoint(start, checkpoint.command)
            else:
                self._ask(start, checkpoint)
        elif start in self._writing:
            if checkpoint is None or self._has_written(start, checkpoint):
                del self._writing[start]
                self._ask(start, checkpoint)
        elif time.monotonic() - self._asked[start] >= _grace_seconds(checkpoint):
            end_all(start, _LAST_GRACE_SECONDS)

    def _ask(self, start: StartPaths, checkpoint: Checkpoint | None) -> None:
        self._asked[start] = time.monotonic()
        ask_to_end(start, signal.Signals[checkpoint.signal if checkpoint else "SIGTERM"])

    def _write_checkpoint(self, start: StartPaths, command: tuple[str, ...]) -> None:
        """Beside the job: in its directory, with its environment; what it prints is in the job's log."""
        order = read_order(start)
        try:
            log = open_log(start.log)
            try:
                self._writing[start] = subprocess.Popen(
                    command,
                    cwd=order.cwd,
                    env=order.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            finally:
                os.close(log)
        except (OSError, GpuyardError):
            self._ask(start, None)  # it may have written one by itself

    def _has_written(self, start: StartPaths, checkpoint: Checkpoint) -> bool:
        writing = self._writing[start]
        if writing.poll() is not None:
            return True
        if time.monotonic() - self._asked[start] < checkpoint.time:
            return False
        os.killpg(writing.pid, signal.SIGKILL)  # not waited for yet, so its number is its own
        writing.wait()
        return True


def _grace_seconds(checkpoint: Checkpoint | None) -> float:
    desk = open_desk()
    desk.close()
    grace = desk.config.grace_seconds
    return grace if checkpoint is None else max(grace, checkpoint.time)
