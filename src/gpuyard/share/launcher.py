"""A command on a lease: it and all that it starts hold the lease's lock, and its end is the lease's end."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gpuyard.share.service.desk import Desk
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.config import ShareConfig
from gpuyard.share.store.lease import Lease
from gpuyard.share.store.locks import Locks
from gpuyard.share.watch import processes

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)
_SI_KERNEL = (
    0x80  # a terminal's signals go to the whole foreground group, and need not be passed on
)
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 60.0  # the clock that a signal is waited for by stands still while a machine sleeps


def visible_devices(lease: Lease, config: ShareConfig) -> dict[str, str]:
    """What makes CUDA or ROCm see these GPUs and no others, numbered as nvidia-smi and rocm-smi do."""
    indices = ",".join(map(str, lease.gpus))
    if config.gpu(lease.gpus[0]).vendor == "amd":
        # ROCR's choice is made first, and HIP counts what is left from 0 on
        relative = ",".join(map(str, range(len(lease.gpus))))
        return {
            "ROCR_VISIBLE_DEVICES": indices,
            "HIP_VISIBLE_DEVICES": relative,
            "CUDA_VISIBLE_DEVICES": relative,
        }
    return {"CUDA_VISIBLE_DEVICES": indices, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def leased_environment(lease: Lease, config: ShareConfig) -> dict[str, str]:
    """What a leased command sees more than others."""
    return {**visible_devices(lease, config), processes.VARIABLE: lease.id}


def run_leased(
    desk: Desk,
    lease: Lease,
    lock: int,
    command: Sequence[str],
    ended: Callable[[int], None] = lambda _: None,
) -> int:
    """Run it to its end and give the GPUs back; the command's exit status, as a shell says it.

    `ended` is told the status at once, before anything else can go wrong.
    """
    blocked = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        os.set_inheritable(lock, True)
        environment = {**os.environ, **leased_environment(lease, desk.config)}
        adopts = (
            _adopt_orphans()
        )  # before it starts: what it leaves may be an orphan a moment later
        try:
            child = _spawn(command, environment, before)
        except OSError as error:
            _give_back(desk, lease, lock, childless=True)
            _say(f"{command[0]} can't be run: {error.strerror}")
            status = 127 if isinstance(error, FileNotFoundError) else 126
            ended(status)
            return status
        status = _wait(child, lease, lock, blocked, desk.config.grace_seconds)
        ended(status)
        _give_back(desk, lease, lock, childless=adopts and _is_childless())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return status


def _spawn(
    command: Sequence[str], environment: Mapping[str, str], signals: set[int | signal.Signals]
) -> int:
    return os.posix_spawnp(
        command[0],
        list(command),
        environment,
        setsigmask=signals,
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
    )


def _adopt_orphans() -> bool:
    """What the command leaves behind becomes this process's child, so that it is known whether anything is."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def cut_again(lease: Lease, lock: int) -> Lease:
    """The lease with the end that it has now: a reservation that was made later may have set one."""
    if lease.seconds is None:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            until = json.loads(Locks.noted(lock))["until_boot"]
            return replace(lease, until_boot=None if until is None else float(until))
    return lease


def reserved_sentence(lease: Lease) -> str | None:
    """Of a lease without an end of its own: when it has to end, and why."""
    if lease.seconds is not None or lease.until_boot is None:
        return None
    from gpuyard.share.turns.when import shown

    gpus = ", ".join(map(str, lease.gpus))
    when = shown(Clock().wall_at(lease.until_boot))
    return f"lease {lease.id} ends at {when}: GPU {gpus} is reserved from then on"


def _wait(
    child: int, lease: Lease, lock: int, blocked: "set[signal.Signals]", grace_seconds: float
) -> int:
    clock = Clock()
    over = False
    while True:
        left = _LOOK_SECONDS
        before, lease = lease, cut_again(lease, lock)
        if lease.until_boot != before.until_boot:
            _say(reserved_sentence(lease) or f"lease {lease.id} has no end any more")
        if lease.until_boot is not None and not over:
            left = min(left, lease.until_boot - clock.boot())
            if left <= 0:
                over = True
                _say(f"the time of lease {lease.id} is over; its command is ended")
                _stop_all(child, lease, lock, grace_seconds)
        arrived = signal.sigtimedwait(blocked, max(0.0, left))
        if arrived is not None and arrived.si_signo != signal.SIGCHLD:
            # but when a terminal is closed only the first process of its session is told
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


def _stop_all(child: int, lease: Lease, lock: int, grace_seconds: float) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(child, signal.SIGTERM)
        os.kill(child, signal.SIGCONT)
    status = os.fstat(lock)
    marks = processes.Marks(lease.id, os.getuid(), (status.st_dev, status.st_ino))
    processes.stop([marks], grace_seconds)


def _is_childless() -> bool:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return False
    return True


def _give_back(desk: Desk, lease: Lease, lock: int, *, childless: bool) -> None:
    """Where the lease can't be ended now, whoever asks next finds its lock free."""
    from gpuyard.errors import GpuyardError

    if not childless:
        os.close(lock)
    with contextlib.suppress(GpuyardError, OSError):
        desk.finish(lease.id, childless=childless)
    if childless:
        os.close(lock)


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"gpuyard: {sentence}\n")
        sys.stderr.flush()
