"""Whether reads can be kept from being answered by the page cache, which would measure memory."""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from gpuyard.measure.storage.records import CacheBypass

BLOCK = 1 << 20
TIMES_MEMORY = 5  # MLPerf Storage's rule for the size of a data set
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")


def filesystem_of(path: Path) -> str:
    """The type of the file system that a path is on."""
    real = path.resolve()
    mounts = [
        (Path(mount.mountpoint), mount.fstype)
        for mount in psutil.disk_partitions(all=True)
        if mount.fstype
    ]
    above = [(point, kind) for point, kind in mounts if point == real or point in real.parents]
    return max(above, key=lambda pair: len(pair[0].parts), default=(real, "unknown"))[1]


def bypass_of(files: Sequence[Path], dataset_bytes: int) -> CacheBypass:
    """The best way to bypass the cache that works on these files."""
    if filesystem_of(files[0]) in _IN_MEMORY:
        return "none"
    if _direct_works(files[0]):
        return "direct"
    if dataset_bytes >= TIMES_MEMORY * psutil.virtual_memory().total:
        return "outgrown"
    return "dropped" if _dropping_works(files[0]) else "none"


def open_file(path: Path, bypass: CacheBypass) -> int:
    """A descriptor to read from, with nothing of the file cached where that can be had."""
    if bypass == "direct":
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    descriptor = os.open(path, os.O_RDONLY)
    if bypass == "dropped":
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return descriptor


def aligned_buffer() -> mmap.mmap:
    """Direct reads go into memory that starts at a page."""
    return mmap.mmap(-1, BLOCK)


def _direct_works(path: Path) -> bool:
    if not hasattr(os, "O_DIRECT"):
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return False
    try:
        with aligned_buffer() as buffer:
            return os.preadv(descriptor, [buffer], 0) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _dropping_works(path: Path) -> bool:
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            # a read that may not wait succeeds only from the cache
            os.preadv(descriptor, [bytearray(4096)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False
    finally:
        os.close(descriptor)
