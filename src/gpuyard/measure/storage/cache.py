"""Bypasses the page cache, so that a storage bench does not measure memory."""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from gpuyard.measure.storage.records import CacheBypass

BLOCK = 1 << 20
TIMES_MEMORY = 5  # MLPerf Storage's rule for the size of a dataset
_MEMORY_FILESYSTEMS = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")


def find_filesystem(path: Path) -> str:
    """Return the type of the file system that a path is on."""
    real = path.resolve()
    mounts = [
        (Path(mount.mountpoint), mount.fstype)
        for mount in psutil.disk_partitions(all=True)
        if mount.fstype
    ]
    enclosing = [(point, kind) for point, kind in mounts if point == real or point in real.parents]
    return max(enclosing, key=lambda pair: len(pair[0].parts), default=(real, "unknown"))[1]


def choose_cache_bypass(files: Sequence[Path], dataset_bytes: int) -> CacheBypass:
    """Choose the best way to bypass the cache that works on these files."""
    if find_filesystem(files[0]) in _MEMORY_FILESYSTEMS:
        return "none"
    if _can_read_directly(files[0]):
        return "direct"
    if dataset_bytes >= TIMES_MEMORY * psutil.virtual_memory().total:
        return "outgrown"
    return "dropped" if _can_drop_cache(files[0]) else "none"


def open_file(path: Path, bypass: CacheBypass) -> int:
    """Open a file for reading, uncached if the bypass allows it, and return its descriptor."""
    if bypass == "direct":
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    descriptor = os.open(path, os.O_RDONLY)
    if bypass == "dropped":
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return descriptor


def allocate_buffer() -> mmap.mmap:
    """Allocate a page-aligned buffer, which direct reads need."""
    return mmap.mmap(-1, BLOCK)


def _can_read_directly(path: Path) -> bool:
    if not hasattr(os, "O_DIRECT"):
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return False
    try:
        with allocate_buffer() as buffer:
            return os.preadv(descriptor, [buffer], 0) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _can_drop_cache(path: Path) -> bool:
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            # a read that must not wait succeeds only from the cache
            os.preadv(descriptor, [bytearray(4096)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False
    finally:
        os.close(descriptor)
