"""Find the processes of a lease in /proc, and stop them without ever hitting another user's process.

A process belongs to a lease if it runs for the same user and either holds the lock of the lease or was started with the
lease ID in its environment. So programs that close inherited files are found, too. Programs that run with other rights
(like `su`) are matched by their real UID, whose owner may stop them.
"""

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuyard.errors import GpuyardError

LEASE_VARIABLE = "GPUYARD_LEASE"
_KILL_ROUNDS, _KILL_ROUNDS_AGAIN = 40, 4
_REAL_UID = re.compile(rb"^Uid:\s*(\d+)", re.MULTILINE)
_PENDING_SIGNALS = re.compile(rb"^S[ih][gd]Pnd:\s*([0-9a-f]+)$", re.MULTILINE)


@dataclass(frozen=True)
class ProcessMatcher:
    """The marks by which the processes of a lease are recognized."""

    id: str
    uid: int
    lock: tuple[int, int] | None = None
    """Device and inode. The lock must stay open (see `pin_lock`) as long as the matcher is used."""
    launcher: tuple[int, int] | None = None
    """PID and start time of the launcher, which may be older than the lease."""
    find_in_group: Callable[[], Sequence[int]] = field(default=tuple, compare=False)
    """Returns the processes in the control group of the lease, which has them whatever they close or clear."""


def start_time(pid: int) -> int:
    """Return the clock ticks from boot to the start of a process, or 0 if it has ended.

    Together with the PID, they identify a process for good.
    """
    fields = _read_stat(pid)
    return int(fields[19]) if fields else 0


def elapsed_seconds(pid: int, now_boot: float) -> float | None:
    """Return the time since the start of a process, or None if it has ended."""
    ticks = start_time(pid)
    return max(0.0, now_boot - ticks / os.sysconf("SC_CLK_TCK")) if ticks else None


def program(pid: int) -> str:
    """Return the name of a process's program, or "?" if it has ended."""
    return _read(pid, "comm").decode(errors="replace").strip() or "?"


def owner(pid: int) -> int | None:
    """Return the UID that a process runs with, or None if it has ended."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None


def is_stopped(pid: int) -> bool:
    """Return whether SIGSTOP or Ctrl-Z has suspended a process."""
    fields = _read_stat(pid)
    return bool(fields) and fields[0] in ("T", "t")


def is_dying(pid: int) -> bool:
    """Return whether a process was killed but has not left the kernel yet. Another signal would not speed that up."""
    pending = _PENDING_SIGNALS.findall(_read(pid, "status"))
    return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in pending)


def terminal(pid: int) -> int:
    """Return the device number of the terminal of a process, or 0 if it has none."""
    fields = _read_stat(pid)
    return int(fields[4]) if fields else 0


def _read_stat(pid: int) -> list[str]:
    return _read(pid, "stat").rpartition(b")")[2].decode().split()  # a name may contain parentheses


def _read(pid: int, name: str) -> bytes:
    """Read a file of /proc without pathlib and buffers, because a search reads thousands of them."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _raise_if_exhausted(error)
        return b""
    try:
        chunks = []
        while chunk := os.read(descriptor, 65_536):
            chunks.append(chunk)
        return b"".join(chunks)
    except OSError as error:
        _raise_if_exhausted(error)
        return b""
    finally:
        os.close(descriptor)


def _raise_if_exhausted(error: OSError) -> None:
    """Raise if this process ran out of resources: a process that could not be examined may still be running."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise GpuyardError(
            f"cannot lease GPUs now: /proc cannot be read ({error.strerror}); try again"
        ) from error


def find_processes(matcher: ProcessMatcher) -> list[int]:
    """Return the PIDs of all running processes of a lease, except this one."""
    return find_by_matcher([matcher]).get(matcher, [])


def find_by_matcher(matchers: Sequence[ProcessMatcher]) -> dict[ProcessMatcher, list[int]]:
    """Search /proc once for the processes of several leases; leases without processes are left out."""
    pids: dict[ProcessMatcher, list[int]] = {}
    by_uid: dict[int, list[ProcessMatcher]] = {}
    for matcher in matchers:
        by_uid.setdefault(matcher.uid, []).append(matcher)
    for pid, uids in _pids_of(by_uid.keys()):
        for uid in uids & by_uid.keys():
            for matcher in _find_matches(pid, by_uid[uid]):
                pids.setdefault(matcher, []).append(pid)
    for matcher in matchers:
        marked = {os.getpid(), *pids.get(matcher, ())}
        if hidden := [pid for pid in matcher.find_in_group() if pid not in marked]:
            pids.setdefault(matcher, []).extend(hidden)
    return pids


def _pids_of(uids: Collection[int]) -> Iterator[tuple[int, set[int]]]:
    """Yield each process of these users with its effective and real UIDs."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - pathlib is several times slower
    except OSError as error:
        _raise_if_exhausted(error)
        raise
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError):
                process_uids = {os.stat(f"/proc/{name}").st_uid}  # noqa: PTH116
                if process_uids != uids and (real := _REAL_UID.search(_read(int(name), "status"))):
                    process_uids.add(int(real[1]))
                if not process_uids.isdisjoint(uids):
                    yield int(name), process_uids


