"""The base of every SQLite store: create a file with its tables, check its version, run transactions."""

import contextlib
import os
import sqlite3
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import GpuyardError

BUSY_SECONDS = 30.0
"""How long a writer waits for other writers."""
_RETRY_SECONDS = 0.01


@dataclass(frozen=True)
class StoreFormat:
    """The tables of one kind of store, and the numbers that identify its files."""

    application_id: int
    version: int
    tables: tuple[str, ...]

    def create(
        self,
        connection: sqlite3.Connection,
        fill: Callable[[sqlite3.Connection], None] = lambda _: None,
    ) -> None:
        """Create the tables in an empty file; keep the tables of a process that was faster.

        `fill` adds the first rows in the same transaction.
        """
        with transaction(connection):
            if schema_version(connection) != 0:
                return
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise sqlite3.DatabaseError("it is another program's database")
            for statement in self.tables:
                connection.execute(statement)
            fill(connection)
            connection.execute(f"PRAGMA application_id = {self.application_id}")
            connection.execute(f"PRAGMA user_version = {self.version}")

    def check_version(self, connection: sqlite3.Connection, path: Path) -> None:
        """Raise GpuyardError if an older or newer gpuyard wrote this file."""
        version = schema_version(connection)
        own = connection.execute("PRAGMA application_id").fetchone()[0] == self.application_id
        if own and version < self.version:
            raise GpuyardError(
                f"{path} was written by an older gpuyard (store version {version}, this one needs "
                f"{self.version}); move it away to start with an empty one, nothing was changed"
            )
        if version > self.version:
            raise GpuyardError(
                f"{path} was written by a newer gpuyard (store version {version}, this one knows "
                f"{self.version}); upgrade gpuyard to use it, nothing was changed"
            )


@contextlib.contextmanager
def transaction(
    connection: sqlite3.Connection, begin: Callable[[], object] | None = None
) -> Iterator[sqlite3.Connection]:
    """Commit everything at the end of the block, or nothing if it raises.

    `begin` replaces SQLite's own wait for the write lock.
    """
    if begin is None:
        connection.execute("BEGIN IMMEDIATE")
    else:
        begin()
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def create_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless there is one."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def enable_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log, so that readers and a writer don't wait for each other."""
    # the switch does not wait for a busy file by itself (sqlite.org/wal.html, section 8)
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)


def schema_version(connection: sqlite3.Connection) -> int:
    """Return SQLite's `user_version`: 0 if the file has no tables yet."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def sqlite_uri(path: Path, mode: str) -> str:
    """Return the URI that opens a file in this mode with `sqlite3.connect(…, uri=True)`."""
    return f"file:{urllib.parse.quote(str(path.absolute()))}?{mode}"
