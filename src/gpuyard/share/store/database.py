"""The SQLite file of a share: opened, checked, brought to this version, and every fault of it a sentence.

With synchronous=FULL nothing is acknowledged before its log is on the disk, and nobody sees it before either.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuyard.errors import GpuyardError
from gpuyard.share.store.schema import APPLICATION, MIGRATIONS, TABLES, VERSION
from gpuyard.share.watch.processes import wake_stopped
from gpuyard.sqlite_file import BUSY_SECONDS, address, schema_version, write_ahead

_RETRY_SECONDS = 0.0005
_LOOK_SECONDS = 3.0  # how long a write lock is waited for before it is asked who has it


class Database:
    """One connection, used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        fill: Callable[[sqlite3.Connection], None] = lambda _: None,
    ) -> None:
        """`fill`: what a new store has from the first moment on."""
        self.path = path
        self._fill = fill
        with self.sentences():
            self.connection = self._read_only() if read_only else self._opened()
            self._file = path.stat()

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; when this is left, it survives a kill and a power cut."""
        with self.sentences():
            self._begin()
            try:
                self._check_is_there()
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def _check_is_there(self) -> None:
        """What is written to a store that was put aside is lost."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self._file, self.path.stat()):
                return
        raise GpuyardError(f"{self.path} was made anew a moment ago; try again")

    @contextlib.contextmanager
    def sentences(self) -> Iterator[None]:
        """What SQLite says, as what happened and what to do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise _unusable(self.path, error) from error
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise _damaged(self.path, str(error)) from error
        except OSError as error:
            if error.filename is None and error.errno is None:
                raise
            raise GpuyardError(
                f"no lease can be given: {error.strerror} ({error.filename or self.path}); running commands continue, and `gpuyard who` still works"
            ) from error

    def _opened(self) -> sqlite3.Connection:
        if not self.path.exists():  # else SQLite makes one that others can read
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=_LOOK_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA synchronous = FULL")
        version = schema_version(connection)
        if version == 0:
            write_ahead(connection)
            connection.execute("BEGIN IMMEDIATE")
            if schema_version(connection) == 0:  # else another process was first
                if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    connection.execute("ROLLBACK")
                    raise _damaged(self.path, "it is another program's database")
                for statement in TABLES:
                    connection.execute(statement)
                self._fill(connection)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        elif version != VERSION:
            migrate(connection, self.path, version)
        connection.execute("PRAGMA foreign_keys = ON")

    def _read_only(self) -> sqlite3.Connection:
        """For those who can only look, and for a disk that is full; without its log where that can't be read."""
        error: sqlite3.Error | None = None
        for mode in ("mode=ro", "mode=ro&immutable=1"):
            try:
                connection = sqlite3.connect(
                    address(self.path, mode),
                    timeout=BUSY_SECONDS,
                    isolation_level=None,
                    uri=True,
                    check_same_thread=False,
                )
                version = schema_version(connection)
                connection.execute("SELECT COUNT(*) FROM holds").fetchone()
            except sqlite3.OperationalError as unreadable:
                error = unreadable
                continue
            if version > VERSION:
                connection.close()
                raise _newer(self.path, version)
            return connection
        assert error is not None  # noqa: S101
        raise error

    def _begin(self) -> None:
        """Wait for the write lock; whoever was stopped while holding it is woken, for nobody could go on.

        SQLite's own waiting sleeps up to 100 ms at a time, which is long for transactions of one.
        """
        begun = time.monotonic()
        looked = begun
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    self.connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    now = time.monotonic()
                    if "locked" not in str(error) or now - begun > BUSY_SECONDS:
                        raise
                    if now - looked > _LOOK_SECONDS:
                        looked = now
                        wake_stopped(self.path)
                    time.sleep(_RETRY_SECONDS)
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {int(_LOOK_SECONDS * 1000)}")


def close_to_others(path: Path) -> None:
    """Its owner alone may open a store: whoever reads one can lock SQLite's index of its log, and nobody could write."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).chmod(0o600)


def migrate(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Bring it to this version with a copy of what was beside it; what is newer is refused, not changed."""
    if version > VERSION:
        raise _newer(path, version)
    if version not in MIGRATIONS:
        raise _damaged(path, f"version {version} of a share was never made")
    backup = path.with_name(f"{path.name}.version-{version}.{time.strftime('%Y%m%d-%H%M%S')}")
    with contextlib.closing(sqlite3.connect(backup)) as copy:
        connection.backup(copy)
    backup.chmod(path.stat().st_mode & 0o777)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in range(
            schema_version(connection), VERSION
        ):  # 0 steps where another process was first
            for statement in MIGRATIONS[step]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def check(path: Path) -> str | None:
    """What is wrong with a store, read from end to end; None: nothing."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except sqlite3.DatabaseError as error:
            return str(error)
    return None if found == "ok" else str(found)


def _unusable(path: Path, error: sqlite3.Error) -> GpuyardError:
    return GpuyardError(
        f"no lease can be given: {error} ({path}); is the disk full, or the directory not yours to "
        "write? Running commands continue, and `gpuyard who` still works"
    )


def _newer(path: Path, version: int) -> GpuyardError:
    return GpuyardError(
        f"{path} was written by a newer gpuyard (store version {version}, this one knows {VERSION}); "
        "upgrade gpuyard to use it, nothing was changed"
    )


def _damaged(path: Path, why: str) -> GpuyardError:
    return GpuyardError(
        f"{path} can't be read ({why}); running work is not harmed, but no lease can be given until you "
        "run: gpuyard share recover"
    )
