"""A lease that lives with the shell that asks: a small process holds it, and ends when the shell does."""

import contextlib
import json
import os
import select
import shlex
import signal
import sys
from collections.abc import Callable
from typing import BinaryIO

from gpuyard.errors import GpuyardError
from gpuyard.share.launcher import cut_again, leased_environment, reserved_sentence
from gpuyard.share.service.desk import Desk, open_desk
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.lease import Lease, LeaseRequest
from gpuyard.share.turns.queue import Turn
from gpuyard.share.turns.waiting import wait_for_lease
from gpuyard.share.watch import processes

_LOOK_SECONDS = 60.0


def export_lease(
    request: LeaseRequest, wait_seconds: float | None, tell: Callable[[Turn], None]
) -> dict[str, str] | int:
    """The variables to set in the shell; where there are none, the holder has said why, and this is the exit status."""
    shell = os.getppid()
    readable, writable = os.pipe()
    holder = os.fork()
    if holder == 0:
        os.close(readable)
        status = 1
        try:
            status = _hold(request, wait_seconds, tell, shell, writable)
        except GpuyardError as error:
            sys.stderr.write(f"gpuyard: {error}\n")
            status = error.exit_status
        except KeyboardInterrupt:
            sys.stderr.write("gpuyard: stopped waiting; the place in the queue is given up\n")
            status = 130
        finally:
            with contextlib.suppress(OSError):
                sys.stderr.flush()
                os.write(writable, json.dumps(status).encode())
            os._exit(status)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        answer = json.loads(_read(pipe, holder) or b"1")
    if not isinstance(answer, dict):
        return int(answer)
    return {str(name): str(value) for name, value in answer.items()}


def _read(pipe: BinaryIO, holder: int) -> bytes:
    """To its end; Ctrl-C is for the holder, which gives up its place and says so."""
    while True:
        try:
            return pipe.read()
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder, signal.SIGINT)


def script(variables: dict[str, str]) -> str:
    """For `eval`."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def refused_script(status: int) -> tuple[bool, str]:
    """For `eval` where there is no lease, and whether it hides all GPUs: what the shell holds already stays."""
    hides = not os.environ.get(processes.VARIABLE)
    # no device has this number; HIP reads the same variable
    hide = "export CUDA_VISIBLE_DEVICES=-1\n" if hides else ""
    return hides, f"{hide}(exit {status})\n"


def _hold(
    request: LeaseRequest,
    wait_seconds: float | None,
    tell: Callable[[Turn], None],
    shell: int,
    writable: int,
) -> int:
    handle = os.pidfd_open(shell)
    desk = open_desk()
    lease, lock = wait_for_lease(desk, request, wait_seconds, tell)
    if desk.config.isolation:
        desk.enclose(lease.id, shell)
    if reserved := reserved_sentence(lease):
        sys.stderr.write(f"gpuyard: {reserved}\n")
    os.setsid()  # Ctrl-C in the shell is not meant for the lease
    # whoever reads a pipe waits for its end; a terminal is only written to if there is something to say
    terminal = os.dup(2) if os.isatty(2) else None
    os.write(writable, json.dumps(leased_environment(lease, desk.config)).encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(writable)  # the command that was asked can end now
    _wait(desk, lease, lock, handle, terminal)
    os.close(lock)
    with contextlib.suppress(GpuyardError):
        desk.finish(lease.id, childless=False)
    os._exit(0)


def _wait(desk: Desk, lease: Lease, lock: int, shell: int, terminal: int | None) -> None:
    """Until the shell has ended or the time is over; what the shell started on the lease ends with the time."""
    clock = Clock()
    watched = select.poll()
    watched.register(shell, select.POLLIN)
    while True:
        left = _LOOK_SECONDS
        before, lease = lease, cut_again(lease, lock)
        if lease.until_boot != before.until_boot:
            _tell(terminal, reserved_sentence(lease) or f"lease {lease.id} has no end any more")
        if lease.until_boot is not None:
            left = min(left, lease.until_boot - clock.boot())
        if left <= 0:
            _tell(terminal, f"the time of lease {lease.id} is over; what runs on it is ended")
            status = os.fstat(lock)
            marks = processes.Marks(lease.id, os.getuid(), (status.st_dev, status.st_ino))
            processes.stop([marks], desk.config.grace_seconds)
            return
        if watched.poll(left * 1000):
            return


def _tell(terminal: int | None, sentence: str) -> None:
    if terminal is not None:
        with contextlib.suppress(OSError):  # it may be closed by now
            os.write(terminal, f"\r\ngpuyard: {sentence}\r\n".encode())
