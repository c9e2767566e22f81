"""The parent of a job's command: it writes the exit status to disk before anything else, and outlives the supervisor.

The kernel reports an exit status to the parent only. If that were the supervisor, the status of a finished command would be
lost with a supervisor that was killed, and the job would run again.
"""

import contextlib
import os
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from gpuyard.share.launcher import Spawn, spawn_command

_SPAWNED = struct.Struct("i")
_KILLED = 128  # and above: the command was killed by a signal


def record_exit_status(path: Path) -> Spawn:
    """Return a function that starts commands from a child process that records their exit status."""

    def spawn_recorded(
        command: Sequence[str], environment: Mapping[str, str], mask: set[int | signal.Signals]
    ) -> int:
        read_end, write_end = os.pipe()
        recorder = os.fork()
        if recorder == 0:
            os.close(read_end)
            _run(path, write_end, lambda: spawn_command(command, environment, mask))
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            answer = pipe.read()
        error = _SPAWNED.unpack(answer)[0] if len(answer) == _SPAWNED.size else 0
        if error:
            os.waitpid(recorder, 0)
            raise OSError(error, os.strerror(error), command[0])
        return recorder

    return spawn_recorded


def _run(path: Path, pipe: int, spawn: Callable[[], int]) -> NoReturn:
    """Spawn the command, forward signals to it, record its exit status, and exit with it."""
    status = 1
    try:
        try:
            child = spawn()
        except OSError as error:
            os.write(pipe, _SPAWNED.pack(error.errno or 1))
            os._exit(status)
        os.write(pipe, _SPAWNED.pack(0))
        os.close(pipe)
        status = _wait(child)
        _write(path, status)
    finally:
        os._exit(status)


def _wait(child: int) -> int:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())  # those that the launcher forwards
    while True:
        pid, result = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(result)
            return code if code >= 0 else _KILLED - code
        arrived = signal.sigwaitinfo(blocked)
        if arrived.si_signo != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, arrived.si_signo)


def _write(path: Path, status: int) -> None:
    """Write the status in one step; on a full disk, the supervisor still has it."""
    temporary = path.with_name(f".{path.name}")
    with contextlib.suppress(OSError):
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, f"{status}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(path)


def read_exit_status(path: Path) -> int | None:
    """Return the recorded exit status of a command; None if it has not finished.

    A command that was killed together with its supervisor has not finished either.
    """
    with contextlib.suppress(OSError, ValueError):
        status = int(path.read_bytes())
        return status if 0 <= status < _KILLED else None
    return None
