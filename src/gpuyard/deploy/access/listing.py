"""The files of a folder, here or on a machine, and the attributes that show which of them have changed."""

import fnmatch
import os
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import GpuyardError

DEFAULT_EXCLUDES = (".git", ".venv")


@dataclass(frozen=True)
class Entry:
    """The attributes that show whether a file has changed."""

    kind: str
    """`f` for a file, `d` for a folder, and `l` for a symbolic link."""
    size: int
    modified_seconds: int
    target: str = ""

    @property
    def identity(self) -> tuple[str, int, int, str]:
        if self.kind == "l":
            return ("l", 0, 0, self.target)
        if self.kind == "f":
            return ("f", self.size, self.modified_seconds, "")
        return (self.kind, 0, 0, "")


def is_excluded(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a part of the path matches one of the patterns."""
    return any(
        fnmatch.fnmatchcase(part, pattern) for part in path.split("/") for pattern in patterns
    )


def list_local(folder: Path, excluded_patterns: Sequence[str]) -> Iterator[tuple[str, Entry]]:
    """Return everything in a folder of this machine, with paths relative to it."""

    def on_error(error: OSError) -> None:
        raise GpuyardError(f"cannot read {error.filename}: {error.strerror}") from error

    for directory, folders, names in os.walk(folder, onerror=on_error):
        relative = os.path.relpath(directory, folder)
        prefix = "" if relative == "." else f"{relative}/"
        folders[:] = sorted(name for name in folders if not is_excluded(name, excluded_patterns))
        for name in (*folders, *sorted(names)):
            if is_excluded(name, excluded_patterns):
                continue
            entry = read_entry(Path(directory) / name)
            if entry is not None:
                yield prefix + name, entry


def read_entry(path: Path) -> Entry | None:
    """Return the attributes of a path; None if it is missing, or a socket, a pipe, or a device."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return Entry("l", 0, 0, str(path.readlink()))
    if stat.S_ISDIR(status.st_mode):
        return Entry("d", 0, 0)
    if stat.S_ISREG(status.st_mode):
        return Entry("f", status.st_size, int(status.st_mtime))
    return None


def list_command(path: str) -> str:
    """Return the shell command that lists a folder of a machine for `parse_listing`."""
    return f"find {shlex.quote(path)} -mindepth 1 -printf '%y %s %T@ %P\\0%l\\0'"


def parse_listing(output: str) -> dict[str, Entry]:
    """Return the entries by their path relative to the listed folder."""
    fields = output.split("\0")
    entries = {}
    for attributes, target in zip(fields[::2], fields[1::2], strict=False):
        kind, size, modified, path = attributes.split(" ", 3)
        size_bytes = int(size) if kind == "f" else 0
        entries[path] = Entry(kind, size_bytes, int(float(modified)), target)
    return entries
