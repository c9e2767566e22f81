"""Leases as rows of the store."""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.service.caller import Caller
from gpuyard.share.store.database import Database
from gpuyard.share.store.lease import COLUMNS, Lease

LISTS = ("wanted", "gpus")
"""Columns that are JSON."""


class LeaseTable:
    """Of the table of leases; read only."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def select(self, condition: str, *values: object, most: int = -1) -> list[Lease]:
        """Oldest first; `most` -1: all."""
        with self.database.sentences():
            rows = self.database.connection.execute(
                # the condition is one of the few of this room, never a user's text
                f"SELECT {COLUMNS} FROM leases WHERE {condition} ORDER BY number LIMIT ?",  # noqa: S608
                (*values, most),
            ).fetchall()
        return [Lease.from_row(row) for row in rows]

    def living(self) -> list[Lease]:
        """Held, or in the queue."""
        return self.select("ended IS NULL")

    def by_id(self, id_: str) -> Lease:
        """One that lives, or a sentence."""
        found = self.select("id = ? AND ended IS NULL", id_)
        if not found:
            raise gone(id_)
        return found[0]

    def own(self, caller: Caller, id_: str) -> Lease:
        """One of the caller's."""
        found = self.by_id(id_)
        if caller.uid != found.uid:
            raise GpuyardError(f"lease {id_} is {found.user}'s, not yours")
        return found


def gone(id_: str) -> UserMistake:
    """Where a lease was named that does not live."""
    return UserMistake(f"there is no lease {id_!r} now; `gpuyard who` lists them")


def insert_held(connection: sqlite3.Connection, notes: Iterable[str]) -> None:
    """Into a new store: what the locks that somebody holds say of their leases. Of a place in the queue they say nothing."""
    for note in notes:
        try:
            lease = Lease.from_document(json.loads(note))
        except (ValueError, TypeError, KeyError):
            continue
        if insert(connection, "leases", asdict(lease), keep_first=True):
            connection.executemany(
                "INSERT OR IGNORE INTO holds (lease, gpu, parts) VALUES (?, ?, ?)",
                [(lease.number, gpu, lease.parts) for gpu in lease.gpus],
            )


def insert(
    connection: sqlite3.Connection, table: str, row: dict[str, Any], *, keep_first: bool = False
) -> bool:
    """`keep_first`: a row that the table refuses, or has already, is left out. True: it is in."""
    row = row | {name: json.dumps(row[name]) for name in LISTS}
    names = ", ".join(f'"{name}"' for name in row)
    values = ", ".join("?" * len(row))
    try:
        connection.execute(
            f"INSERT INTO {table} ({names}) VALUES ({values})",  # noqa: S608 - our own columns
            tuple(row.values()),
        )
    except (sqlite3.IntegrityError, OverflowError):
        if not keep_first:
            raise
        return False
    return True
