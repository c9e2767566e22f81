"""Measurements in one SQLite file: each is one transaction, so a crash loses none that was added.

A store is of version 1 as long as it holds training runs only, and of version 2 from its first bench of
links or rejected run on: a gpuyard that knows training only then says that it is too old.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.collectives.records import CollectivesBench
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.relief.records import ReliefResult
from gpuyard.measure.storage.records import StorageBench
from gpuyard.measure.training.measurement import Measurement
from gpuyard.measure.training.rejection import Rejection

SCHEMA_VERSION = 2
_TRAINING_ONLY = 1
_BUSY_SECONDS = 30.0
_Stored = Measurement | LinkBench | CollectivesBench | Rejection | ReliefResult | StorageBench
_STORED: TypeAdapter[_Stored] = TypeAdapter(Annotated[_Stored, Field(discriminator="kind")])
_AnyKind = list[_Stored]  # the class below has a method called list
_Measurements = list[Measurement]
_LinkBenches = list[LinkBench]
_Rejections = list[Rejection]
_CollectivesBenches = list[CollectivesBench]
_Reliefs = list[ReliefResult]
_StorageBenches = list[StorageBench]
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

    def add(self, measurement: _Stored) -> None:
        """Keep it; when this returns, it survives a kill and a power cut."""
        with self._connection(create=True) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not isinstance(measurement, Measurement):
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute(
                "INSERT INTO measurements (id, key, created_at, kind, workload, document)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    measurement.id,
                    measurement.key,
                    measurement.created_at,
                    measurement.kind,
                    _workload(measurement),
                    measurement.model_dump_json(),
                ),
            )
            connection.execute("COMMIT")

    def find(self, key: str) -> Measurement | None:
        """The latest training run with this key."""
        found = self._read("WHERE kind = 'train' AND key = ? ORDER BY number DESC LIMIT 1", key)
        return next((m for m in found if isinstance(m, Measurement)), None)

    def get(self, id_prefix: str) -> _Stored:
        """The one measurement whose id starts so; raises UserMistake where none or several do."""
        found = self._read(
            "WHERE kind IN ('train', 'links', 'collectives', 'rejected', 'relief', 'storage')"
            " AND substr(id, 1, ?) = ? ORDER BY number LIMIT 5",
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
            f"{', '.join(m.id for m in found)}; write more of it"
        )

    def list(self, workload: str | None = None) -> _Measurements:
        """All training runs, or those of one workload, oldest first."""
        if workload is None:
            found = self._read("WHERE kind = 'train' ORDER BY number")
        else:
            found = self._read("WHERE kind = 'train' AND workload = ? ORDER BY number", workload)
        return [m for m in found if isinstance(m, Measurement)]

    def list_links(self) -> _LinkBenches:
        """All benches of links, oldest first."""
        found = self._read("WHERE kind = 'links' ORDER BY number")
        return [m for m in found if isinstance(m, LinkBench)]

    def list_rejected(self, workload: str | None = None) -> _Rejections:
        """Runs that were not credible, with their reasons, oldest first."""
        found = self._read("WHERE kind = 'rejected' ORDER BY number")
        rejected = [m for m in found if isinstance(m, Rejection)]
        return [r for r in rejected if workload in (None, r.measurement.workload)]

    def list_collectives(self) -> _CollectivesBenches:
        """All benches of collectives, oldest first."""
        found = self._read("WHERE kind = 'collectives' ORDER BY number")
        return [m for m in found if isinstance(m, CollectivesBench)]

    def list_reliefs(self, workload: str | None = None) -> _Reliefs:
        """All benches of remedies, oldest first."""
        found = self._read("WHERE kind = 'relief' ORDER BY number")
        reliefs = [m for m in found if isinstance(m, ReliefResult)]
        return [r for r in reliefs if workload in (None, r.workload)]

    def list_storage(self) -> _StorageBenches:
        """All benches of storage, oldest first."""
        found = self._read("WHERE kind = 'storage' ORDER BY number")
        return [m for m in found if isinstance(m, StorageBench)]

    def _read(self, where: str, *values: str) -> _AnyKind:
        if not self.path.exists():
            return []
        with self._connection(create=False) as connection:
            rows = connection.execute(
                # the clause is one of the few above, never a user's text
                f"SELECT document FROM measurements {where}",  # noqa: S608
                values,
            ).fetchall()
        try:
            return [_STORED.validate_json(document) for (document,) in rows]
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


def _workload(stored: _Stored) -> str:
    match stored:
        case Measurement() | ReliefResult():
            return stored.workload
        case Rejection():
            return stored.measurement.workload
    return ""


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
