"""One measures at a time on a machine, whoever it is: two on the same cores would both be wrong.

All users meet at one file, in a directory where anybody may make one and nobody may remove another's. It holds
nothing, is never written to, and only its lock counts, which the kernel frees with the process, however that ends.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.files import make_parent

DIRECTORY_VARIABLE = "GPUYARD_LOCK_DIRECTORY"
NAME = "gpuyard-measuring.lock"
_SHARED = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - the same for all users: not TMPDIR
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOR_ALL = 0o644


@contextlib.contextmanager
def only_one_measures() -> Iterator[None]:
    """Held while measuring; raises where another holds it."""
    path = lock_file()
    descriptor = _take(path)
    try:
        yield
    finally:
        os.close(descriptor)


def lock_file() -> Path:
    """The same for every user of this machine; their own only where the machine has no place for it."""
    if named := os.environ.get(DIRECTORY_VARIABLE):
        return make_parent(Path(named).expanduser() / NAME)
    for directory in _SHARED:
        if _is_for_all(directory):
            return directory / NAME
    return make_parent(files.home() / NAME)


def _is_for_all(directory: Path) -> bool:
    """Looked at, not tried out: root may write where others may not, and must come to the same place."""
    try:
        status = directory.stat()
    except OSError:
        return False
    return stat.S_IMODE(status.st_mode) & 0o1777 == 0o1777 and status.st_uid == 0


def _take(path: Path) -> int:
    while True:
        try:
            descriptor = _open(path)
        except OSError as error:
            raise _unusable(path, error.strerror) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _unusable(path, "it is not a plain file")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(status, path.lstat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise GpuyardError(
                "another gpuyard is measuring on this machine, and both would be disturbed; "
                "run it again when that one has finished"
            ) from None
        except FileNotFoundError:  # who cleans up temporary files took it away just now
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(path: Path) -> int:
    """Never with O_CREAT where it is there: a kernel that protects such directories refuses that to others."""
    while True:
        try:
            return os.open(path, _OPEN | os.O_RDWR)
        except PermissionError:
            return os.open(path, _OPEN | os.O_RDONLY)  # another user's: enough to lock it
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, _OPEN | os.O_RDWR | os.O_CREAT | os.O_EXCL, _FOR_ALL)
                os.fchmod(descriptor, _FOR_ALL)  # whatever this user's umask
                return descriptor


def _unusable(path: Path, why: str | None) -> GpuyardError:
    return GpuyardError(
        f"{path}, at which those who measure on this machine wait for each other, can't be used "
        f"({why}); remove it, or ask its owner to"
    )
