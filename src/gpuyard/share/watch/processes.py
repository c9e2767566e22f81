"""The processes of a lease, found in /proc, and stopped so that never a stranger's is hit.

A process belongs to a lease if it is of the same user and holds the lease's lock, or was started with the
lease's name in its environment: a program that closes what it inherits is found, too. So is one that runs with
another's rights (like `su`): who started it is its real uid, and may end it.
"""

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import GpuyardError

VARIABLE = "GPUYARD_LEASE"
_ROUNDS, _ROUNDS_AGAIN = 40, 4
_REAL_UID = re.compile(rb"^Uid:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Marks:
    """What the processes of a lease are recognised by."""

    id: str
    uid: int
    lock: tuple[int, int] | None = None
    """Device and inode; `pinned`, or held by this process, as long as this is used."""
    launcher: tuple[int, int] | None = None
    """Pid and start, for it may have been started before the lease."""


def start_time(pid: int) -> int:
    """Clock ticks from boot to the start of a process; with its pid that names it for ever. 0: it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def owner(pid: int) -> int | None:
    """The uid that it runs with; None: it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None


def is_stopped(pid: int) -> bool:
    """By SIGSTOP or Ctrl-Z."""
    fields = _stat(pid)
    return bool(fields) and fields[0] in ("T", "t")


def _is_dying(pid: int) -> bool:
    """It was killed, and has not yet left the kernel: nothing that is sent to it can hurry that."""
    pending = re.findall(rb"^S[ih][gd]Pnd:\s*([0-9a-f]+)$", _read(pid, "status"), re.MULTILINE)
    return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in pending)


def terminal(pid: int) -> int:
    """The device number of the terminal that it was started from; 0: none."""
    fields = _stat(pid)
    return int(fields[4]) if fields else 0


def _stat(pid: int) -> list[str]:
    return _read(pid, "stat").rpartition(b")")[2].decode().split()  # a name may have brackets


def _read(pid: int, name: str) -> bytes:
    """Without pathlib and buffers: thousands of them are read."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _raise_if_short(error)
        return b""
    try:
        parts = []
        while part := os.read(descriptor, 65_536):
            parts.append(part)
        return b"".join(parts)
    except OSError as error:
        _raise_if_short(error)
        return b""
    finally:
        os.close(descriptor)


def _raise_if_short(error: OSError) -> None:
    """Where this process could not look, nothing may be taken for gone."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise GpuyardError(
            f"no lease can be given now, because processes can't be looked at: {error.strerror}; try again"
        ) from error


def processes_of(marks: Marks) -> list[int]:
    """All living ones."""
    return _processes_of([marks]).get(marks, [])


def _processes_of(leases: Sequence[Marks]) -> dict[Marks, list[int]]:
    """In one look, of those that have any."""
    found: dict[Marks, list[int]] = {}
    for pid, uids in _pids_of({marks.uid for marks in leases}):
        for marks in leases:
            if marks.uid in uids and _belongs(pid, marks):
                found.setdefault(marks, []).append(pid)
    return found


def _pids_of(uids: Collection[int]) -> Iterator[tuple[int, set[int]]]:
    """Processes that run for one of these, and for whom."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - pathlib takes several times as long
    except OSError as error:
        _raise_if_short(error)
        raise
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError):
                found = {os.stat(f"/proc/{name}").st_uid}  # noqa: PTH116
                if found != uids and (real := _REAL_UID.search(_read(int(name), "status"))):
                    found.add(int(real[1]))
                if not found.isdisjoint(uids):
                    yield int(name), found


def _belongs(pid: int, marks: Marks) -> bool:
    if pid == os.getpid():
        return False
    fields = _stat(pid)
    if not fields or fields[0] in ("Z", "X"):  # dead, and only not yet waited for
        return False
    if marks.launcher is not None and (pid, int(fields[19])) == marks.launcher:
        return True
    variable = f"{VARIABLE}={marks.id}".encode()
    if variable in _read(pid, "environ").split(b"\0"):
        return True
    lock = marks.lock
    return lock is not None and any(_holds(pid, one) for one in _open(pid, lock))


def _open(pid: int, file: tuple[int, int]) -> list[str]:
    """The descriptors by which it has a file open."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except OSError as error:
        _raise_if_short(error)
        return []
    found = []
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            status = os.stat(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH116
            if (status.st_dev, status.st_ino) == file:
                found.append(descriptor)
    return found


def _holds(pid: int, descriptor: str) -> bool:
    """Whoever only looks whether a lock is free has it open as well, and is no holder."""
    lines = _read(pid, f"fdinfo/{descriptor}").splitlines()
    return any(
        line.startswith(b"lock:") and {b"FLOCK", b"WRITE"} <= {*line.split()} for line in lines
    )


@contextlib.contextmanager
def pinned(lock: str | Path) -> Iterator[tuple[int, int] | None]:
    """Device and inode of a lock, by which its holders are recognised. None: it is gone.

    The kernel gives the inode of a file that is removed to the next one that is made, maybe to a stranger's lock; but
    not while this lasts.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    try:
        status = os.fstat(descriptor)
        yield status.st_dev, status.st_ino
    finally:
        os.close(descriptor)


def close_inherited(file: str) -> None:
    """Every descriptor of this process by which it has a file open."""
    with contextlib.suppress(OSError):
        status = os.stat(file)  # noqa: PTH116
        for descriptor in _open(os.getpid(), (status.st_dev, status.st_ino)):
            os.close(int(descriptor))


def wake_stopped(file: Path) -> None:
    """Let this user's stopped processes go on that have a file open."""
    try:
        status = file.stat()
    except OSError:
        return
    for pid, _ in _pids_of({os.geteuid()}):
        if is_stopped(pid) and _open(pid, (status.st_dev, status.st_ino)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)


def stop(leases: Sequence[Marks], grace_seconds: float) -> set[str]:
    """Ask the processes of all these to end, wake those that are stopped, and after one grace end them.

    The leases of which some are left: they are in the kernel, or another user's.
    """
    deadline = time.monotonic() + grace_seconds
    left = _processes_of(leases)
    # somebody has done all this before
    dying = {marks for marks, pids in left.items() if all(map(_is_dying, pids))}
    asked: set[int] = set()
    rounds = _ROUNDS_AGAIN
    while left.keys() - dying:
        for marks in left.keys() - dying:
            new = [pid for pid in left[marks] if pid not in asked]
            for number in (signal.SIGTERM, signal.SIGCONT):
                _send(new, number, marks)
            asked.update(new)
        if time.monotonic() >= deadline:
            rounds = _ROUNDS
            break
        time.sleep(0.05)
        left = _processes_of(leases)
    for _ in range(rounds):  # what forks while it is killed is found again
        left = _processes_of(leases)
        if not left:
            break
        for marks, pids in left.items():
            _send(pids, signal.SIGKILL, marks)
        time.sleep(0.05)
    return {marks.id for marks in left}


def _send(pids: Sequence[int], number: signal.Signals, marks: Marks) -> None:
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # looked at again now that the handle is open: the pid can't be another process's from here on
            if _belongs(pid, marks):
                signal.pidfd_send_signal(handle, number)
        except OSError:
            continue
        finally:
            os.close(handle)
