"""Measurements in one SQLite file: each is one transaction, so a crash loses none that was added.

A store is of version 1 as long as it holds training runs only, and of version 2 from its first bench of
links or rejected run on: a gpuyard that knows training only then says that it is too old.

A file is looked at before it is opened for anything: what another program wrote, or what is cut off, stays
as it is, byte for byte.
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
from gpuyard.measure.training.records import Measurement
from gpuyard.printable import printable
from gpuyard.sqlite_file import BUSY_SECONDS, address, schema_version, write_ahead

SCHEMA_VERSION = 2
_TRAINING_ONLY = 1
_APPLICATION = 0x67707579  # "gpuy"; stores that were made before it was set have 0
_HEADER_BYTES = 100
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
_COLUMNS = ["number", "id", "key", "created_at", "kind", "workload", "document"]


class NotStored(GpuyardError):
    """What was measured and could not be kept; whoever catches this has the only copy."""

    def __init__(self, why: str, record: Record) -> None:
        super().__init__(f"{why}; what was measured is shown, and kept nowhere")
        self.record = record


class ResultsStore:
    """Any number of processes may read and add at once; the file appears with the first `add`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._named: set[str] = set()  # rows that can't be read and were said to be so

    def add(self, record: Record) -> None:
        """Keep it; when this returns, it survives a kill and a power cut. Raises NotStored."""
        try:
            self._add(record)
        except GpuyardError as error:
            raise NotStored(str(error), record) from error

    def _add(self, record: Record) -> None:
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
            if not schema_version(connection):
                return []  # another process has just begun to make it
            connection.text_factory = bytes  # damaged text is not to stop the rows after it
            rows = connection.execute(
                # the clause is one of the few above, never a user's text
                f"SELECT id, kind, document FROM measurements {where}",  # noqa: S608
                values,
            ).fetchall()
        found = []
        for id_, kind, document in rows:
            try:
                text = document.decode(errors="replace") if isinstance(document, bytes) else ""
                if (why := too_many_values(text)) is not None:
                    self._name(id_.decode(errors="replace"), why)
                    continue
                found.append(RESULT_KINDS[kind.decode()].record.model_validate_json(document))
            except ValidationError as invalid:
                self._name(id_.decode(errors="replace"), invalid.errors()[0]["msg"])
        return found

    def _name(self, damaged: str, why: str) -> None:
        if damaged not in self._named:
            self._named.add(damaged)
            words = f"gpuyard: the measurement {damaged} in {self.path} can't be read and is left out: {why}"
            sys.stderr.write(printable(words) + "\n")

    @contextlib.contextmanager
    def _connection(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        try:
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._look()
            with contextlib.closing(self._open(create=create)) as connection:
                self._prepare(connection, create=create)
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

    def _open(self, *, create: bool) -> sqlite3.Connection:
        if create:
            return sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        # a file that can't change needs no lock, and on a read-only mount there can be none; one that can
        # change is opened so that the last reader takes the lock's files away again
        writable = os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        mode = "mode=rw" if writable else "mode=ro"
        if not writable and not self._has_log():
            mode = "mode=ro&immutable=1"
        connection = self._connect(mode)
        connection.execute("PRAGMA query_only = 1")
        return connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        place = address(self.path, mode)
        return sqlite3.connect(place, timeout=BUSY_SECONDS, isolation_level=None, uri=True)

    def _has_log(self) -> bool:
        """What is not in the file yet is in a log beside it."""
        log = self.path.with_name(f"{self.path.name}-wal")
        return log.exists() and log.stat().st_size > 0

    def _look(self) -> None:
        """Raise where the file is not ours, or not whole, before SQLite changes anything about it."""
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
        counted = (
            header[24:28] == header[92:96]
        )  # else an old SQLite wrote, which does not count pages
        whole_bytes = page_bytes * int.from_bytes(header[28:32], "big")
        # while there is a log, the file may be about to grow
        if counted and size_bytes < whole_bytes and not (had_log or self._has_log()):
            raise GpuyardError(
                f"{self.path} is cut off: {size_bytes:,} of {whole_bytes:,} bytes are there; it was left "
                "as it is: put a copy back, or move it away to start a new one"
            )
        # without its log, a file that is being written is not whole; reading with it changes neither
        logged = had_log or self._has_log()
        with contextlib.closing(
            self._connect("mode=ro" if logged else "mode=ro&immutable=1")
        ) as connection:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            columns = [row[1] for row in connection.execute("PRAGMA table_info(measurements)")]
        if application not in (0, _APPLICATION) or (tables and columns != _COLUMNS):
            raise GpuyardError(
                f"{self.path} is another program's database, not a results store; it was left as it is"
            )

    def _prepare(self, connection: sqlite3.Connection, *, create: bool) -> None:
        version = schema_version(connection)
        if version == 0 and create:
            write_ahead(connection)
            connection.execute("BEGIN IMMEDIATE")
            version = schema_version(connection)  # another process may have been first
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_TRAINING_ONLY}")
            connection.execute("COMMIT")
        if version > SCHEMA_VERSION:
            raise GpuyardError(
                f"{self.path} was written by a newer gpuyard (store version {version}, this one "
                f"knows {SCHEMA_VERSION}); upgrade gpuyard to use it, nothing was changed"
            )
        connection.execute("PRAGMA synchronous = FULL")


def _kind(of: type[Record]) -> str:
    return str(of.model_fields["kind"].default)
