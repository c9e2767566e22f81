"""Stores measurements in one SQLite file: each is added in its own transaction, so a crash loses none.

The file is checked before it is opened: a file that another program wrote, or a truncated one, is never changed.
"""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import too_many_values
from gpuyard.measure.kind import AnyRecord
from gpuyard.measure.record import Record
from gpuyard.measure.registry import RESULT_KINDS
from gpuyard.printable import make_printable
from gpuyard.sqlite_file import (
    BUSY_SECONDS,
    StoreFormat,
    enable_write_ahead_log,
    schema_version,
    sqlite_uri,
    transaction,
)

_HEADER_BYTES = 100
_FORMAT = StoreFormat(
    application_id=0x67707579,  # "gpuy"
    version=2,
    tables=(
        """CREATE TABLE measurements (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    created_at TEXT NOT NULL,
    kind TEXT NOT NULL,
    workload TEXT NOT NULL,
    document TEXT NOT NULL
) STRICT""",
        "CREATE INDEX measurements_by_key ON measurements (key)",
    ),
)
_COLUMNS = ["number", "id", "key", "created_at", "kind", "workload", "document"]


class NotStored(GpuyardError):
    """A record that could not be stored; `record` is the only copy."""

    def __init__(self, why: str, record: Record) -> None:
        super().__init__(f"{why}; the result is printed, but not stored")
        self.record = record


