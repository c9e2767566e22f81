"""A lease that lives with the shell that asks: a small process holds it, and ends when the shell does."""

import contextlib
import json
import os
import select
import shlex
import sys
from collections.abc import Callable

from gpuyard.errors import GpuyardError
from gpuyard.share.launcher import cut_again, leased_environment, reserved_sentence
from gpuyard.share.service.desk import Desk, open_desk
from gpuyard.share.store.broker import Turn
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.lease import Lease, Request
from gpuyard.share.turns.waiting import wait_for_lease
from gpuyard.share.watch import processes

_LOOK_SECONDS = 60.0


def export_lease(
    request: Request, wait_seconds: float | None, tell: Callable[[Turn], None]
) -> dict[str, str]:
    """The variables to set in the shell; where there are none, the holder has said why, and this exits."""
    shell = os.getppid()
    readable, writable = os.pipe()
    if os.fork() == 0:
        os.close(readable)
        status = 1
        try:
            status = _hold(request, wait_seconds, tell, shell, writable)
        except GpuyardError as error:
            sys.stderr.write(f"gpuyard: {error}\n")
            status = error.exit_status
        except KeyboardInterrupt:
            status = 130
        finally:
            with contextlib.suppress(OSError):
                sys.stderr.flush()
                os.write(writable, json.dumps(status).encode())
            os._exit(status)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        answer = json.loads(pipe.read() or b"1")
    if not isinstance(answer, dict):
        raise SystemExit(answer)
    return {str(name): str(value) for name, value in answer.items()}


def script(variables: dict[str, str]) -> str:
    """For `eval`."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _hold(
    request: Request,
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
    os.write(writable, json.dumps(leased_environment(lease, desk.config)).encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(writable)  # the command that was asked can end now
    _wait(desk, lease, lock, handle)
    os.close(lock)
    with contextlib.suppress(GpuyardError):
        desk.finish(lease.id, childless=False)
    os._exit(0)


def _wait(desk: Desk, lease: Lease, lock: int, shell: int) -> None:
    """Until the shell has ended or the time is over; what the shell started on the lease ends with the time."""
    clock = Clock()
    watched = select.poll()
    watched.register(shell, select.POLLIN)
    while True:
        left = _LOOK_SECONDS
        lease = cut_again(lease, lock)
        if lease.until_boot is not None:
            left = min(left, lease.until_boot - clock.boot())
        if left <= 0:
            status = os.fstat(lock)
            identity = (status.st_dev, status.st_ino)
            processes.stop(lease.id, os.getuid(), identity, None, desk.config.grace_seconds)
            return
        if watched.poll(left * 1000):
            return
