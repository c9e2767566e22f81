"""Wait for a lease and run a command on it. The command and all its children hold the lock of the lease, which ends
when they do."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gpuyard.errors import GpuyardError, NoResponse
from gpuyard.share.client import Client
from gpuyard.share.clock import Clock
from gpuyard.share.config import ShareConfig
from gpuyard.share.locks import Locks
from gpuyard.share.models import Lease, LeaseRequest, NoneFree, QueueStatus
from gpuyard.share.processes import (
    LEASE_VARIABLE,
    ProcessMatcher,
    identify_file,
    stop_processes,
)

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)
_SI_KERNEL = 0x80  # a terminal signals its whole foreground group, so the child already has it
_PR_SET_CHILD_SUBREAPER = 36
_CHECK_SECONDS = 60.0  # sigtimedwait's clock stands still while the machine sleeps
_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.02, 0.1, 1.0


Spawn = Callable[[Sequence[str], Mapping[str, str], set[int | signal.Signals]], int]
"""A function that starts a command with an environment and a signal mask, and returns the pid of its child."""


def wait_for_lease(
    client: Client,
    request: LeaseRequest,
    wait_seconds: float | None,
    report: Callable[[QueueStatus], None],
) -> tuple[Lease, int]:
    """Return the lease and its lock. Raise NoneFree after `wait_seconds`, and leave no place in the queue behind."""
    if wait_seconds is not None:
        client.patience_seconds = min(client.patience_seconds, wait_seconds)
    status, lock = client.ask(request)
    if status.lease.held:
        if status.reason:
            report(status)
        return status.lease, lock
    deadline = None if wait_seconds is None else time.monotonic() + wait_seconds
    reported: tuple[int, bool] | None = None
    pause = _FIRST_PAUSE_SECONDS
    no_answer = ""
    try:
        while not status.lease.held:
            if reported != (status.position, bool(no_answer)):
                reported = status.position, bool(no_answer)
                if no_answer:
                    report(replace(status, expected_seconds=None, reason=no_answer))
                else:
                    report(status)
            if deadline is not None:
                if time.monotonic() >= deadline:
                    reason = status.reason or "`gpuyard who` shows who holds them"
                    raise NoneFree(f"no {request.count} GPUs became free in that time; {reason}")
                pause = min(pause, max(0.01, deadline - time.monotonic()))
            time.sleep(pause)
            # the next in line asks often, those behind less often
            pause = min(_PAUSE_SECONDS * max(1, status.position), _MAX_PAUSE_SECONDS)
            try:
                status, no_answer = client.claim(status.lease.id), ""
            except NoResponse as error:  # the store keeps the place as long as the lock is held
                no_answer, pause = str(error), _MAX_PAUSE_SECONDS
    except BaseException:
        with contextlib.suppress(GpuyardError, OSError):
            client.leave(status.lease.id)
        os.close(lock)
        raise
    if status.reason:
        report(status)
    return status.lease, lock


def visible_devices(lease: Lease, config: ShareConfig) -> dict[str, str]:
    """Return the variables that limit CUDA or ROCm to these GPUs, numbered as in nvidia-smi and rocm-smi."""
    indices = ",".join(map(str, lease.gpus))
    if config.gpu(lease.gpus[0]).vendor == "amd":
        # ROCR selects first, and HIP numbers the selected GPUs from 0
        relative = ",".join(map(str, range(len(lease.gpus))))
        return {
            "ROCR_VISIBLE_DEVICES": indices,
            "HIP_VISIBLE_DEVICES": relative,
            "CUDA_VISIBLE_DEVICES": relative,
        }
    return {"CUDA_VISIBLE_DEVICES": indices, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def leased_environment(lease: Lease, config: ShareConfig) -> dict[str, str]:
    """Return the variables that are added to the environment of a leased command."""
    return {**visible_devices(lease, config), LEASE_VARIABLE: lease.id}


def run_leased(
    client: Client,
    lease: Lease,
    lock: int,
    command: Sequence[str],
    on_exit: Callable[[int], None] = lambda _: None,
    *,
    spawn: Spawn | None = None,
) -> int:
    """Run a command, give its GPUs back, and return its exit status as a shell reports it.

    `on_exit` gets the status at once, before anything else can fail. `spawn` starts the command instead of
    `spawn_command`.
    """
    blocked = {*_FORWARDED, signal.SIGCHLD}
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        os.set_inheritable(lock, True)
        environment = {**os.environ, **leased_environment(lease, client.config)}
        adopts = _adopt_orphans()  # before the start: the command may leave an orphan at once
        try:
            child = (spawn or spawn_command)(command, environment, mask_before)
        except OSError as error:
            _give_back(client, lease, lock, childless=True)
            _print(f"{command[0]} cannot be run: {error.strerror}")
            status = 127 if isinstance(error, FileNotFoundError) else 126
            on_exit(status)
            return status
        status = _wait(child, lease, lock, blocked, client.config.grace_seconds)
        on_exit(status)
        _give_back(client, lease, lock, childless=adopts and _is_childless())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)
    return status


def spawn_command(
    command: Sequence[str], environment: Mapping[str, str], signals: set[int | signal.Signals]
) -> int:
    """Start a command with this signal mask, and return its pid."""
    return os.posix_spawnp(
        command[0],
        list(command),
        environment,
        setsigmask=signals,
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
    )


def _adopt_orphans() -> bool:
    """Make this process the parent of processes that the command leaves behind, so that it can detect them."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def refresh_end(lease: Lease, lock: int) -> Lease:
    """Return the lease with its current end, which a later reservation may have set."""
    if lease.seconds is None:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            until = json.loads(Locks.read_note(lock))["until_boot"]
            return replace(lease, until_boot=None if until is None else float(until))
    return lease