class ResultsStore:
    """The measurements in one file; processes can read and add at the same time.

    The first `add` creates the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reported_ids: set[str] = set()  # unreadable rows that were already reported

    def add(self, record: Record) -> None:
        """Store a record so that it survives a kill and a power loss; raise NotStored if that fails."""
        try:
            self._add(record)
        except GpuyardError as error:
            raise NotStored(str(error), record) from error

    def _add(self, record: Record) -> None:
        with self._connection(create=True) as connection, transaction(connection):
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

    def records(self, record_type: type[AnyRecord], workload: str | None = None) -> list[AnyRecord]:
        """Read all records of one type, or only those of one workload, oldest first."""
        where, values = "WHERE kind = ?", [_get_kind_name(record_type)]
        if workload is not None:
            where, values = f"{where} AND workload = ?", [*values, workload]
        records = self._read(f"{where} ORDER BY number", *values)
        return [record for record in records if isinstance(record, record_type)]

    def count_by_kind(self) -> dict[str, int]:
        """Return the number of records of each kind that has some, in the order of the kinds."""
        if not self.path.exists():
            return {}
        with self._connection(create=False) as connection:
            if not schema_version(connection):
                return {}  # another process is just creating it
            rows = connection.execute("SELECT kind, COUNT(*) FROM measurements GROUP BY kind")
            counts = dict(rows.fetchall())
        return {kind: counts[kind] for kind in RESULT_KINDS if kind in counts}

    def latest(self, record_type: type[AnyRecord], key: str) -> AnyRecord | None:
        """Read the newest record of one type with this key."""
        where = "WHERE kind = ? AND key = ? ORDER BY number DESC LIMIT 1"
        records = self._read(where, _get_kind_name(record_type), key)
        return next((record for record in records if isinstance(record, record_type)), None)

    def get(self, id_prefix: str) -> Record:
        """Return the record whose id starts with this; raise UserMistake if none or several do."""
        # a newer gpuyard may have stored kinds that this one does not know
        placeholders = ", ".join("?" * len(RESULT_KINDS))
        matches = self._read(
            f"WHERE kind IN ({placeholders}) AND substr(id, 1, ?) = ? ORDER BY number LIMIT 5",
            *RESULT_KINDS,
            str(len(id_prefix)),
            id_prefix,
        )
        if len(matches) == 1 and id_prefix:
            return matches[0]
        if not matches:
            raise UserMistake(
                f"no measurement in {self.path} has an id that starts with {id_prefix!r}; "
                "list them with: gpuyard results list"
            )
        raise UserMistake(
            f"several measurements have an id that starts with {id_prefix!r}: "
            f"{', '.join(record.id for record in matches)}; type more characters of the id"
        )

    def _read(self, where: str, *values: str) -> list[Record]:
        if not self.path.exists():
            return []
        with self._connection(create=False) as connection:
            if not schema_version(connection):
                return []  # another process is just creating it
            connection.text_factory = bytes  # damaged text in one row must not hide the next rows
            rows = connection.execute(
                # the clause is one of those above, never user input
                f"SELECT id, kind, document FROM measurements {where}",  # noqa: S608
                values,
            ).fetchall()
        records = []
        for id_, kind, document in rows:
            try:
                text = document.decode(errors="replace") if isinstance(document, bytes) else ""
                if (problem := too_many_values(text)) is not None:
                    self._report_unreadable(id_.decode(errors="replace"), problem)
                    continue
                records.append(RESULT_KINDS[kind.decode()].record.model_validate_json(document))
            except ValidationError as invalid:
                self._report_unreadable(id_.decode(errors="replace"), invalid.errors()[0]["msg"])
        return records

    def _report_unreadable(self, id_: str, why: str) -> None:
        if id_ not in self._reported_ids:
            self._reported_ids.add(id_)
            message = (
                f"gpuyard: skipped the measurement {id_} in {self.path}: it cannot be read: {why}"
            )
            sys.stderr.write(make_printable(message) + "\n")

    @contextlib.contextmanager
    def _connection(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        try:
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._check_file()
            with contextlib.closing(self._open(create=create)) as connection:
                self._prepare(connection, create=create)
                yield connection
        except sqlite3.OperationalError as error:
            raise GpuyardError(
                f"the results store {self.path} cannot be used: {error}; "
                "check that the disk is not full and that you may write to the directory"
            ) from error
        except sqlite3.DatabaseError as error:
            raise GpuyardError(
                f"{self.path} is not a readable results store ({error}) and was not changed; "
                "restore a copy, or move it away to start a new one"
            ) from error
        except OSError as error:
            raise GpuyardError(
                f"the results store {self.path} cannot be used: {error.strerror}"
            ) from error

    def _open(self, *, create: bool) -> sqlite3.Connection:
        if create:
            return sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        # a file that cannot change needs no lock, and a read-only mount allows none; a writable file is
        # opened for writing, so that the last reader removes the log files again
        writable = os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        mode = "mode=rw" if writable else "mode=ro"
        if not writable and not self._has_log():
            mode = "mode=ro&immutable=1"
        connection = self._connect(mode)
        connection.execute("PRAGMA query_only = 1")
        return connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = sqlite_uri(self.path, mode)
        return sqlite3.connect(uri, timeout=BUSY_SECONDS, isolation_level=None, uri=True)

    def _has_log(self) -> bool:
        """Return whether a write-ahead log has changes that are not in the file yet."""
        log = self.path.with_name(f"{self.path.name}-wal")
        return log.exists() and log.stat().st_size > 0

    def _check_file(self) -> None:
        """Raise if the file is another program's or truncated, before SQLite can change it."""
        had_log = self._has_log()
        try:
            with self.path.open("rb") as file:
                header = file.read(_HEADER_BYTES)
                size_bytes = os.fstat(file.fileno()).st_size
        except (FileNotFoundError, IsADirectoryError):
            return
        if len(header) < _HEADER_BYTES or not header.startswith(b"SQLite format 3\0"):
            if header:
                raise sqlite3.DatabaseError("file is not a database")
            return
        page_bytes = int.from_bytes(header[16:18], "big")
        page_bytes = 65536 if page_bytes == 1 else page_bytes
        # versions of SQLite that do not maintain the page count leave these two counters different
        # (sqlite.org/fileformat.html, section 1.3.7)
        has_page_count = header[24:28] == header[92:96]
        complete_bytes = page_bytes * int.from_bytes(header[28:32], "big")
        has_log = had_log or self._has_log()
        # a file with a log may be about to grow
        if has_page_count and size_bytes < complete_bytes and not has_log:
            raise GpuyardError(
                f"{self.path} is truncated ({size_bytes:,} of {complete_bytes:,} bytes) and was not "
                "changed; restore a copy, or move it away to start a new one"
            )
        # a file that is being written is only complete with its log; reading both changes neither
        with contextlib.closing(
            self._connect("mode=ro" if has_log else "mode=ro&immutable=1")
        ) as connection:
            application_id = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            columns = [row[1] for row in connection.execute("PRAGMA table_info(measurements)")]
        if not tables and application_id == 0:
            return  # another process is just creating it
        if application_id != _FORMAT.application_id or (tables and columns != _COLUMNS):
            raise GpuyardError(
                f"{self.path} is another program's database, not a results store; it was not changed"
            )

    def _prepare(self, connection: sqlite3.Connection, *, create: bool) -> None:
        if create and schema_version(connection) == 0:
            enable_write_ahead_log(connection)
            _FORMAT.create(connection)
        _FORMAT.check_version(connection, self.path)
        connection.execute("PRAGMA synchronous = FULL")


def _get_kind_name(record_type: type[Record]) -> str:
    return str(record_type.model_fields["kind"].default)
