"""Start the process that starts and stops a user's jobs, unless it runs already; replace one that does nothing.

A runner keeps nothing in memory that is not in the job store, and jobs outlive it, so that it can be killed at any time.
"""

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.log_files import open_log
from gpuyard.run.process import Command, start_detached
from gpuyard.share.config import share_directory
from gpuyard.share.processes import LEASE_VARIABLE, is_stopped

_MODULE = "gpuyard.jobs.engines.local.runner"
_HUNG_SECONDS = 120.0  # since its last round, which it notes in the time of its lock file
_END_SECONDS = 5.0
_PAUSE_SECONDS = 0.02


def ensure_runner(paths: JobPaths) -> None:
    """Start a runner unless there is one."""
    paths.create()
    try:
        _start_runner(paths)
    except (OSError, GpuyardError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise GpuyardError(
            f"the job runner cannot be started: {reason}; jobs wait until it can be"
        ) from error


def _start_runner(paths: JobPaths) -> None:
    lock = os.open(paths.runner_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not _acquire(lock):
            return
        log = open_log(paths.runner_log)
        try:
            # the runner inherits the lock, so that a second one cannot start at any moment
            environment = {
                **import_path(),
                LEASE_VARIABLE: "",
                "GPUYARD_HOME": str(files.home().absolute()),
                "GPUYARD_SHARE_DIR": str(share_directory()),
            }
            argv = (*module_argv(_MODULE), str(paths.directory), str(lock))
            start_detached(Command("here", argv, environment), output=log, kept=(lock,))
        finally:
            os.close(log)
    finally:
        os.close(lock)


def _acquire(lock: int) -> bool:
    """Return whether there was no runner, or one that was stopped or hung and is gone now."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    if not _kill_idle_runner(lock):
        return False
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def _kill_idle_runner(lock: int) -> bool:
    """Kill the runner if it was stopped, or if it has not done a round for minutes; return whether it was."""
    try:
        pid = int(os.pread(lock, 20, 0))
        handle = os.pidfd_open(pid)
    except (ValueError, OSError):  # it is just starting, or just ending
        return False
    try:
        hung = time.time() - os.fstat(lock).st_mtime > _HUNG_SECONDS
        # only the runner has its lock file open for long; another process may have its number by now
        if not (hung or is_stopped(pid)) or not _has_open(pid, lock):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _has_open(pid: int, file: int) -> bool:
    """Return whether a process has this file open."""
    status = os.fstat(file)
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.path.samestat(entry.stat(), status):
                return True
    return False