def describe_reserved_end(lease: Lease) -> str | None:
    """Describe when a reservation ends a lease that has no time limit."""
    if lease.seconds is not None or lease.until_boot is None:
        return None
    from gpuyard.share.timeparse import format_time

    gpus = ", ".join(map(str, lease.gpus))
    when = format_time(Clock().wall_at(lease.until_boot))
    return f"lease {lease.id} ends at {when}, because GPU {gpus} is reserved from then on"


def describe_new_end(lease: Lease) -> str:
    """Describe the end of a lease after a reservation changed it."""
    return describe_reserved_end(lease) or f"lease {lease.id} no longer has a fixed end"


def _wait(
    child: int, lease: Lease, lock: int, blocked: set[signal.Signals], grace_seconds: float
) -> int:
    """Forward signals, stop the command at the end of the lease, and return its exit status."""
    clock = Clock()
    stopped = False
    while True:
        remaining = _CHECK_SECONDS
        before, lease = lease, refresh_end(lease, lock)
        if lease.until_boot != before.until_boot:
            _print(describe_new_end(lease))
        if lease.until_boot is not None and not stopped:
            remaining = min(remaining, lease.until_boot - clock.boot())
            if remaining <= 0:
                stopped = True
                _print(f"the time of lease {lease.id} is over; gpuyard stops its command")
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGTERM)
                    os.kill(child, signal.SIGCONT)
                stop_lease_processes(lease.id, lock, grace_seconds)
        arrived = signal.sigtimedwait(blocked, max(0.0, remaining))
        if arrived is not None and arrived.si_signo != signal.SIGCHLD:
            # a closed terminal signals only the first process of its session, so SIGHUP is always forwarded
            if arrived.si_code != _SI_KERNEL or arrived.si_signo == signal.SIGHUP:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, arrived.si_signo)
            continue
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if pid == 0:
                break


def stop_lease_processes(lease_id: str, lock: int, grace_seconds: float) -> None:
    """Stop all processes of a lease of this user, except this one."""
    matcher = ProcessMatcher(lease_id, os.getuid(), identify_file(lock))
    stop_processes([matcher], grace_seconds)


def _is_childless() -> bool:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return False
    return True


def _give_back(client: Client, lease: Lease, lock: int, *, childless: bool) -> None:
    """End the lease. If that fails, the next operation of any client finds its lock free."""
    if not childless:
        os.close(lock)
    with contextlib.suppress(GpuyardError, OSError):
        client.finish(lease.id, childless=childless)
    if childless:
        os.close(lock)


def _print(sentence: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"gpuyard: {sentence}\n")
        sys.stderr.flush()
