"""The files that gpuyard keeps for a user, and safe reading and writing of files.

Reading stops at a size limit. Writing goes to a temporary name first and then replaces the file in one step.
"""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpuyard.errors import GpuyardError, UserMistake, closest_name, quote
from gpuyard.temporary import temporary_file

MAX_BYTES = 20_000_000
"""Largest file that people write or tools print."""
_MAX_VALUES = 20_000
_MAX_SIBLINGS = 1000  # files to search for one with a similar name
_MAX_LINKS = 40  # the kernel's limit


def home() -> Path:
    """Return `$GPUYARD_HOME`, or `gpuyard` under `$XDG_DATA_HOME` (by default `~/.local/share`)."""
    own_home = os.environ.get("GPUYARD_HOME")
    if own_home:
        return expand_home(own_home)
    data_home = os.environ.get("XDG_DATA_HOME")
    base = Path(data_home) if data_home else expand_home("~/.local/share")
    return base / "gpuyard"


def expand_home(path: str | Path) -> Path:
    """Replace `~` and `~user` at the start of a path. Raise UserMistake if that user has no home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserMistake(
            f"{quote(str(path))}: home directory not found; set HOME to a directory, or write the whole path"
        ) from None


def data_directories() -> tuple[Path, ...]:
    """Return every directory in which gpuyard keeps files."""
    return tuple(
        home() / name for name in ("", "checkpoints", "datasets", "kubernetes", "labs", "reports")
    )


def results_file() -> Path:
    """Return the path of the SQLite store of measurements."""
    return home() / "results.sqlite"


def calibration_file() -> Path:
    """Return the path of the constants that were fitted to this user's measurements."""
    return home() / "calibration.json"


def prices_file() -> Path:
    """Return the path of the prices that the user has imported, newer than the shipped ones."""
    return home() / "prices.csv"


def dataset_directory(name: str) -> Path:
    """Return the directory of a downloaded dataset."""
    return home() / "datasets" / name


