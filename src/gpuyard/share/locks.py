"""One lock file per lease. The holder of a lease and all processes that it starts keep the file open, so the kernel
releases the lock when the last of them has ended, however they end."""

import contextlib
import fcntl
import math
import os
import re
from collections.abc import Collection
from pathlib import Path

from gpuyard.share import processes

LOCKS = "locks"
_MAX_BYTES = 65_536
_NAME = re.compile(r"([0-9a-f]{8})\.lock")


def is_held(lock: str | Path) -> bool:
    """Return whether any process holds a lock; a missing file is not held."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        # a shared lock, so that two processes that test at once do not mistake each other for the holder
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class Locks:
    """The directory of lock files, which only the owner of the store can enter."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self) -> tuple[str, int]:
        """Create a lock with a new random ID. The returned descriptor holds it and cannot write to it."""
        flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            id_ = os.urandom(4).hex()
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(self._path(id_), flags, 0o600)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return id_, descriptor

    def write_note(self, id_: str, text: str) -> None:
        """Record the lease in its lock file, so that held leases are known even if the store is lost."""
        descriptor = os.open(self._path(id_), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)
        finally:
            os.close(descriptor)

    @staticmethod
    def read_note(descriptor: int) -> str:
        """Return the current note in a lock that this process holds, or "" if it cannot be read."""
        try:
            return os.pread(descriptor, _MAX_BYTES, 0).decode(errors="replace")
        except OSError:
            return ""

    def record_asking(self, id_: str, boot: float) -> None:
        """Record that the client of a request asks for its GPUs now. The time of the file is that of the boot clock."""
        with contextlib.suppress(OSError):
            os.utime(self._path(id_), (boot, boot))

    def asked_at(self, id_: str) -> float:
        """Return when the client of a request last asked; never, if its lock was removed."""
        try:
            return os.stat(self._path(id_)).st_mtime  # noqa: PTH116 - pathlib is several times slower
        except OSError:
            return -math.inf

    def held_notes(self) -> list[str]:
        """Return the notes of all held locks."""
        return [
            path.read_text(encoding="utf-8", errors="replace")
            for path in self.directory.glob("*.lock")
            if (match := _NAME.fullmatch(path.name)) and not self.is_free(match[1])
        ]

    def is_free(self, id_: str) -> bool:
        """Return whether no process holds a lock; a removed lock is free."""
        try:
            return not is_held(self._path(id_))
        except PermissionError:
            return False  # another user's store: unknown, so assume that it is held

    def remove(self, id_: str) -> None:
        """Delete the lock of a lease that has ended."""
        with contextlib.suppress(OSError):  # the next sweep tries again
            os.unlink(self._path(id_))  # noqa: PTH108 - pathlib is several times slower

    def close_inherited(self, id_: str) -> None:
        """Close the lock in this process. Not for the service, whose other threads test locks at the same time."""
        processes.close_inherited(self._path(id_))

    def pin(self, id_: str) -> contextlib.AbstractContextManager[tuple[int, int] | None]:
        """Keep a lock open while its holders are searched for; see `processes.pin_lock`."""
        return processes.pin_lock(self._path(id_))

    def sweep(self, active_ids: Collection[str]) -> None:
        """Delete free locks without a lease. Call it in a transaction, so that no lock is being created."""
        for name in os.listdir(self.directory):  # noqa: PTH208 - five times as fast
            match = _NAME.fullmatch(name)
            if match and match[1] not in active_ids and self.is_free(match[1]):
                self.remove(match[1])

    def _path(self, id_: str) -> str:
        return f"{self.directory}/{id_}.lock"
