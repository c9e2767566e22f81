"""Replace a damaged store with a new one. It has every lease that is still held, which the locks record, and the
history and reservations that can still be read."""

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gpuyard.share.broker import Broker
from gpuyard.share.models import LIST_FIELDS, Lease, Reservation
from gpuyard.share.store import DATABASE, insert
from gpuyard.sqlite_file import BUSY_SECONDS, sqlite_uri

T = TypeVar("T")


@dataclass(frozen=True)
class RecoveredStore:
    """The contents of the new store."""

    damaged: Path
    """New path of the damaged store."""
    running: int
    ended: int
    reservations: int


def recover(directory: Path) -> RecoveredStore | None:
    """Replace a damaged store; return None if it is not damaged."""
    store = directory / DATABASE
    if store.exists() and _find_damage(store) is None:
        Broker(directory).close()  # raises if a newer version wrote the store
        return None
    damaged = directory / f"{DATABASE}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    with _block_writers(store):
        _rename(store, damaged)
        try:
            broker = Broker(directory)  # inserts all held leases
        except BaseException:  # for example, a full disk: keep the store for a later attempt
            _rename(damaged, store)
            raise
    running = broker.state().held
    used_ids = {lease.id for lease in running} | {str(lease.number) for lease in running}
    past = [
        lease
        for lease in _read_rows(damaged, "leases", Lease.from_document)
        if lease.start is not None and not used_ids.intersection((lease.id, str(lease.number)))
    ]
    reservations = list(_read_rows(damaged, "reservations", Reservation.from_document))
    now = broker.store.clock.wall()
    with broker.store.transaction() as connection:
        ended = sum(
            insert(connection, "leases", asdict(_mark_ended(lease, now)), skip_conflicts=True) > 0
            for lease in past
        )
        reserved = sum(
            insert(connection, "reservations", asdict(reservation), skip_conflicts=True) > 0
            for reservation in reservations
        )
    broker.close()
    return RecoveredStore(damaged, len(running), ended, reserved)


def _find_damage(path: Path) -> str | None:
    """Read a whole store, and return what is wrong with it, or None."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            result = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except sqlite3.DatabaseError as error:
            return str(error)
    return None if result == "ok" else str(result)


def _rename(store: Path, to: Path) -> None:
    for suffix in ("-shm", "-wal", ""):
        part = store.with_name(store.name + suffix)
        if part.exists():
            part.rename(to.with_name(to.name + suffix))


@contextlib.contextmanager
def _block_writers(store: Path) -> Iterator[None]:
    """Lock a damaged file. If it cannot be locked, other processes cannot write to it either."""
    with contextlib.ExitStack() as cleanup:
        with contextlib.suppress(sqlite3.DatabaseError):
            connection = sqlite3.connect(
                sqlite_uri(store, "mode=rw"), uri=True, isolation_level=None, timeout=BUSY_SECONDS
            )
            cleanup.callback(connection.close)
            connection.execute("BEGIN IMMEDIATE")
        yield


def _mark_ended(lease: Lease, now: float) -> Lease:
    """Mark a lease as ended whose lock is free; the time of its end is unknown."""
    if lease.end_reason:
        return lease
    return replace(lease, end=max(now, lease.start or now), end_reason="died")


def _read_rows(store: Path, table: str, decode: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """Yield rows from both ends of a table up to the damage; skip rows that cannot be decoded."""
    numbers = set()
    for order in ("ASC", "DESC"):
        with (
            contextlib.suppress(sqlite3.DatabaseError),
            contextlib.closing(
                sqlite3.connect(sqlite_uri(store, "mode=ro"), uri=True)
            ) as connection,
        ):
            rows = connection.execute(
                f"SELECT * FROM {table} ORDER BY number {order}"  # noqa: S608 - our own tables
            )
            names = [column[0] for column in rows.description]
            for row in rows:
                document = dict(zip(names, row, strict=True))
                if document["number"] in numbers:
                    return
                numbers.add(document["number"])
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    yield decode(_decode_lists(document))


def _decode_lists(document: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: json.loads(document[name]) for name in LIST_FIELDS}
    if any(type(gpu) is not int for gpus in lists.values() for gpu in gpus):
        raise ValueError(lists)
    return {name: value for name, value in document.items() if name != "stop_reason"} | lists
