"""The jobs of one user on this machine, in SQLite: what was submitted, and how far each is."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.job import FINAL, Handle, Job, JobState
from gpuyard.sqlite_file import BUSY_SECONDS, schema_version

if TYPE_CHECKING:
    from gpuyard.jobs.known_work import KnownWork

_APPLICATION = 0x67706A62
_VERSION = 1
_TABLES = (
    """CREATE TABLE jobs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        uuid TEXT NOT NULL UNIQUE,
        document TEXT NOT NULL,
        environment TEXT NOT NULL,
        known TEXT NOT NULL,
        measured INTEGER NOT NULL DEFAULT 0,
        state TEXT NOT NULL DEFAULT 'queued',
        cancelled REAL,
        starts INTEGER NOT NULL DEFAULT 0,
        gpus INTEGER,
        lost INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0,
        resized INTEGER NOT NULL DEFAULT 0,
        stopping TEXT,
        exit_status INTEGER,
        reason TEXT NOT NULL DEFAULT '',
        started REAL,
        ended REAL
    )""",
    "CREATE INDEX open_jobs ON jobs (state)",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)
_COLUMNS = (
    "number, uuid, document, environment, known, measured, state, cancelled, starts, gpus, lost, failed, resized, stopping, "
    "exit_status, reason, started, ended"
)
_OPEN = "state IN ('queued', 'running')"


@dataclass(frozen=True)
class StoredJob:
    """A job as the store has it."""

    number: int
    uuid: str
    document: str
    environment: str
    known: str
    measured: int
    """Of how many starts the job's reports were kept as measurements."""
    state: JobState
    cancelled: float | None
    """When somebody asked for its end."""
    starts: int
    """How often it was started; the files of each start are kept."""
    gpus: int | None
    """For how many GPUs it was started last."""
    lost: int
    """How often it was started again because it was lost, and below, because it failed."""
    failed: int
    resized: int
    """How often it was stopped to go on with another number of GPUs."""
    stopping: str | None
    """Why its present start is being stopped, where that is not its end: it goes on after it."""
    exit_status: int | None
    reason: str
    started: float | None
    ended: float | None

    @property
    def handle(self) -> Handle:
        return Handle("local", str(self.number))

    @property
    def restarts(self) -> int:
        """It was started again so often, for whatever reason."""
        return self.lost + self.failed + self.resized

    @property
    def in_progress(self) -> bool:
        """Its last start is not known to be over."""
        return self.gpus is not None and self.state not in FINAL

    @property
    def job(self) -> Job:
        return _job(self.document)

    @property
    def known_work(self) -> "KnownWork":
        return _known_work(self.known)

    @property
    def finished_starts(self) -> int:
        """Starts that are over."""
        return self.starts - 1 if self.in_progress else self.starts


@lru_cache(maxsize=10_000)  # a runner asks again and again
def _job(document: str) -> Job:
    return Job.from_document(json.loads(document))


@lru_cache(maxsize=1000)
def _known_work(document: str) -> "KnownWork":
    from gpuyard.jobs.known_work import KnownWork

    return KnownWork.from_document(json.loads(document))


class Store:
    """One connection; a context manager closes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._sentences():
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, job: Job, environment: Mapping[str, str], known: "KnownWork") -> Handle:
        """Written to the disk when this returns."""
        with self.transaction():
            done = self._connection.execute(
                "INSERT INTO jobs (uuid, document, environment, known) VALUES (?, ?, ?, ?)",
                (
                    job.uuid,
                    json.dumps(job.document()),
                    json.dumps(dict(environment)),
                    json.dumps(known.document()),
                ),
            )
        return Handle("local", str(done.lastrowid))

    def row(self, handle: Handle) -> StoredJob:
        """Raises where there is none."""
        found = self._select("number = ?", handle.id) if handle.id.isdigit() else []
        if not found or str(found[0].handle) != str(handle):
            raise UserMistake(f"there is no job {handle}; `gpuyard queue --all` lists them")
        return found[0]

    def rows(self) -> Sequence[StoredJob]:
        """All, in the order of their submission."""
        return self._select("1")

    def open_rows(self) -> Sequence[StoredJob]:
        """Those that have not ended."""
        return self._select(_OPEN)

    def unmeasured_rows(self) -> Sequence[StoredJob]:
        """Those with starts that are over, of which nothing was kept yet."""
        return [
            row for row in self._select("measured < starts") if row.measured < row.finished_starts
        ]

    def note_measured(self, row: StoredJob, starts: int) -> None:
        """The reports of so many starts are kept, or there were none."""
        with self._sentences():
            self._connection.execute(
                "UPDATE jobs SET measured = ? WHERE number = ?", (starts, row.number)
            )

    def environment(self, row: StoredJob) -> dict[str, str]:
        """Of whoever submitted it."""
        return dict(json.loads(row.environment))

    def change(self, row: StoredJob, **values: Any) -> bool:
        """Set columns if the job is still as it was read; False: somebody was faster, so look again."""
        names = ", ".join(f"{name} = ?" for name in values)
        with self._sentences():
            done = self._connection.execute(
                f"UPDATE jobs SET {names} WHERE number = ? AND state = ? AND starts = ?"  # noqa: S608 - our own names
                " AND gpus IS ? AND cancelled IS ? AND stopping IS ?",
                (
                    *values.values(),
                    *(row.number, row.state, row.starts, row.gpus, row.cancelled, row.stopping),
                ),
            )
        return done.rowcount == 1

    def setting(self, name: str) -> str | None:
        with self._sentences():
            found = self._connection.execute(
                "SELECT value FROM settings WHERE name = ?", (name,)
            ).fetchone()
        return None if found is None else str(found[0])

    def seconds_set(self, name: str) -> float | None:
        """None where the policy's own are meant."""
        text = self.setting(name)
        return float(text) if text else None

    def set(self, name: str, value: str) -> None:
        with self._sentences():
            self._connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self._sentences():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _select(self, where: str, *values: object) -> list[StoredJob]:
        with self._sentences():
            found = self._connection.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE {where} ORDER BY number",  # noqa: S608 - our own words
                values,
            )
            return [StoredJob(*row) for row in found]

    def _prepare(self) -> None:
        self.path.chmod(0o600)  # environments have secrets
        self._connection.execute("PRAGMA synchronous = FULL")
        if schema_version(self._connection) == 0:
            with self.transaction():
                if schema_version(self._connection) == 0:  # else another process was first
                    for statement in _TABLES:
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    self._connection.execute(f"PRAGMA user_version = {_VERSION}")
        if schema_version(self._connection) > _VERSION:
            raise GpuyardError(
                f"{self.path} was written by a newer gpuyard; use that one, or another $GPUYARD_HOME"
            )

    @contextlib.contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise GpuyardError(f"the jobs in {self.path} can't be used: {error}") from error
        except OSError as error:
            raise GpuyardError(f"{self.path} can't be used: {error.strerror}") from error
