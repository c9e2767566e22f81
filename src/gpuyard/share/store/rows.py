"""Leases as rows of the store."""

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.service.caller import Caller
from gpuyard.share.store.database import Database
from gpuyard.share.store.lease import COLUMNS, Lease


class Rows:
    """Of the table of leases; read only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def select(self, condition: str, *values: object) -> list[Lease]:
        """Oldest first."""
        with self._database.sentences():
            rows = self._database.connection.execute(
                # the condition is one of the few of this room, never a user's text
                f"SELECT {COLUMNS} FROM leases WHERE {condition} ORDER BY number",  # noqa: S608
                values,
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