def read_text(
    path: Path, mistake: type[UserMistake] = UserMistake, *, max_bytes: int = MAX_BYTES
) -> str:
    """Return the text of a user's file. Raise `mistake` if it is missing, too large, or not UTF-8."""
    try:
        return read_bytes(path, mistake, max_bytes=max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise mistake(f"{path}: this is not UTF-8 text") from None


def read_bytes(
    path: Path, mistake: type[UserMistake] = UserMistake, *, max_bytes: int = MAX_BYTES
) -> bytes:
    """Return the content of a file. Raise `mistake` if it is larger than `max_bytes`; a device may be endless."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise mistake(f"{path}: file not found{_suggest_sibling(path)}") from None
    except IsADirectoryError:
        raise mistake(f"{path}: this is a directory, not a file") from None
    except (OSError, ValueError) as error:  # a path with a null character is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise mistake(f"{path}: cannot be read: {reason}") from None
    if len(content) > max_bytes:
        mega, kilo = divmod(max_bytes // 1000, 1000)
        raise mistake(f"{path}: larger than {f'{mega} MB' if mega else f'{kilo} kB'}")
    return content


def _suggest_sibling(path: Path) -> str:
    """Suggest a file in the same directory with a similar name."""
    try:
        with os.scandir(path.parent) as entries:
            siblings = [
                entry.name for entry in itertools.islice(entries, _MAX_SIBLINGS) if entry.is_file()
            ]
    except OSError:
        return ""
    match = closest_name(path.stem if path.suffix == ".yml" else path.name, siblings)
    return f"; did you mean {quote(str(path.with_name(match)))}?" if match else ""


def too_many_values(text: str) -> str | None:
    """Return why JSON is too long to validate: pydantic keeps a long message for each wrong value."""
    values = sum(map(text.count, ",[{"))  # an estimate that never misses more than half of them
    return f"more than {_MAX_VALUES:,} values" if values > _MAX_VALUES else None


def check_writable(path: Path) -> None:
    """Raise if this file or directory could not be written later; create nothing."""
    try:
        follow_links(path)  # before the kernel does, which gives no reason
    except PermissionError as error:
        raise _write_error(path, error) from error
    except OSError:
        pass  # the write itself reports all other errors
    directory = path.absolute().parent
    if not directory.exists():
        raise UserMistake(f"{path} cannot be written: directory {path.parent} not found")
    if not directory.is_dir():
        raise UserMistake(f"{path} cannot be written: {path.parent} is a file")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise GpuyardError(f"{path} cannot be written: no permission to write to {path.parent}")


def _write_error(path: Path, error: OSError) -> GpuyardError:
    return GpuyardError(f"{path} cannot be written: {error.strerror}")


def probe_writable(path: Path) -> None:
    """Write a temporary file to be sure, for work that would be lost; permissions alone do not prove it."""
    check_writable(path)
    try:
        with temporary_file(follow_links(path).parent, 0o600) as (_, file):
            file.write(b"x")
    except OSError as error:
        raise _write_error(path, error) from error


def create_parent(path: Path) -> Path:
    """Create the directories above gpuyard's own file, and return its path. Never used for a user's paths."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _write_error(path, error) from error
    return path


def create_directory(path: Path) -> None:
    """Create a directory that a user names; its parent must exist."""
    check_writable(path)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise GpuyardError(f"{path} cannot be created: {error.strerror}") from error


def write_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Replace the file in one step; after a crash or on a full disk, the old one is unchanged.

    A new file gets the mode, minus the umask.
    """
    check_writable(path)
    try:
        target = follow_links(path)  # a link stays a link, and its target is replaced
        if target.exists() and not target.is_file():  # a pipe or a device cannot be replaced
            target.write_text(text, encoding="utf-8")
            return
        with _open_replacement(target, mode) as file:
            file.write(text.encode())
    except OSError as error:
        raise _write_error(path, error) from error


def follow_links(path: Path) -> Path:
    """Resolve symbolic links. Raise if a link is another user's and in a directory for all users, like /tmp.

    The kernel refuses such links, too (fs.protected_symlinks), but only when it follows them itself.
    """
    remaining = list(reversed(path.absolute().parts))
    resolved = Path(remaining.pop())
    links = 0
    while remaining:
        part = remaining.pop()
        current = resolved.parent if part == ".." else resolved / part
        if not current.is_symlink():
            resolved = current
            continue
        links += 1
        parent = resolved.stat()
        for_all = parent.st_mode & stat.S_ISVTX and parent.st_mode & stat.S_IWOTH
        if for_all and current.lstat().st_uid not in (os.geteuid(), parent.st_uid):
            raise PermissionError(errno.EACCES, f"{current} is another user's link")
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = current.readlink()
        remaining += [part for part in reversed(target.parts) if part != "/"]
        resolved = Path("/") if target.is_absolute() else resolved
    return resolved


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces the old one when the block finishes; after a crash, the old one is unchanged."""
    check_writable(path)
    try:
        with _open_replacement(follow_links(path)) as file:
            yield file
    except OSError as error:
        raise _write_error(path, error) from error


@contextlib.contextmanager
def _open_replacement(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    with temporary_file(path.parent, mode) as (part, file):
        # exactly those users who could read the old file can read the new one
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode) & 0o777)
        yield file
        file.flush()
        os.fsync(file.fileno())
        part.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames in the directory survive a power failure."""
    with contextlib.suppress(OSError):  # some file systems cannot
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace_directory(fresh: Path, target: Path, *, aside: Path) -> None:
    """Replace a directory, in one step if the system can. The old one is then at `aside` or at `fresh`."""
    if not target.exists() or not _exchange(fresh, target):
        if target.exists():
            target.rename(aside)
        fresh.rename(target)
    sync_directory(target.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Call Linux's renameat2 with RENAME_EXCHANGE, which Python does not offer."""
    import ctypes

    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    at_fdcwd, rename_exchange = -100, 2
    status = rename(at_fdcwd, os.fsencode(first), at_fdcwd, os.fsencode(second), rename_exchange)
    return bool(status == 0)