def _find_matches(pid: int, matchers: Sequence[ProcessMatcher]) -> list[ProcessMatcher]:
    """Return which of these leases a process belongs to; read each of its files once."""
    if pid == os.getpid():
        return []
    fields = _read_stat(pid)
    if not fields or fields[0] in ("Z", "X"):  # dead, but its parent has not waited for it yet
        return []
    identity = pid, int(fields[19])
    variables = {*_read(pid, "environ").split(b"\0")}
    with_lock = any(matcher.lock for matcher in matchers)
    opened = _open_files(pid) if with_lock else {}
    mapped = (
        _read(pid, "maps") if with_lock else b""
    )  # a mapping holds the lock without a descriptor
    return [
        matcher
        for matcher in matchers
        if matcher.launcher == identity
        or f"{LEASE_VARIABLE}={matcher.id}".encode() in variables
        or f"/{matcher.id}.lock".encode() in mapped
        or any(_holds_lock(pid, descriptor) for descriptor in opened.get(matcher.lock, ()))
    ]


def _open_files(pid: int) -> dict[tuple[int, int] | None, list[str]]:
    """Return the descriptors of a process by the file that they have open."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except OSError as error:
        _raise_if_exhausted(error)
        return {}
    opened: dict[tuple[int, int] | None, list[str]] = {}
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            file = identify_file(f"/proc/{pid}/fd/{descriptor}")
            opened.setdefault(file, []).append(descriptor)
    return opened


def identify_file(file: int | str | Path) -> tuple[int, int]:
    """Return the device and inode of a file or descriptor."""
    status = os.stat(file)  # noqa: PTH116
    return status.st_dev, status.st_ino


def _holds_lock(pid: int, descriptor: str) -> bool:
    """Return whether a process holds the lock; a process that only tests the lock has the file open as well."""
    lines = _read(pid, f"fdinfo/{descriptor}").splitlines()
    return any(
        line.startswith(b"lock:") and {b"FLOCK", b"WRITE"} <= {*line.split()} for line in lines
    )


@contextlib.contextmanager
def pin_lock(lock: str | Path) -> Iterator[tuple[int, int] | None]:
    """Yield the device and inode of a lock, by which its holders are recognized, or None if it was removed.

    The kernel may reuse the inode of a removed file for another user's lock, but not while this block keeps it open.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        _raise_if_exhausted(error)
        yield None
        return
    try:
        yield identify_file(descriptor)
    finally:
        os.close(descriptor)


def close_inherited(file: str) -> None:
    """Close every descriptor through which this process has a file open."""
    with contextlib.suppress(OSError):
        for descriptor in _open_files(os.getpid()).get(identify_file(file), ()):
            os.close(int(descriptor))


def wake_stopped(file: Path) -> None:
    """Continue this user's suspended processes that have a file open."""
    try:
        identity = identify_file(file)
    except OSError:
        return
    for pid, _ in _pids_of({os.geteuid()}):
        if is_stopped(pid) and identity in _open_files(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)


def stop_processes(matchers: Sequence[ProcessMatcher], grace_seconds: float) -> set[str]:
    """Terminate the processes of all these leases, and kill those that remain after one grace period.

    Return the IDs of leases with remaining processes: they are stuck in the kernel or belong to another user.
    """
    deadline = time.monotonic() + grace_seconds
    remaining = find_by_matcher(matchers)
    # an earlier call has already waited for these and killed them
    dying = {matcher for matcher, pids in remaining.items() if all(map(is_dying, pids))}
    signaled: set[int] = set()
    rounds = _KILL_ROUNDS_AGAIN
    while remaining.keys() - dying:
        for matcher in remaining.keys() - dying:
            new = [pid for pid in remaining[matcher] if pid not in signaled]
            for number in (signal.SIGTERM, signal.SIGCONT):
                _send_signal(new, number, matcher)
            signaled.update(new)
        if time.monotonic() >= deadline:
            rounds = _KILL_ROUNDS
            break
        time.sleep(0.05)
        remaining = find_by_matcher(matchers)
    for _ in range(rounds):  # search again for children that were forked in the meantime
        remaining = find_by_matcher(matchers)
        if not remaining:
            break
        for matcher, pids in remaining.items():
            _send_signal(pids, signal.SIGKILL, matcher)
        time.sleep(0.05)
    return {matcher.id for matcher in remaining}


def _send_signal(pids: Sequence[int], number: signal.Signals, matcher: ProcessMatcher) -> None:
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # check again now that the handle is open: from here on the PID cannot become another process's
            if _find_matches(pid, [matcher]) or pid in matcher.find_in_group():
                signal.pidfd_send_signal(handle, number)
        except OSError:
            continue
        finally:
            os.close(handle)
