"""Log files of jobs. They are never written or read through a link, which another user may have put there."""

import codecs
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gpuyard.errors import GpuyardError

_CHUNK_BYTES = 65_536
_POLL_SECONDS = 0.2


def open_log(path: Path) -> int:
    """Open this file of the user for appending; raise OSError or GpuyardError if that is impossible."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    return _check_owner(descriptor, path)


def _open_to_read(path: Path) -> int | None:
    """Open the file, or return None if it does not exist yet."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GpuyardError(
            f"cannot read {path}: it is a link or cannot be opened ({error.strerror})"
        ) from error
    return _check_owner(descriptor, path)


def _check_owner(descriptor: int, path: Path) -> int:
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise GpuyardError(f"cannot use {path}: it is not a regular file that you own")


def read_logs(
    logs: Callable[[], Sequence[Path]], ended: Callable[[], bool], *, follow: bool
) -> Iterator[str]:
    """Read all log files in order; with `follow`, keep reading until the job has ended."""
    read = 0
    while True:
        over = not follow or ended()  # checked first: output written before the end is still read
        paths = logs()
        while read < len(paths):
            latest = read == len(paths) - 1
            yield from _read_file(
                paths[read],
                lambda: not (follow and latest) or over or ended() or len(logs()) > len(paths),  # noqa: B023
            )
            read += 1
        if over or ended():
            if len(logs()) == read:
                return
            continue
        time.sleep(_POLL_SECONDS)


def _read_file(path: Path, is_last_pass: Callable[[], bool]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    descriptor: int | None = None
    try:
        while True:
            last = is_last_pass()
            if descriptor is None:
                descriptor = _open_to_read(path)
            while descriptor is not None and (chunk := os.read(descriptor, _CHUNK_BYTES)):
                if text := decoder.decode(chunk):
                    yield text
            if last:
                if text := decoder.decode(b"", final=True):
                    yield text
                return
            time.sleep(_POLL_SECONDS)
    finally:
        if descriptor is not None:
            os.close(descriptor)
