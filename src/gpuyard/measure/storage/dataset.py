"""The files that are read: a data set that is there, or our own, written for the bench and removed."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import held_directory

_BLOCK = 1 << 20


@contextlib.contextmanager
def own_files(
    directory: Path, total_bytes: int, files: int, on_written: Callable[[float], None]
) -> Iterator[list[Path]]:
    """Random bytes, which no disk can compress away; gone at the end, or after a kill with the next bench."""
    each = max(_BLOCK, -(-total_bytes // files // _BLOCK) * _BLOCK)
    try:
        with held_directory(directory, "storage", hidden=True) as made:
            paths = [made / f"{index:04d}.bin" for index in range(files)]
            for index, path in enumerate(paths):
                _write(path, each)
                on_written((index + 1) / files)
            yield paths
    except OSError as error:
        raise GpuyardError(
            f"the data set of {total_bytes / 1e9:.1f} GB could not be written to {directory}: "
            f"{error.strerror}; ask for less with --size, or name one with --dataset"
        ) from error


def files_of(directory: Path) -> list[Path]:
    """All files of a data set, large enough for a block at least."""
    found = sorted(p for p in directory.rglob("*") if p.is_file() and p.stat().st_size >= _BLOCK)
    if not found:
        raise UserMistake(f"{directory} has no files of 1 MiB or more to read")
    return found


def _write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // _BLOCK):
            file.write(os.urandom(_BLOCK))
        file.flush()
        os.fsync(file.fileno())
