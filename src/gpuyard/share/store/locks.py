"""One lock file a lease. Whoever is given the lease holds it open, and so do all processes that it starts: the
kernel frees the lock when the last of them is gone, however that ends."""

import contextlib
import fcntl
import os
import re
from collections.abc import Collection
from pathlib import Path

from gpuyard.share.watch import processes

_MOST_BYTES = 65_536
_NAME = re.compile(r"([0-9a-f]{8})\.lock")


def is_held(lock: str | Path) -> bool:
    """Whether any process holds it; one that is not there is held by nobody."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        # shared, so that two who look at once don't take each other for the holder
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class Locks:
    """The directory of lock files, which only the store's owner can enter."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def make(self, id_: str) -> int:
        """A new lock that is held by the file descriptor which this returns; nobody can write through it."""
        flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path(id_), flags, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def note(self, id_: str, text: str) -> None:
        """Say in the file what its lease is: what is held is known even if the store is lost."""
        descriptor = os.open(self._path(id_), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)
        finally:
            os.close(descriptor)

    @staticmethod
    def noted(descriptor: int) -> str:
        """What the file says now, for whoever holds it; nothing where that can't be read."""
        try:
            return os.pread(descriptor, _MOST_BYTES, 0).decode(errors="replace")
        except OSError:
            return ""

    def held(self) -> dict[str, str]:
        """What stands in the locks that somebody holds, by lease."""
        found = {}
        for path in self.directory.glob("*.lock"):
            name = _NAME.fullmatch(path.name)
            if name and not self.is_free(name[1]):
                found[name[1]] = path.read_text(encoding="utf-8", errors="replace")
        return found

    def is_free(self, id_: str) -> bool:
        """Nobody holds it any more; a lock that is gone is held by nobody."""
        try:
            return not is_held(self._path(id_))
        except PermissionError:
            return False  # of another user's store nobody else can tell

    def remove(self, id_: str) -> None:
        """Take the file away once its lease has ended."""
        with contextlib.suppress(OSError):  # the next sweep tries again
            os.unlink(self._path(id_))  # noqa: PTH108 - pathlib takes several times as long

    def let_go(self, id_: str) -> None:
        """Of what this process has inherited of it; not for a service, which looks at locks in other threads."""
        processes.close_inherited(self._path(id_))

    def pinned(self, id_: str) -> contextlib.AbstractContextManager[tuple[int, int] | None]:
        """What its holders are recognised by, while they are looked for."""
        return processes.pinned(self._path(id_))

    def sweep(self, living: Collection[str]) -> None:
        """Remove free locks of no lease; only inside a transaction, where no new one is being made."""
        for name in os.listdir(self.directory):  # noqa: PTH208 - five times as fast
            found = _NAME.fullmatch(name)
            if found and found[1] not in living and self.is_free(found[1]):
                self.remove(found[1])

    def _path(self, id_: str) -> str:
        return f"{self.directory}/{id_}.lock"
