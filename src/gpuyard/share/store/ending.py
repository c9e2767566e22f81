"""How leases end: what is dead is found, what is over its time is stopped, and both are written down."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuyard.share.isolation.groups import Groups
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.config import ShareConfig
from gpuyard.share.store.database import Database
from gpuyard.share.store.lease import Lease
from gpuyard.share.store.lease_table import LeaseTable
from gpuyard.share.store.locks import Locks
from gpuyard.share.watch import processes

if TYPE_CHECKING:
    import sqlite3

Ended = tuple[Lease, str]
"""A lease that nobody has any more, and how it ended."""


class Ending:
    """The only place that takes a lease's GPUs away."""

    def __init__(
        self,
        *,
        database: Database,
        leases: LeaseTable,
        locks: Locks,
        groups: Groups,
        clock: Clock,
        config: ShareConfig,
    ) -> None:
        self._database = database
        self._leases = leases
        self._locks = locks
        self._groups = groups
        self._clock = clock
        self._config = config

    def dead(self, *, stop_overdue: bool) -> list[Ended]:
        """Leases that nobody has any more, and how each ended."""
        dead = []
        overdue = []
        for lease in self._leases.living():
            if lease.boot_id != self._clock.boot_id:
                dead.append((lease, "reboot"))
            elif self._locks.is_free(lease.id) and not (lease.held and self.survivors(lease)):
                dead.append((lease, "died"))
            elif lease.until_boot is not None and lease.until_boot <= self._clock.boot():
                overdue.append(lease)
        if stop_overdue and overdue:
            dead += [(lease, "time") for lease in self.stop(overdue, "time")]
        return dead

    def stop(self, leases: Sequence[Lease], why: str) -> list[Lease]:
        """End the processes of all of them at once: whoever waits for it waits for one grace. Those that have ended.

        Why is noted first, for the launcher may still say by itself that it ended.
        """
        with self._database.transaction() as connection:
            connection.executemany(
                "UPDATE leases SET ending = ? WHERE id = ?", [(why, lease.id) for lease in leases]
            )
        with contextlib.ExitStack() as pins:
            marks = [
                processes.Marks(
                    lease.id,
                    lease.uid,
                    pins.enter_context(self._locks.pinned(lease.id)),
                    (lease.pid, lease.process_start),
                )
                for lease in leases
            ]
            left = processes.stop(marks, self._config.grace_seconds)
        return [lease for lease in leases if lease.id not in left and self._locks.is_free(lease.id)]

    def survivors(self, lease: Lease) -> list[int]:
        """Its processes that still live."""
        with self._locks.pinned(lease.id) as lock:
            return processes.processes_of(processes.Marks(lease.id, lease.uid, lock))

    def end_all(self, connection: "sqlite3.Connection", ended: Sequence[Ended]) -> None:
        """Inside a transaction: write it down, free its GPUs, sweep what no lease has any more."""
        for lease, how in ended:
            if lease.held:
                connection.execute(
                    'UPDATE leases SET "end" = ?, ended = COALESCE(ending, ?)'
                    " WHERE number = ? AND ended IS NULL",
                    (self._end_of(lease), how, lease.number),
                )
                connection.execute("DELETE FROM holds WHERE lease = ?", (lease.number,))
            else:  # nothing was given, so there is nothing to remember
                connection.execute(
                    "DELETE FROM leases WHERE number = ? AND start IS NULL", (lease.number,)
                )
        grouped = self._groups.ids()
        if ended or grouped:
            living = {lease.id for lease in self._leases.living()}
            self._groups.sweep(grouped - living)
        if ended:
            self._locks.sweep(living)

    def _end_of(self, lease: Lease) -> float:
        """On the clock by which it started, however that was set since; before a reboot: when it came."""
        start = lease.start or 0.0
        if lease.boot_id == self._clock.boot_id and lease.start_boot is not None:
            return start + self._clock.boot() - lease.start_boot
        return max(start, self._clock.wall() - self._clock.boot())

    def remove_locks(self, ended: Sequence[Ended]) -> None:
        """Of leases whose end is written down."""
        for lease, _ in ended:
            self._locks.remove(lease.id)
