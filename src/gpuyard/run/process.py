"""A process in a place: first a value that says what would start, then the one function that starts it."""

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
    """What would start on a node: `argv` is run on this machine, and passes on what belongs elsewhere."""

    node: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it gets beside this process's own environment."""
    stop_signal: signal.Signals = signal.SIGKILL
    """What ends it at once, and with it what it has started on the node."""

    def describe(self) -> dict[str, Any]:
        """For `--dry-run` and programs."""
        return {
            "node": self.node,
            "argv": list(self.argv),
            "environment": dict(self.environment),
        }


def start(command: Command, stderr: IO[bytes] | int | None = None) -> subprocess.Popen[bytes]:
    """Start it with pipes for stdin and stdout. It leads a session: Ctrl-C is for who started it."""
    return subprocess.Popen(
        command.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        env={**os.environ, **command.environment},
    )


def start_apart(command: Command, *, output: int, kept: Sequence[int] = ()) -> int:
    """Start it in a session of its own, so that it outlives whoever starts it; its pid.

    It reads nothing and prints to `output`. Of what else is open here it gets `kept`, under the same numbers.
    """
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    # whoever started us may have left files and locks open, and it would hold them as long as it runs
    inherited = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]  # noqa: PTH208
    return os.posix_spawn(
        command.argv[0],
        command.argv,
        {**os.environ, **command.environment},
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
            *((os.POSIX_SPAWN_CLOSE, one) for one in inherited if one not in kept),
        ),
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM),
    )


def stop(started: Sequence[tuple[Command, subprocess.Popen[bytes]]]) -> None:
    """End all that still run, all at once, and wait until they have."""
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
                process.stdin.close()  # the ranks of an agent leave when it ends


def _send(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, what)  # its session leads its group
