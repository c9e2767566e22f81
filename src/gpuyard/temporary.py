"""Create temporary files and directories with unique names, each locked by its process until that exits.

The kernel frees the lock even if the process is killed. `remove_leftovers` removes only files that have such a name,
belong to this user, and are not locked. Some shared disks don't show one host the locks of another. So each token begins
with a hash of its host, and gpuyard removes another host's files only if they have not changed for a day.
"""

import contextlib
import fcntl
import os
import re
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, get_args

Kind = Literal["storage", "digits", "ranks", "torchrun", "horovod", "root", "ssh", "notebook"]
"""The purpose of a temporary directory."""

_FILE = re.compile(r"\.gpuyard-part-[0-9a-f]{16}")
_DIRECTORY = re.compile(rf"\.?gpuyard-(?:{'|'.join(get_args(Kind))})-[0-9a-f]{{16}}")
_LOCK = "held.lock"
_FOREIGN_AGE_SECONDS = 24 * 3600.0
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def shared_directory() -> Path:
    """Return the system's directory for temporary files, chosen like `tempfile` does but without a trial file."""
    from_environment = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for path in (*from_environment, "/tmp", "/var/tmp"):  # noqa: S108 - random names, O_EXCL
        if path and Path(path).is_dir() and os.access(path, os.W_OK | os.X_OK):
            return Path(path).absolute()
    return Path.cwd()


@contextlib.contextmanager
def temporary_file(directory: Path, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    """Create a file to write, with this mode minus the umask; remove it at the end unless it was renamed."""
    while True:
        path = directory / f".gpuyard-part-{new_token()}"
        try:
            descriptor = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue
        if _lock(descriptor, path):
            break
        os.close(descriptor)  # another process removed it before it was locked
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield path, file
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_directory(parent: Path, kind: Kind, *, hidden: bool = False) -> Iterator[Path]:
    """Create a directory that only this user can read, after removing leftovers from its parent."""
    import shutil

    remove_leftovers(parent)
    while True:
        path = parent / f"{'.' if hidden else ''}gpuyard-{kind}-{new_token()}"
        try:
            path.mkdir(mode=0o700)
            descriptor = os.open(path / _LOCK, _OPEN | os.O_CREAT, 0o600)
        except (FileExistsError, FileNotFoundError):
            if not parent.exists():
                raise
            continue  # another process removed it before it was locked
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        if _lock(descriptor, path / _LOCK):
            break
        os.close(descriptor)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def remove_leftovers(*directories: Path) -> None:
    """Remove the temporary files and directories of processes that no longer exist."""
    for directory in directories:
        try:
            entries = list(directory.iterdir())
        except OSError:
            continue
        for path in entries:
            with contextlib.suppress(OSError):  # in use, another user's, or already removed
                if _FILE.fullmatch(path.name):
                    _remove_leftover_file(path)
                elif _DIRECTORY.fullmatch(path.name):
                    _remove_leftover_directory(path)


def _remove_leftover_file(path: Path) -> None:
    descriptor = os.open(path, _OPEN)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        may_remove = _may_remove(status, path) and stat.S_ISREG(status.st_mode)
        if may_remove and _is_same_file(descriptor, path):
            path.unlink()
    finally:
        os.close(descriptor)


def _remove_leftover_directory(path: Path) -> None:
    import shutil

    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not _may_remove(os.fstat(directory), path):
            return
        # a creator that was killed early left no lock file; with one, a living creator waits for this process
        descriptor = os.open(_LOCK, _OPEN | os.O_CREAT, 0o600, dir_fd=directory)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(directory, path):
                shutil.rmtree(path)
        finally:
            os.close(descriptor)
    finally:
        os.close(directory)


def _lock(descriptor: int, path: Path) -> bool:
    """Lock the file; return False if it was removed meanwhile. Without locks, nothing removes leftovers either."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return _is_same_file(descriptor, path)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _may_remove(status: os.stat_result, path: Path) -> bool:
    """Return whether the file is this user's and its lock is reliable: this host's, or unchanged for a day."""
    from_this_host = path.name.rpartition("-")[2].startswith(_hash_host())
    unchanged = time.time() - status.st_mtime > _FOREIGN_AGE_SECONDS
    return status.st_uid == os.geteuid() and (from_this_host or unchanged)


def new_token() -> str:
    """Return 16 hexadecimal digits; the first half is a hash of this host's name."""
    return _hash_host() + os.urandom(4).hex()


def _hash_host() -> str:
    return f"{zlib.crc32(os.uname().nodename.encode()):08x}"
