"""The processes of one start: create its lock, spawn its supervisor, find out whether it is alive, and stop it.

The supervisor and everything it starts hold the lock. The kernel frees it when the last of them is gone.
"""

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuyard.interpreter import import_path, module_argv
from gpuyard.jobs.engines.local.paths import JobPaths, StartPaths
from gpuyard.jobs.engines.local.store import StoredJob, StoredStart
from gpuyard.jobs.log_files import open_log
from gpuyard.jobs.torchrun import complete_torchrun_command
from gpuyard.reporting.reporter import FILE_VARIABLE
from gpuyard.run.process import Command, start_detached
from gpuyard.share import processes
from gpuyard.share.locks import is_held

_SUPERVISOR = "gpuyard.jobs.engines.local.supervisor"
_MAX_ERROR = 300  # characters
_MAX_TITLE = 200  # characters, for `gpuyard who`; a name may be a page


@dataclass(frozen=True)
class StartSpec:
    """The command of a start with its environment, and the lease that it needs."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    cwd: str
    gpus: int
    seconds: float | None
    project: str
    title: str
    """The job's name in the output of `gpuyard who`."""
    job: str
    """The ID by which the share knows the job."""
    exit_status: Path
    """The file for the exit status of its command."""
    gpu_samples: Path
    """The file for the state of its GPUs over time."""

    @classmethod
    def from_job(
        cls, stored: StoredJob, environment: Mapping[str, str], gpus: int, paths: StartPaths
    ) -> "StartSpec":
        """`environment` is that of the process that submitted the job."""
        job = stored.job
        report_file = {FILE_VARIABLE: str(paths.steps)}
        return cls(
            argv=complete_torchrun_command(job.spec.command, gpus_per_node=gpus),
            environment={**environment, **report_file, **job.environment(gpus)},
            cwd=str(job.cwd),
            gpus=gpus,
            seconds=job.spec.time_limit,
            project=job.spec.project,
            title=f"{stored.handle} {' '.join(job.name.split())}"[:_MAX_TITLE],
            job=stored.uuid,
            exit_status=paths.exit_status,
            gpu_samples=paths.gpu_samples,
        )


@contextlib.contextmanager
def create_lock(paths: StartPaths) -> Iterator[int]:
    """Create the directory and the lock of a new start, and hold the lock.

    The lock is held before the store has the start: otherwise another process could take the start for lost.
    """
    paths.directory.parent.mkdir(mode=0o700, exist_ok=True)
    paths.directory.mkdir(mode=0o700)
    lock = os.open(paths.lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    finally:
        os.close(lock)


def spawn_supervisor(paths: JobPaths, start: StoredStart, lock: int) -> None:
    """Start the supervisor of a start that the store has; it inherits the lock."""
    output = open_log(paths.start(start.job, start.number).supervisor_log)
    try:
        arguments = (str(paths.directory), str(start.job), str(start.number), str(lock))
        environment = {**import_path(), processes.LEASE_VARIABLE: ""}  # it has no lease yet
        command = Command("here", (*module_argv(_SUPERVISOR), *arguments), environment)
        start_detached(command, output=output, kept=(lock,))
    finally:
        os.close(output)


def is_alive(paths: StartPaths, start: StoredStart) -> bool:
    """Return whether the supervisor or any process that it started is alive."""
    if is_held(paths.lock):
        return True
    # a program that closes the files it inherits is recognized by its environment
    matcher = processes.ProcessMatcher(start.lease, os.getuid())
    return bool(start.lease) and bool(processes.find_processes(matcher))


def signal_supervisor(start: StoredStart, number: signal.Signals) -> None:
    """Send a signal to the supervisor, which forwards it; never to a process that only reuses its pid."""
    if start.pid is None:
        return
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(start.pid)
        try:
            if processes.start_time(start.pid) == start.process_start:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def stop_processes(paths: StartPaths, start: StoredStart, grace_seconds: float) -> None:
    """Stop the supervisor and everything that it started, and kill those that remain after the grace period."""
    with processes.pin_lock(paths.lock) as lock:
        matcher = processes.ProcessMatcher(start.lease or "none", os.getuid(), lock)
        processes.stop_processes([matcher], grace_seconds)


def read_supervisor_error(paths: StartPaths) -> str:
    """Return the last line that a failed supervisor printed before it opened the job's log."""
    try:
        lines = paths.supervisor_log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:_MAX_ERROR]
