"""Everything that a share keeps on disk: its configuration, tables, lease locks, and control groups.

With synchronous=FULL, a transaction is on disk before it is acknowledged or visible to anyone.
"""

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share import processes
from gpuyard.share.calendar import Calendar
from gpuyard.share.caller import Caller, groups_of
from gpuyard.share.cgroup import Cgroups
from gpuyard.share.clock import Clock
from gpuyard.share.config import read_config
from gpuyard.share.locks import LOCKS, Locks
from gpuyard.share.models import (
    LIST_FIELDS,
    MAX_COMMAND_CHARACTERS,
    RESERVATION,
    WHOLE,
    Lease,
    LeaseRequest,
    Reservation,
)
from gpuyard.sqlite_file import (
    BUSY_SECONDS,
    StoreFormat,
    create_private,
    enable_write_ahead_log,
    schema_version,
    sqlite_uri,
    transaction,
)

DATABASE = "leases.sqlite"
MAX_SILENCE_SECONDS = 20.0
"""A client that has not asked for so long would not claim its GPUs. Usually, clients ask every second."""
_RETRY_SECONDS = 0.0005
_WAKE_SECONDS = 3.0  # wait for the write lock before checking whether its holder is suspended

_TABLES = (
    """CREATE TABLE leases (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    "group" TEXT NOT NULL,
    pid INTEGER NOT NULL,
    process_start INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    command TEXT NOT NULL,
    project TEXT NOT NULL,
    count INTEGER NOT NULL,
    requested_gpus TEXT NOT NULL,
    parts INTEGER NOT NULL,
    seconds REAL,
    requested_at REAL NOT NULL,
    gpus TEXT NOT NULL DEFAULT '[]',
    start REAL,
    start_boot REAL,
    until_boot REAL,
    "end" REAL,
    end_reason TEXT,
    priority INTEGER NOT NULL DEFAULT 0,
    idle_since_boot REAL,
    utilization_sum REAL NOT NULL DEFAULT 0,
    utilization_samples INTEGER NOT NULL DEFAULT 0,
    even_if_busy INTEGER NOT NULL DEFAULT 0,
    job TEXT NOT NULL DEFAULT '',
    stop_reason TEXT
) STRICT""",
    "CREATE INDEX living_leases ON leases (number) WHERE end_reason IS NULL",
    'CREATE INDEX ended_leases ON leases ("end") WHERE end_reason IS NOT NULL',
    # only current holds: the rows of a lease are deleted when it ends
    f"""CREATE TABLE holds (
    lease INTEGER NOT NULL REFERENCES leases (number),
    gpu INTEGER NOT NULL CHECK (gpu >= 0),
    parts INTEGER NOT NULL CHECK (parts > 0 AND parts <= {WHOLE}),
    PRIMARY KEY (lease, gpu)
) STRICT""",
    f"CREATE UNIQUE INDEX one_holder ON holds (gpu) WHERE parts = {WHOLE}",
    *(
        f"""CREATE TRIGGER never_more_than_whole_at_{event} AFTER {event} ON holds
WHEN (SELECT SUM(parts) FROM holds WHERE gpu = NEW.gpu) > {WHOLE}
BEGIN SELECT RAISE(ABORT, 'this GPU is already held'); END"""  # noqa: S608 - only constants of this file
        for event in ("INSERT", "UPDATE")
    ),
    """CREATE TABLE reservations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0),
    requested_gpus TEXT NOT NULL,
    gpus TEXT NOT NULL,
    start REAL NOT NULL,
    "end" REAL
) STRICT""",
    'CREATE INDEX reservations_by_end ON reservations ("end")',
)

_LEASE_COLUMNS = ", ".join(f'"{name}"' for name in Lease.__dataclass_fields__)
_RESERVATION_COLUMNS = ", ".join(f'"{name}"' for name in Reservation.__dataclass_fields__)

FORMAT = StoreFormat(application_id=0x67707973, version=4, tables=_TABLES)


