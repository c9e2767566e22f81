"""Where gpuyard keeps what it stores for a user, and how files are read and written: read up to a bound, and written
whole, by a temporary name and a rename.
"""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpuyard.errors import GpuyardError, UserMistake, closest_names, quoted
from gpuyard.temporary import held_file

MOST_BYTES = 20_000_000  # of what people write or tools print
_MOST_VALUES = 20_000
_MOST_BESIDE = 1000  # files that are looked at for one with nearly the same name
_MOST_LINKS = 40  # as the kernel has it


def home() -> Path:
    """`$GPUYARD_HOME`, or `gpuyard` under `$XDG_DATA_HOME` (by default `~/.local/share`)."""
    named = os.environ.get("GPUYARD_HOME")
    if named:
        return Path(named).expanduser()
    shared = os.environ.get("XDG_DATA_HOME")
    base = Path(shared) if shared else Path.home() / ".local" / "share"
    return base / "gpuyard"


def directories() -> tuple[Path, ...]:
    """All that gpuyard keeps files in."""
    return tuple(home() / name for name in ("", "checkpoints", "datasets", "kubernetes", "labs"))


def results_file() -> Path:
    """The SQLite store of measurements."""
    return home() / "results.sqlite"


def calibration_file() -> Path:
    """The constants that were fitted to this user's measurements."""
    return home() / "calibration.json"


def prices_file() -> Path:
    """Prices that are newer than the shipped ones, where the user took some in."""
    return home() / "prices.csv"


def dataset_directory(name: str) -> Path:
    """Where a fetched dataset lies."""
    return home() / "datasets" / name


def read_text(
    path: Path, mistake: type[UserMistake] = UserMistake, *, most_bytes: int = MOST_BYTES
) -> str:
    """What a user's file says; what is wrong with it is a sentence."""
    try:
        return read_bytes(path, mistake, most_bytes=most_bytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise mistake(f"{path}: this is not text in UTF-8") from None


def read_bytes(
    path: Path, mistake: type[UserMistake] = UserMistake, *, most_bytes: int = MOST_BYTES
) -> bytes:
    """All of a file that is no larger than it can be meant to be; of a device never more either."""
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise mistake(f"{path}: there is no such file{_near(path)}") from None
    except IsADirectoryError:
        raise mistake(f"{path}: this is a directory, not a file") from None
    except (OSError, ValueError) as error:  # a path with a null character is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise mistake(f"{path}: can't be read: {reason}") from None
    if len(content) > most_bytes:
        raise mistake(f"{path}: larger than {_size(most_bytes)}")
    return content


def _near(path: Path) -> str:
    """What stands beside it under nearly the same name."""
    try:
        with os.scandir(path.parent) as entries:
            beside = [one.name for one in itertools.islice(entries, _MOST_BESIDE) if one.is_file()]
    except OSError:
        return ""
    near = closest_names(path.stem if path.suffix == ".yml" else path.name, beside, most=1)
    return f"; did you mean {quoted(str(path.with_name(near[0])))}?" if near else ""


def too_many_values(text: str) -> str | None:
    """Why JSON is not to be checked against a model, which keeps a page of words for each value that is wrong."""
    values = sum(map(text.count, ",[{"))  # nearly so many, and never fewer than half of them
    return f"more than {_MOST_VALUES:,} values" if values > _MOST_VALUES else None


def _size(size_bytes: int) -> str:
    mega, kilo = divmod(size_bytes // 1000, 1000)
    return f"{mega} MB" if mega else f"{kilo} kB"


def check_writable(path: Path) -> None:
    """Say now if this file or directory could not be written later; makes nothing."""
    try:
        followed(path)  # before the kernel does, whose refusal does not say why
    except OSError as error:
        if isinstance(error, PermissionError):  # all others are told by who meets them
            raise GpuyardError(f"{path} can't be written: {error.strerror}") from error
    directory = path.absolute().parent
    if not directory.exists():
        raise UserMistake(f"{path} can't be written: there is no directory {path.parent}")
    if not directory.is_dir():
        raise UserMistake(f"{path} can't be written: {path.parent} is a file")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise GpuyardError(f"{path} can't be written: no permission to write to {path.parent}")


def try_writable(path: Path) -> None:
    """The same by trying it, for work that would be lost: rights don't say what a file system does."""
    check_writable(path)
    try:
        with held_file(followed(path).parent, 0o600) as (_, file):
            file.write(b"x")
    except OSError as error:
        raise GpuyardError(f"{path} can't be written: {error.strerror}") from error


def make_parent(path: Path) -> Path:
    """The same path, in a directory that is there now: for what gpuyard keeps, never for what a user names."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuyardError(f"{path} can't be written: {error.strerror}") from error
    return path


def make_directory(path: Path) -> None:
    """One that a user names, in a directory that is there."""
    check_writable(path)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise GpuyardError(f"{path} can't be made: {error.strerror}") from error


def write_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Replace the file in one step; a crash or a full disk leaves the old one as it was.

    A new one gets what the umask leaves of the mode.
    """
    check_writable(path)
    try:
        _replace(path, text, mode)
    except OSError as error:
        raise GpuyardError(f"{path} can't be written: {error.strerror}") from error


def _replace(path: Path, text: str, mode: int) -> None:
    path = followed(path)  # a link stays a link, and what it names is replaced
    if path.exists() and not path.is_file():  # a pipe or a device is written into, not replaced
        path.write_text(text, encoding="utf-8")
        return
    with _replacing(path, mode) as file:
        file.write(text.encode())


def followed(path: Path) -> Path:
    """Where a path leads; raises where another user's link in a directory for all, like /tmp, says where.

    So does the kernel (fs.protected_symlinks), where it is the one that follows it.
    """
    left = list(reversed(path.absolute().parts))
    found = Path(left.pop())
    links = 0
    while left:
        part = left.pop()
        at = found.parent if part == ".." else found / part
        if not at.is_symlink():
            found = at
            continue
        links += 1
        around = found.stat()
        for_all = around.st_mode & stat.S_ISVTX and around.st_mode & stat.S_IWOTH
        if for_all and at.lstat().st_uid not in (os.geteuid(), around.st_uid):
            raise PermissionError(errno.EACCES, f"{at} is another user's link")
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = at.readlink()
        left += [one for one in reversed(target.parts) if one != "/"]
        found = Path("/") if target.is_absolute() else found
    return found


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write into that takes the place of the old one at the end, or of nothing at a crash."""
    check_writable(path)
    try:
        with _replacing(followed(path)) as file:
            yield file
    except OSError as error:
        raise GpuyardError(f"{path} can't be written: {error.strerror}") from error


@contextlib.contextmanager
def _replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    with held_file(path.parent, mode) as (part, file):
        # who could read the old one can read the new one, and nobody else
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode) & 0o777)
        yield file
        file.flush()
        os.fsync(file.fileno())
        part.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """What was renamed in it has its new name after a power cut, too."""
    with contextlib.suppress(OSError):  # not every file system can
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace_directory(fresh: Path, target: Path, *, aside: Path) -> None:
    """Put a directory where another may be, in one step where the system can; the other one is aside then, or fresh."""
    if not target.exists() or not _exchange(fresh, target):
        if target.exists():
            target.rename(aside)
        fresh.rename(target)
    sync_directory(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Linux's renameat2 with RENAME_EXCHANGE; Python has no name for it."""
    import ctypes

    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)
