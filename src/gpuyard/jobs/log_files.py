"""What a job prints, in files: never written or read through a link that somebody else may have put there."""

import codecs
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gpuyard.errors import GpuyardError

_PIECE_BYTES = 65_536
_LOOK_SECONDS = 0.2


def open_log(path: Path) -> int:
    """A descriptor that appends to this file of the user's own; raises OSError or GpuyardError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    return _own_file(descriptor, path)


def _open_to_read(path: Path) -> int | None:
    """None where there is no file yet."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GpuyardError(
            f"{path} is not read: it is a link or can't be opened ({error.strerror})"
        ) from error
    return _own_file(descriptor, path)


def _own_file(descriptor: int, path: Path) -> int:
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise GpuyardError(f"{path} is not used: it is not a file of your own")


def read_logs(
    logs: Callable[[], Sequence[Path]], ended: Callable[[], bool], *, follow: bool
) -> Iterator[str]:
    """All of them one after the other; with `follow` also what is still written, until the job has ended."""
    read = 0
    while True:
        over = not follow or ended()  # asked first: what was written before the end is still read
        paths = logs()
        while read < len(paths):
            latest = read == len(paths) - 1
            yield from _read_one(
                paths[read],
                lambda: not (follow and latest) or over or ended() or len(logs()) > len(paths),  # noqa: B023
            )
            read += 1
        if over or ended():
            if len(logs()) == read:
                return
            continue
        time.sleep(_LOOK_SECONDS)


def _read_one(path: Path, is_last_look: Callable[[], bool]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    descriptor: int | None = None
    try:
        while True:
            last = is_last_look()
            if descriptor is None:
                descriptor = _open_to_read(path)
            while descriptor is not None and (piece := os.read(descriptor, _PIECE_BYTES)):
                if text := decoder.decode(piece):
                    yield text
            if last:
                if text := decoder.decode(b"", final=True):
                    yield text
                return
            time.sleep(_LOOK_SECONDS)
    finally:
        if descriptor is not None:
            os.close(descriptor)
