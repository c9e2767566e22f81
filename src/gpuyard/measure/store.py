"""Measurements in one SQLite file: each is one transaction, so a crash loses none that was added.

A store is of version 1 as long as it holds training runs only, and of version 2 from its first bench of
links or rejected run on: a gpuyard that knows training only then says that it is too old.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.kind import AnyRecord
from gpuyard.measure.record import Record
from gpuyard.measure.registry import RESULT_KINDS
from gpuyard.measure.training.measurement import Measurement

SCHEMA_VERSION = 2
_TRAINING_ONLY = 1
_BUSY_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE measurements (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    created_at TEXT NOT NULL,
    kind TEXT NOT NULL,
    workload TEXT NOT NULL,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX measurements_by_key ON measurements (key);
"""


class ResultsStore:
    """Any number of processes may read and add at once; the file appears with the first `add`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: Record) -> None:
        """Keep it; when this returns, it survives a kill and a power cut."""
        with self._connection(create=True) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not isinstance(record, Measurement):
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute(
                "INSERT INTO measurements (id, key, created_at, kind, workload, document)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    record.id,
                    record.key,
                    record.created_at,
                    record.kind,
                    record.workload_name,
                    record.model_dump_json(),
                ),
            )
            connection.execute("COMMIT")

    def records(self, of: type[AnyRecord], workload: str | None = None) -> list[AnyRecord]:
        """All of one kind, or those of one workload, oldest first."""
        where, values = "WHERE kind = ?", [_kind(of)]
        if workload is not None:
            where, values = f"{where} AND workload = ?", [*values, workload]
        return [r for r in self._read(f"{where} ORDER BY number", *values) if isinstance(r, of)]

    def latest(self, of: type[AnyRecord], key: str) -> AnyRecord | None:
        """The last of one kind that was made with this key."""
        where = "WHERE kind = ? AND key = ? ORDER BY number DESC LIMIT 1"
        return next((r for r in self._read(where, _kind(of), key) if isinstance(r, of)), None)

    def get(self, id_prefix: str) -> Record:
        """The one record whose id starts so; raises UserMistake where none or several do."""
        # a newer gpuyard may have stored kinds that this one does not know
        known = ", ".join("?" * len(RESULT_KINDS))
        found = self._read(
            f"WHERE kind IN ({known}) AND substr(id, 1, ?) = ? ORDER BY number LIMIT 5",
            *RESULT_KINDS,
            str(len(id_prefix)),
            id_prefix,
        )
        if len(found) == 1 and id_prefix:
            return found[0]
        if not found:
            raise UserMistake(
                f"no measurement in {self.path} has an id that starts with {id_prefix!r}; "
                "list them with: gpuyard results list"
            )
        raise UserMistake(
            f"several measurements have an id that starts with {id_prefix!r}: "
            f"{', '.join(record.id for record in found)}; write more of it"
        )

    def _read(self, where: str, *values: str) -> list[Record]:
        if not self.path.exists():
            return []
        with self._connection(create=False) as connection:
            rows = connection.execute(
                # the clause is one of the few above, never a user's text
                f"SELECT kind, document FROM measurements {where}",  # noqa: S608
                values,
            ).fetchall()
        try:
            return [
                RESULT_KINDS[kind].record.model_validate_json(document) for kind, document in rows
            ]
        except ValidationError as invalid:
            raise GpuyardError(
                f"{self.path} holds a measurement that cannot be read "
                f"({invalid.errors()[0]['msg']}); nothing was changed"
            ) from invalid

    @contextlib.contextmanager
    def _connection(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        try:
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(
                sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as connection:
                self._prepare(connection)
                yield connection
        except sqlite3.OperationalError as error:
            raise GpuyardError(
                f"the results store {self.path} cannot be used: {error}; "
                "is the disk full, or the directory not yours to write?"
            ) from error
        except sqlite3.DatabaseError as error:
            raise GpuyardError(
                f"{self.path} is not a results store that can be read ({error}); it was left as it "
                "is: put a copy back, or move it away to start a new one"
            ) from error
        except OSError as error:
            raise GpuyardError(
                f"the results store {self.path} cannot be used: {error.strerror}"
            ) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = self._version(connection)
        if version == 0:
            _write_ahead(connection)
            connection.execute("BEGIN IMMEDIATE")
            version = self._version(connection)  # another process may have been first
            if version == 0:
                if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    connection.execute("ROLLBACK")
                    raise GpuyardError(
                        f"{self.path} is another program's database, not a results store; "
                        "it was left as it is"
                    )
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_TRAINING_ONLY}")
            connection.execute("COMMIT")
        if version > SCHEMA_VERSION:
            raise GpuyardError(
                f"{self.path} was written by a newer gpuyard (store version {version}, this one "
                f"knows {SCHEMA_VERSION}); upgrade gpuyard to use it, nothing was changed"
            )
        connection.execute("PRAGMA synchronous = FULL")

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _kind(of: type[Record]) -> str:
    return str(of.model_fields["kind"].default)


def _write_ahead(connection: sqlite3.Connection) -> None:
    # the switch does not wait for a busy file by itself (sqlite.org/wal.html, section 8)
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
