"""Allows one measurement at a time on a machine, across all users: two on the same cores would disturb each other.

All users lock the same file. It is in a directory where everyone can create files but only delete their own. The
file stays empty; the kernel releases its lock when the process ends, for whatever reason.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.files import create_parent, expand_home

DIRECTORY_VARIABLE = "GPUYARD_LOCK_DIRECTORY"
NAME = "gpuyard-measuring.lock"
_SHARED_DIRECTORIES = (
    Path("/run/lock"),
    Path("/tmp"),  # noqa: S108 - the same for all users: not TMPDIR
)
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FILE_MODE = 0o644


class MachineBusy(GpuyardError):
    """Another process is measuring on this machine."""


@contextlib.contextmanager
def hold_measurement_lock() -> Iterator[None]:
    """Hold the lock during the block; raise MachineBusy if another process holds it."""
    path = lock_file()
    descriptor = _acquire(path)
    try:
        yield
    finally:
        os.close(descriptor)


def lock_file() -> Path:
    """Return the lock file: the same for all users, or one per user if no directory is shared."""
    if configured := os.environ.get(DIRECTORY_VARIABLE):
        return create_parent(expand_home(configured) / NAME)
    for directory in _SHARED_DIRECTORIES:
        if _is_shared(directory):
            return directory / NAME
    return create_parent(files.home() / NAME)


def _is_shared(directory: Path) -> bool:
    """Check the mode instead of trying to write: root can write anywhere, but must use the same file."""
    try:
        status = directory.stat()
    except OSError:
        return False
    return stat.S_IMODE(status.st_mode) & 0o1777 == 0o1777 and status.st_uid == 0


def _acquire(path: Path) -> int:
    while True:
        try:
            descriptor = _open(path)
        except OSError as error:
            raise _describe_unusable(path, error.strerror) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _describe_unusable(path, "not a regular file")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(status, path.lstat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise MachineBusy(
                "another gpuyard is measuring on this machine, and both would be disturbed; "
                "try again when it has finished"
            ) from None
        except FileNotFoundError:  # a cleaner of temporary files has just removed it
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open an existing file without O_CREAT, which fs.protected_regular forbids for another user's file."""
    while True:
        try:
            return os.open(path, _OPEN_FLAGS | os.O_RDWR)
        except PermissionError:
            return os.open(path, _OPEN_FLAGS | os.O_RDONLY)  # another user's; enough to lock it
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(
                    path, _OPEN_FLAGS | os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE
                )
                os.fchmod(descriptor, _FILE_MODE)  # regardless of this user's umask
                return descriptor


def _describe_unusable(path: Path, why: str | None) -> GpuyardError:
    return GpuyardError(
        f"the lock file for measurements on this machine, {path}, cannot be used ({why}); "
        "remove it, or ask its owner to"
    )