class Store:
    """The open files of a share, and queries of its tables; one connection, used by one thread at a time."""

    def __init__(
        self, directory: Path, *, clock: Clock | None = None, read_only: bool = False
    ) -> None:
        self.directory = directory
        self.path = directory / DATABASE
        self.clock = clock or Clock()
        self.config = read_config(directory)
        self.config.check_machine(directory, self.clock.boot_id)
        self.locks = Locks(directory / LOCKS)
        self.cgroups = Cgroups(directory)
        self.busy: Mapping[int, str] = {}
        """GPUs that somebody uses without a lease, as far as a broker has looked, and who that is."""
        with self._describe_errors():
            self.connection = self._open_read_only() if read_only else self._open()
            self._file = self.path.stat()

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit everything at the end of the block, or nothing. A commit survives a kill and a power cut."""
        with self._describe_errors(), transaction(self.connection, self._begin):
            self._check_not_replaced()
            yield self.connection

    def select(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        with self._describe_errors():
            return self.connection.execute(statement, values).fetchall()

    def select_leases(self, condition: str, *values: object, limit: int = -1) -> list[Lease]:
        """Return leases, oldest first; `limit` -1: all of them."""
        rows = self.select(
            # the condition is a constant of this package, never a user's text
            f"SELECT {_LEASE_COLUMNS} FROM leases WHERE {condition} ORDER BY number LIMIT ?",  # noqa: S608
            (*values, limit),
        )
        return [Lease.from_row(row) for row in rows]

    def active_leases(self) -> list[Lease]:
        """Return leases that are held or in the queue."""
        return self.select_leases("end_reason IS NULL")

    def claimable_requests(self, active: Sequence[Lease]) -> list[Lease]:
        """Return the requests whose clients still ask for their GPUs. The others would only block the queue."""
        earliest = self.clock.boot() - MAX_SILENCE_SECONDS
        return [
            lease
            for lease in active
            if not lease.held
            and self.locks.asked_at(lease.id) > earliest
            and not processes.is_stopped(lease.pid)
        ]

    def held_leases(self) -> list[Lease]:
        return [lease for lease in self.active_leases() if lease.held]

    def find_lease(self, lease_id: str) -> Lease:
        """Return a lease that is held or in the queue; raise UserMistake if there is none."""
        leases = self.select_leases("id = ? AND end_reason IS NULL", lease_id)
        if not leases:
            raise lease_not_found(lease_id)
        return leases[0]

    def find_own_lease(self, caller: Caller, lease_id: str) -> Lease:
        """Return a lease of the caller; raise GpuyardError if it belongs to another user."""
        lease = self.find_lease(lease_id)
        if caller.uid != lease.uid:
            raise GpuyardError(f"lease {lease_id} belongs to {lease.user}, not to you")
        return lease

    def reservations(self) -> list[Reservation]:
        """Return all reservations and drains that are not over, by start."""
        rows = self.select(
            f"SELECT {_RESERVATION_COLUMNS} FROM reservations"  # noqa: S608 - our own columns
            ' WHERE "end" IS NULL OR "end" > ? ORDER BY "start", number',
            (self.clock.wall(),),
        )
        return [Reservation.from_row(row) for row in rows]

    def calendar(self, *, with_drains: bool = True) -> Calendar:
        """Return the calendar of all reservations and busy GPUs on the clock of leases."""
        reservations = [
            reservation
            for reservation in self.reservations()
            if with_drains or reservation.kind == RESERVATION
        ]
        busy = Calendar.from_busy(self.busy if with_drains else ())
        if not reservations:
            return busy
        offset = self.clock.boot() - self.clock.wall()
        return Calendar(busy.bookings + Calendar.from_reservations(reservations, offset).bookings)

    def insert_request(
        self,
        connection: sqlite3.Connection,
        caller: Caller,
        request: LeaseRequest,
        *,
        lease_id: str,
        parts: int,
    ) -> None:
        """Add a request to the end of the queue."""
        rules = self.config.rules
        insert(
            connection,
            "leases",
            {
                "id": lease_id,
                "uid": caller.uid,
                "user": caller.user,
                "group": caller.group,
                "pid": caller.pid,
                "process_start": caller.process_start,
                "boot_id": self.clock.boot_id,
                "command": request.command[:MAX_COMMAND_CHARACTERS],
                "project": request.project,
                "count": request.count,
                "requested_gpus": request.gpus,
                "gpus": (),
                "parts": parts,
                "seconds": request.seconds,
                "requested_at": self.clock.wall(),
                "priority": rules.priority(groups_of(caller.uid)) if rules.priorities else 0,
                "even_if_busy": request.even_if_busy,
                "job": request.job,
            },
        )

    def _insert_held(self, connection: sqlite3.Connection) -> None:
        """Fill a new store, which replaces a lost one, with the leases that are noted in held locks.

        The lock of a place in the queue has no note.
        """
        for note in self.locks.held_notes():
            try:
                lease = Lease.from_document(json.loads(note))
            except (ValueError, TypeError, KeyError):
                continue
            if insert(connection, "leases", asdict(lease), skip_conflicts=True):
                insert_holds(connection, lease, skip_conflicts=True)

    def _check_not_replaced(self) -> None:
        """Raise if `share recover` has moved this file away: writes to it would be lost."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self._file, self.path.stat()):
                return
        raise GpuyardError(f"{self.path} was replaced a moment ago; try again")

    @contextlib.contextmanager
    def _describe_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into messages that explain what happened and what to do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise GpuyardError(
                f"cannot lease GPUs: {error} ({self.path}); check that the disk is not full and that "
                "you may write to the directory. Running commands continue, and `gpuyard who` still works"
            ) from error
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise GpuyardError(
                f"{self.path} cannot be read ({error}); running work continues, but no GPUs can be "
                "leased until you run: gpuyard share recover"
            ) from error
        except OSError as error:
            if error.filename is None and error.errno is None:
                raise
            raise GpuyardError(
                f"cannot lease GPUs: {error.strerror} ({error.filename or self.path}); running commands "
                "continue, and `gpuyard who` still works"
            ) from error

    def _open(self) -> sqlite3.Connection:
        create_private(self.path)
        connection = sqlite3.connect(
            self.path, timeout=_WAKE_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            if schema_version(connection) == 0:
                enable_write_ahead_log(connection)
                FORMAT.create(connection, self._insert_held)
            FORMAT.check_version(connection, self.path)
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_read_only(self) -> sqlite3.Connection:
        """Open for a user who can only read, or on a full disk; ignore the write-ahead log if it is unreadable."""
        error: sqlite3.Error | None = None
        for mode in ("mode=ro", "mode=ro&immutable=1"):
            try:
                connection = sqlite3.connect(
                    sqlite_uri(self.path, mode),
                    timeout=BUSY_SECONDS,
                    isolation_level=None,
                    uri=True,
                    check_same_thread=False,
                )
                connection.execute("SELECT COUNT(*) FROM holds").fetchone()
            except sqlite3.OperationalError as unreadable:
                error = unreadable
                continue
            try:
                FORMAT.check_version(connection, self.path)
            except BaseException:
                connection.close()
                raise
            return connection
        assert error is not None  # noqa: S101
        raise error

    def _begin(self) -> None:
        """Wait for the write lock, and wake a holder that was suspended, because it would block everyone.

        SQLite's own wait sleeps up to 100 ms at a time, which is long for transactions of 1 ms.
        """
        start = time.monotonic()
        last_wake = start
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    self.connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    now = time.monotonic()
                    if "locked" not in str(error) or now - start > BUSY_SECONDS:
                        raise
                    if now - last_wake > _WAKE_SECONDS:
                        last_wake = now
                        processes.wake_stopped(self.path)
                    time.sleep(_RETRY_SECONDS)
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {int(_WAKE_SECONDS * 1000)}")


def close_to_others(path: Path) -> None:
    """Let only the owner open a store: any reader could lock SQLite's log index and so block all writers."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).chmod(0o600)


def lease_not_found(lease_id: str) -> UserMistake:
    return UserMistake(f"lease {lease_id!r} not found; `gpuyard who` lists the current ones")


def insert_holds(
    connection: sqlite3.Connection, lease: Lease, *, skip_conflicts: bool = False
) -> None:
    """Record that a lease holds its GPUs; the database refuses more than the whole of a GPU."""
    verb = "INSERT OR IGNORE" if skip_conflicts else "INSERT"
    connection.executemany(
        f"{verb} INTO holds (lease, gpu, parts) VALUES (?, ?, ?)",
        [(lease.number, gpu, lease.parts) for gpu in lease.gpus],
    )


def insert(
    connection: sqlite3.Connection,
    table: str,
    row: Mapping[str, Any],
    *,
    skip_conflicts: bool = False,
) -> int:
    """Insert a row and return its number; 0 if the table refused it and conflicts are skipped."""
    values = {**row, **{name: json.dumps(row[name]) for name in LIST_FIELDS}}
    names = ", ".join(f'"{name}"' for name in values)
    placeholders = ", ".join("?" * len(values))
    try:
        cursor = connection.execute(
            f"INSERT INTO {table} ({names}) VALUES ({placeholders})",  # noqa: S608 - our own columns
            tuple(values.values()),
        )
    except (sqlite3.IntegrityError, OverflowError):
        if not skip_conflicts:
            raise
        return 0
    return cursor.lastrowid or 0
