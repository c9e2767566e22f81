"""The only record of a user's jobs on this machine: one SQLite file with a row per job and a row per start.

Commands and the runner write it, and so does the supervisor of each start. Every change is a transaction.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.job import FINAL, Handle, Job, JobState, JobSummary
from gpuyard.sqlite_file import (
    BUSY_SECONDS,
    StoreFormat,
    create_private,
    schema_version,
    transaction,
)

if TYPE_CHECKING:
    from gpuyard.jobs.work_estimate import WorkEstimate

Outcome = Literal["exited", "time_limit", "evicted", "refused", "stopped", "lost"]
"""How a start ended.

`exited`: its command ended by itself. `time_limit`: it was stopped at its time limit. `evicted`: its GPUs were reserved.
`refused`: its command could not be started. `stopped`: its supervisor was stopped before it had GPUs. `lost`: its
processes are gone and left no exit status.
"""

_OPEN = "state IN ('queued', 'running')"
_IN_PROGRESS = f"{_OPEN} AND gpus IS NOT NULL"
_UNMEASURED = "measured_starts < start_count"
_TABLES = (
    """CREATE TABLE jobs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        uuid TEXT NOT NULL UNIQUE,
        job_json TEXT NOT NULL,
        estimate_json TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'queued',
        reason TEXT NOT NULL DEFAULT '',
        cancel_requested REAL,
        stop_reason TEXT,
        stop_signaled REAL,
        start_count INTEGER NOT NULL DEFAULT 0,
        gpus INTEGER,
        lost_count INTEGER NOT NULL DEFAULT 0,
        failed_count INTEGER NOT NULL DEFAULT 0,
        resized_count INTEGER NOT NULL DEFAULT 0,
        measured_starts INTEGER NOT NULL DEFAULT 0,
        exit_status INTEGER,
        loss REAL,
        started REAL,
        ended REAL
    )""",
    # each query that runs all day has an index of only its results, so that history costs nothing
    f"CREATE INDEX open_jobs ON jobs (number) WHERE {_OPEN}",
    f"CREATE INDEX jobs_in_progress ON jobs (number) WHERE {_IN_PROGRESS}",
    f"CREATE INDEX unmeasured_jobs ON jobs (number) WHERE {_UNMEASURED}",
    "CREATE INDEX ended_jobs ON jobs (ended) WHERE ended IS NOT NULL",
    # apart from the jobs, whose rows would be several times as long
    """CREATE TABLE environments (
        job INTEGER PRIMARY KEY REFERENCES jobs (number),
        environment_json TEXT NOT NULL
    )""",
    """CREATE TABLE starts (
        job INTEGER NOT NULL REFERENCES jobs (number),
        number INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        pid INTEGER,
        process_start INTEGER,
        lease TEXT NOT NULL DEFAULT '',
        started REAL,
        outcome TEXT,
        exit_status INTEGER,
        reason TEXT NOT NULL DEFAULT '',
        ended REAL,
        PRIMARY KEY (job, number)
    ) WITHOUT ROWID""",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)
_FORMAT = StoreFormat(application_id=0x67706A62, version=4, tables=_TABLES)


@dataclass(frozen=True)
class StoredStart:
    """One start of a job, as its supervisor has committed it."""

    job: int
    number: int
    """Counts from 1 for each job."""
    gpus: int
    pid: int | None = None
    """Pid of the supervisor; None until it has begun, and before that nothing of the job runs."""
    process_start: int | None = None
    """With the pid it identifies the supervisor, even if the pid is used again."""
    lease: str = ""
    """Id of its lease, from the moment that the supervisor has a place in the lease queue."""
    started: float | None = None
    """When it got its GPUs."""
    outcome: Outcome | None = None
    """None until it has ended."""
    exit_status: int | None = None
    """None if its command never ran, or if its exit status is unknown."""
    reason: str = ""
    ended: float | None = None


@dataclass(frozen=True)
class StoredJob:
    """A job with its latest start."""

    number: int
    uuid: str
    job_json: str
    estimate_json: str
    state: JobState
    reason: str
    cancel_requested: float | None
    """When the user asked to cancel it."""
    stop_reason: str | None
    """Why its present start is being stopped although the job continues later."""
    stop_signaled: float | None
    """When its processes got the signal for that; None: if they end with status 0, the job is done."""
    start_count: int
    gpus: int | None
    """The GPUs of its latest start; None while the next start is undecided."""
    lost_count: int
    """How many times it was started again because it was lost."""
    failed_count: int
    resized_count: int
    """How many times it was stopped to continue with another number of GPUs."""
    measured_starts: int
    """For how many starts the reports were kept as measurements."""
    exit_status: int | None
    loss: float | None
    """The last loss that its measured starts reported."""
    started: float | None
    """When it first got GPUs."""
    ended: float | None
    past_gpu_seconds: float
    """GPU time of the starts that have ended."""
    start: StoredStart | None

    @property
    def handle(self) -> Handle:
        return Handle("local", str(self.number))

    @property
    def restarts(self) -> int:
        return self.lost_count + self.failed_count + self.resized_count

    @property
    def in_progress(self) -> bool:
        """True if its latest start may still have living processes."""
        return self.gpus is not None and self.state not in FINAL

    @property
    def finished_starts(self) -> int:
        return self.start_count - 1 if self.in_progress else self.start_count

    @property
    def job(self) -> Job:
        return _parse_job(self.job_json)

    @property
    def summary(self) -> JobSummary:
        """The facts for a list of jobs, which need no import of the whole spec."""
        return JobSummary.from_document(json.loads(self.job_json))

    @property
    def has_curve(self) -> bool:
        """True if its scaling curve was known when it was submitted; `estimate` takes long to import."""
        return json.loads(self.estimate_json)["curve"] is not None

    @property
    def samples(self) -> float | None:
        """All of its work, if that was known when it was submitted."""
        samples: float | None = json.loads(self.estimate_json)["samples"]
        return samples

    @property
    def estimate(self) -> "WorkEstimate":
        return _parse_estimate(self.estimate_json)

    def gpu_seconds(self, now: float) -> float:
        """Return the GPU time of all starts, including the one that runs."""
        start = self.start
        if start is None or start.started is None or start.ended is not None:
            return self.past_gpu_seconds
        return self.past_gpu_seconds + start.gpus * max(0.0, now - start.started)


_JOB_COLUMNS = tuple(column.name for column in fields(StoredJob))[:-2]
_START_COLUMNS = tuple(column.name for column in fields(StoredStart))
_PAST_GPU_SECONDS = (
    "(SELECT COALESCE(SUM(gpus * MAX(0, ended - started)), 0) FROM starts WHERE job = jobs.number)"
)
_SELECT = (
    f"SELECT {', '.join(f'jobs.{name}' for name in _JOB_COLUMNS)}, {_PAST_GPU_SECONDS}, "  # noqa: S608 - our own names
    f"{', '.join(f'latest.{name}' for name in _START_COLUMNS)} FROM jobs "
    "LEFT JOIN starts AS latest ON latest.job = jobs.number AND latest.number = jobs.start_count"
)


@lru_cache(maxsize=10_000)  # the runner reads the same jobs several times per second
def _parse_job(text: str) -> Job:
    return Job.from_document(json.loads(text))


@lru_cache(maxsize=1000)
def _parse_estimate(text: str) -> "WorkEstimate":
    from gpuyard.jobs.work_estimate import WorkEstimate

    return WorkEstimate.from_document(json.loads(text))


class Store:
    """One connection to the store, closed by its context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._describe_errors():
            create_private(path)  # environments contain secrets
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                self._connection.execute("PRAGMA synchronous = FULL")
                if schema_version(self._connection) == 0:
                    _FORMAT.create(self._connection)
                _FORMAT.check_version(self._connection, path)
            except BaseException:
                self._connection.close()
                raise

    @classmethod
    def open_existing(cls, path: Path) -> "Store":
        """Open a store, or raise UserMistake if no job was ever submitted."""
        if not path.exists():
            raise UserMistake(f"no jobs found: {path} does not exist; submit one first")
        return cls(path)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the block at its end, or none if it raises."""
        with self._describe_errors(), transaction(self._connection):
            yield

    def add_job(self, job: Job, environment: Mapping[str, str], estimate: "WorkEstimate") -> Handle:
        """Queue a job; it is on disk when this returns."""
        job_json, environment_json, estimate_json = (
            json.dumps(value) for value in (job.document(), environment, estimate.document())
        )
        with self.transaction():
            cursor = self._connection.execute(
                "INSERT INTO jobs (uuid, job_json, estimate_json) VALUES (?, ?, ?)",
                (job.uuid, job_json, estimate_json),
            )
            self._connection.execute(
                "INSERT INTO environments VALUES (?, ?)", (cursor.lastrowid, environment_json)
            )
        return Handle("local", str(cursor.lastrowid))

    def job(self, handle: Handle) -> StoredJob:
        """Return the job, or raise UserMistake if it does not exist."""
        jobs = self._select("jobs.number = ?", handle.id) if handle.id.isdigit() else []
        if not jobs or str(jobs[0].handle) != str(handle):
            raise UserMistake(f"job {handle} not found; `gpuyard queue --all` lists your jobs")
        return jobs[0]

    def environment(self, job: StoredJob) -> dict[str, str]:
        """Return the environment of the process that submitted a job."""
        row = self._query("SELECT environment_json FROM environments WHERE job = ?", job.number)
        return dict(json.loads(row[0][0]))

    def revision(self) -> tuple[int, int]:
        """Return a value that changes with every commit of this or another process; reading it is cheap."""
        (version,) = self._query("PRAGMA data_version")[0]
        return version, self._connection.total_changes

    def jobs(self) -> Sequence[StoredJob]:
        """Return all jobs in the order of their submission."""
        return self._select("1")

    def open_jobs(self) -> Sequence[StoredJob]:
        """Return the jobs that have not ended, in the order of their submission."""
        return self._select_indexed(_OPEN)

    def has_open_jobs(self) -> bool:
        return bool(self._query(f"SELECT 1 FROM jobs WHERE {_OPEN} LIMIT 1"))  # noqa: S608 - our own names

    def jobs_in_progress(self) -> Sequence[StoredJob]:
        """Return the jobs whose latest start may still have living processes."""
        return self._select_indexed(_IN_PROGRESS)

    def ended_jobs(self, count: int) -> Sequence[StoredJob]:
        """Return the jobs that ended last, in the order of their submission."""
        rows = self._query(
            "SELECT number FROM jobs WHERE ended IS NOT NULL ORDER BY ended DESC LIMIT ?", count
        )
        jobs = [job for (number,) in rows for job in self._select("jobs.number = ?", number)]
        return sorted(jobs, key=lambda job: job.number)

    def find_ended_before(self, timestamp: float, limit: int) -> list[int]:
        """Return the numbers of the jobs that ended before a time and were measured, oldest first (-1: all)."""
        rows = self._query(
            f"SELECT number FROM jobs WHERE ended < ? AND NOT {_OPEN} AND NOT {_UNMEASURED}"  # noqa: S608 - our own names
            " ORDER BY ended LIMIT ?",
            *(timestamp, limit),
        )
        return [number for (number,) in rows]

    def delete_job(self, number: int) -> None:
        """Forget a job that has ended; its number is never used again."""
        with self.transaction():
            for table, column in (("starts", "job"), ("environments", "job"), ("jobs", "number")):
                self._connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))  # noqa: S608 - our own names

    def unmeasured_jobs(self) -> Sequence[StoredJob]:
        """Return the jobs with finished starts whose reports were not kept as measurements yet."""
        jobs = self._select_indexed(_UNMEASURED)
        return [job for job in jobs if job.measured_starts < job.finished_starts]

    def update_job(self, job: StoredJob, **values: Any) -> bool:
        """Set columns if the job is still as it was read.

        Return False if another process changed it first; then read it again.
        """
        names = ", ".join(f"{name} = ?" for name in values)
        with self._describe_errors():
            cursor = self._connection.execute(
                f"UPDATE jobs SET {names} WHERE number = ? AND state = ? AND start_count = ?"  # noqa: S608 - our own names
                " AND gpus IS ? AND cancel_requested IS ? AND stop_reason IS ?",
                (
                    *values.values(),
                    *(job.number, job.state, job.start_count, job.gpus),
                    *(job.cancel_requested, job.stop_reason),
                ),
            )
        return cursor.rowcount == 1

    def add_start(self, job: StoredJob, gpus: int) -> StoredStart | None:
        """Add the job's next start; return None if another process changed the job first."""
        start = StoredStart(job.number, job.start_count + 1, gpus)
        with self.transaction():
            if not self.update_job(job, start_count=start.number, gpus=gpus):
                return None
            self.save_start(start)
        return start

    def save_start(self, start: StoredStart) -> None:
        """Write all columns of a start, so that a later write makes up for one that failed."""
        with self._describe_errors():
            self._connection.execute(
                f"INSERT OR REPLACE INTO starts ({', '.join(_START_COLUMNS)}) "  # noqa: S608 - our own names
                f"VALUES ({', '.join('?' for _ in _START_COLUMNS)})",
                [getattr(start, name) for name in _START_COLUMNS],
            )

    def setting(self, name: str) -> str | None:
        rows = self._query("SELECT value FROM settings WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def set_setting(self, name: str, value: str) -> None:
        self._query("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, value)

    def _select_indexed(self, condition: str) -> list[StoredJob]:
        """Return the jobs in the index with this condition; the join has other columns of the same names."""
        return self._select(f"jobs.number IN (SELECT number FROM jobs WHERE {condition})")  # noqa: S608 - our own names

    def _select(self, where: str, *values: object) -> list[StoredJob]:
        rows = self._query(f"{_SELECT} WHERE {where} ORDER BY jobs.number", *values)
        split = len(_JOB_COLUMNS) + 1
        jobs = []
        for row in rows:
            start = None if row[split] is None else StoredStart(*row[split:])
            columns: list[Any] = [*row[:split], start]
            jobs.append(StoredJob(*columns))
        return jobs

    def _query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._describe_errors():
            return self._connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def _describe_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise GpuyardError(f"the job store {self.path} cannot be used: {error}") from error
        except OSError as error:
            raise GpuyardError(f"{self.path} cannot be used: {error.strerror}") from error
