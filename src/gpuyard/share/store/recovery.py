"""A damaged store is put aside and made anew: with every lease that is still held, for the locks say which, and with
what can still be read of the history and the reservations."""

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gpuyard.share.store.broker import DATABASE, Broker
from gpuyard.share.store.database import check
from gpuyard.share.store.lease import Lease
from gpuyard.share.store.lease_table import LISTS, insert
from gpuyard.share.turns.calendar import Reservation
from gpuyard.sqlite_file import BUSY_SECONDS, address

T = TypeVar("T")


@dataclass(frozen=True)
class Recovered:
    """What the new store has."""

    aside: Path
    """Where the damaged one is now."""
    running: int
    ended: int
    reservations: int


def recover(directory: Path) -> Recovered | None:
    """Make it anew; None: there was nothing wrong."""
    store = directory / DATABASE
    if store.exists() and check(store) is None:
        Broker(directory).close()  # a version that is too new is said here
        return None
    aside = directory / f"{DATABASE}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    with _nobody_writes(store):
        _rename(store, aside)
        try:
            broker = Broker(directory)  # with all leases that are held
        except BaseException:  # a full disk: what can still be read is recovered later
            _rename(aside, store)
            raise
    running = broker.state().held
    known = {lease.id for lease in running} | {str(lease.number) for lease in running}
    past = [
        lease
        for lease in _rows(aside, "leases", Lease.from_document)
        if lease.start is not None and not known.intersection((lease.id, str(lease.number)))
    ]
    reserved = list(_rows(aside, "reservations", Reservation.from_document))
    with broker.database.transaction() as connection:
        now = broker.clock.wall()
        ended = sum(
            insert(connection, "leases", asdict(_ended(lease, now)), keep_first=True)
            for lease in past
        )
        kept = sum(
            insert(connection, "reservations", asdict(one), keep_first=True) for one in reserved
        )
    broker.close()
    return Recovered(aside, len(running), ended, kept)


def _rename(store: Path, to: Path) -> None:
    for suffix in ("-shm", "-wal", ""):
        part = store.with_name(store.name + suffix)
        if part.exists():
            part.rename(to.with_name(to.name + suffix))


@contextlib.contextmanager
def _nobody_writes(store: Path) -> Iterator[None]:
    """As far as a damaged file can be locked; where it can't, nobody else can write it either."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(sqlite3.DatabaseError):
            old = sqlite3.connect(
                address(store, "mode=rw"), uri=True, isolation_level=None, timeout=BUSY_SECONDS
            )
            held.callback(old.close)
            old.execute("BEGIN IMMEDIATE")
        yield


def _ended(lease: Lease, now: float) -> Lease:
    """No process of it holds its lock any more; when it ended nobody can say."""
    return lease if lease.ended else replace(lease, end=max(now, lease.start or now), ended="died")


def _rows(store: Path, table: str, make: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """From both ends up to what is damaged; rows that make no sense are left out."""
    seen = set()
    for order in ("ASC", "DESC"):
        with (
            contextlib.suppress(sqlite3.DatabaseError),
            contextlib.closing(sqlite3.connect(address(store, "mode=ro"), uri=True)) as connection,
        ):
            found = connection.execute(
                f"SELECT * FROM {table} ORDER BY number {order}"  # noqa: S608 - our own tables
            )
            names = [column[0] for column in found.description]
            for row in found:
                document = dict(zip(names, row, strict=True))
                if document["number"] in seen:
                    return
                seen.add(document["number"])
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    yield make(_with_lists(document))


def _with_lists(document: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: json.loads(document[name]) for name in LISTS}
    if any(type(gpu) is not int for gpus in lists.values() for gpu in gpus):
        raise ValueError(lists)
    return {name: value for name, value in document.items() if name != "ending"} | lists
