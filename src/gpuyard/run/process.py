"""A process at a place: a value that describes it, and the functions that start and stop it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

_LEAVE_SECONDS = 5.0


@dataclass(frozen=True)
class Command:
    """A process on a node: `argv` runs on this machine and starts the process on the node."""

    node: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to this process's own environment."""
    stop_signal: signal.Signals = signal.SIGKILL
    """The signal that stops it at once, together with the processes that it started on the node."""

    def describe(self) -> dict[str, Any]:
        """Describe the command for `--dry-run` and programs."""
        return {
            "node": self.node,
            "argv": list(self.argv),
            "environment": dict(self.environment),
        }


def start(command: Command, stderr: IO[bytes] | int | None = None) -> subprocess.Popen[bytes]:
    """Start a command with pipes for stdin and stdout, in a new session: Ctrl-C reaches only its parent."""
    return subprocess.Popen(
        command.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        env={**os.environ, **command.environment},
    )


def start_detached(command: Command, *, output: int, kept: Sequence[int] = ()) -> int:
    """Start a command in a new session, so that it outlives its parent, and return its PID.

    It has no stdin and writes to `output`. It inherits only the descriptors in `kept`.
    """
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    # Our parent may have left files and locks open, which the process would hold as long as it runs.
    inherited = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]  # noqa: PTH208
    return os.posix_spawn(
        command.argv[0],
        command.argv,
        {**os.environ, **command.environment},
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
            *((os.POSIX_SPAWN_CLOSE, number) for number in inherited if number not in kept),
        ),
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM),
    )


def stop(started: Sequence[tuple[Command, subprocess.Popen[bytes]]]) -> None:
    """Stop all processes at once, and wait until they have exited."""
    for command, process in started:
        _send(process, command.stop_signal)
    for _, process in started:
        try:
            process.wait(timeout=_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            _send(process, signal.SIGKILL)
            process.wait(timeout=_LEAVE_SECONDS)
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # The ranks of an agent exit when it closes.


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)  # The process leads its group.
