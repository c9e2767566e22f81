"""What is needed for a while: files and directories (`held_file`, `held_directory`) with a name that nothing else has, and
a lock that the kernel frees with its process, however that ends.

What has such a name, belongs to this user and is held by nobody was left by a kill: `sweep` removes it, and nothing
else. Not every shared disk tells one host of another's locks. So a name begins with its host's mark, and what another
host has made is only removed when it has been still for a day.
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

Kind = Literal["storage", "digits", "ranks", "torchrun", "horovod", "root", "ssh"]
"""What a directory is for."""

_FILE = re.compile(r"\.gpuyard-part-[0-9a-f]{16}")
_DIRECTORY = re.compile(rf"\.?gpuyard-(?:{'|'.join(get_args(Kind))})-[0-9a-f]{{16}}")
_LOCK = "held.lock"
_STILL_SECONDS = 24 * 3600.0
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def shared_directory() -> Path:
    """Where programs put what they need for a while; as `tempfile` chooses it, without its trial file."""
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for path in (*named, "/tmp", "/var/tmp"):  # noqa: S108 - names are random, and made exclusively
        if path and Path(path).is_dir() and os.access(path, os.W_OK | os.X_OK):
            return Path(path).absolute()
    return Path.cwd()


@contextlib.contextmanager
def held_file(directory: Path, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file to write into, with the rights that the umask leaves; gone at the end unless it was renamed."""
    while True:
        path = directory / f".gpuyard-part-{new_token()}"
        try:
            descriptor = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue
        if _hold(descriptor, path):
            break
        os.close(descriptor)  # it was swept before it was held
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield path, file
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def held_directory(parent: Path, kind: Kind, *, hidden: bool = False) -> Iterator[Path]:
    """A new directory that only this user can read; before, what others of its kind left there is removed."""
    import shutil

    sweep(parent)
    while True:
        path = parent / f"{'.' if hidden else ''}gpuyard-{kind}-{new_token()}"
        try:
            path.mkdir(mode=0o700)
            descriptor = os.open(path / _LOCK, _OPEN | os.O_CREAT, 0o600)
        except (FileExistsError, FileNotFoundError):
            if not parent.exists():
                raise
            continue  # it was swept before it was held
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        if _hold(descriptor, path / _LOCK):
            break
        os.close(descriptor)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def sweep(*directories: Path) -> None:
    """Remove what processes have left here that are gone."""
    for directory in directories:
        try:
            found = list(directory.iterdir())
        except OSError:
            continue
        for path in found:
            with contextlib.suppress(OSError):  # in use, another user's, or gone by now
                if _FILE.fullmatch(path.name):
                    _sweep_file(path)
                elif _DIRECTORY.fullmatch(path.name):
                    _sweep_directory(path)


def _sweep_file(path: Path) -> None:
    descriptor = os.open(path, _OPEN)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        if _is_left(status, path) and stat.S_ISREG(status.st_mode) and _is_named(descriptor, path):
            path.unlink()
    finally:
        os.close(descriptor)


def _sweep_directory(path: Path) -> None:
    import shutil

    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not _is_left(os.fstat(directory), path):
            return
        # a maker that was killed early has left no lock: there is one now, so that a living maker waits for it
        descriptor = os.open(_LOCK, _OPEN | os.O_CREAT, 0o600, dir_fd=directory)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(directory, path):
                shutil.rmtree(path)
        finally:
            os.close(descriptor)
    finally:
        os.close(directory)


def _hold(descriptor: int, path: Path) -> bool:
    """Take its lock; False where it was removed meanwhile. A file system without locks is not swept either."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return _is_named(descriptor, path)


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _is_left(status: os.stat_result, path: Path) -> bool:
    """It belongs to this user, and its lock can be believed."""
    here = path.name.rpartition("-")[2].startswith(_host_mark())
    still = time.time() - status.st_mtime > _STILL_SECONDS
    return status.st_uid == os.geteuid() and (here or still)


def new_token() -> str:
    """16 hexadecimal digits, of which the first half is this host's mark."""
    return _host_mark() + os.urandom(4).hex()


def _host_mark() -> str:
    return f"{zlib.crc32(os.uname().nodename.encode()):08x}"
