"""A lease for the calling shell: a small background process holds it, and ends when the shell does."""

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
from gpuyard.share.client import Client, open_client
from gpuyard.share.clock import Clock
from gpuyard.share.launcher import (
    describe_new_end,
    describe_reserved_end,
    leased_environment,
    refresh_end,
    stop_lease_processes,
    wait_for_lease,
)
from gpuyard.share.models import Lease, LeaseRequest, QueueStatus

_CHECK_SECONDS = 60.0


def export_lease(
    request: LeaseRequest, wait_seconds: float | None, report: Callable[[QueueStatus], None]
) -> dict[str, str] | int:
    """Return the variables to set in the shell, or the exit status if the holder failed and reported the reason."""
    shell = os.getppid()
    readable, writable = os.pipe()
    holder = os.fork()
    if holder == 0:
        os.close(readable)
        status = 1
        try:
            status = _hold(request, wait_seconds, report, shell, writable)
        except GpuyardError as error:
            sys.stderr.write(f"gpuyard: {error}\n")
            status = error.exit_status
        except OSError as error:
            sys.stderr.write(f"gpuyard: the lease cannot be held: {error}\n")
        except KeyboardInterrupt:
            sys.stderr.write("gpuyard: stopped waiting and left the queue\n")
            status = 130
        finally:
            with contextlib.suppress(OSError):
                sys.stderr.flush()
                os.write(writable, json.dumps(status).encode())
            os._exit(status)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        answer = json.loads(_read_all(pipe, holder) or b"1")
    if not isinstance(answer, dict):
        return int(answer)
    return {str(name): str(value) for name, value in answer.items()}


def _read_all(pipe: BinaryIO, holder: int) -> bytes:
    """Read to the end; pass Ctrl-C on to the holder, which leaves the queue and reports it."""
    while True:
        try:
            return pipe.read()
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder, signal.SIGINT)


def format_exports(variables: dict[str, str]) -> str:
    """Return a script for `eval` that sets variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _hold(
    request: LeaseRequest,
    wait_seconds: float | None,
    report: Callable[[QueueStatus], None],
    shell: int,
    writable: int,
) -> int:
    shell_handle = os.pidfd_open(shell)
    client = open_client()
    lease, lock = wait_for_lease(client, request, wait_seconds, report)
    if client.config.isolation:
        client.enclose(lease.id, shell)
    if reserved := describe_reserved_end(lease):
        sys.stderr.write(f"gpuyard: {reserved}\n")
    os.setsid()  # Ctrl-C in the shell must not reach the holder
    # the reader of a pipe waits for its end, so only a terminal stays open for later messages
    terminal = os.dup(2) if os.isatty(2) else None
    os.write(writable, json.dumps(leased_environment(lease, client.config)).encode())
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(writable)  # the `gpuyard lease --export` command can exit now
    _wait(client, lease, lock, shell_handle, terminal)
    os.close(lock)
    with contextlib.suppress(GpuyardError):
        client.finish(lease.id, childless=False)
    os._exit(0)


def _wait(client: Client, lease: Lease, lock: int, shell: int, terminal: int | None) -> None:
    """Wait until the shell or the lease ends; stop the processes of a lease that ends first."""
    clock = Clock()
    poll = select.poll()
    poll.register(shell, select.POLLIN)
    while True:
        remaining = _CHECK_SECONDS
        before, lease = lease, refresh_end(lease, lock)
        if lease.until_boot != before.until_boot:
            _print(terminal, describe_new_end(lease))
        if lease.until_boot is not None:
            remaining = min(remaining, lease.until_boot - clock.boot())
        if remaining <= 0:
            _print(terminal, f"the time of lease {lease.id} is over; gpuyard stops its processes")
            stop_lease_processes(lease.id, lock, client.config.grace_seconds)
            return
        if poll.poll(remaining * 1000):
            return


def _print(terminal: int | None, sentence: str) -> None:
    if terminal is not None:
        with contextlib.suppress(OSError):  # the terminal may be closed
            os.write(terminal, f"\r\ngpuyard: {sentence}\r\n".encode())
