"""The end of leases: find dead leases, stop those that are overdue, and record the end of both."""

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gpuyard.errors import GpuyardError
from gpuyard.share.models import Lease
from gpuyard.share.processes import (
    ProcessMatcher,
    find_by_matcher,
    find_processes,
    is_dying,
    stop_processes,
)
from gpuyard.share.store import Store

EndedLease = tuple[Lease, str]
"""A lease without processes, and the reason why it ended."""


class LeaseReaper:
    """The only code that takes GPUs away from a lease."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks = store.locks
        self._clock = store.clock

    def find_dead(self, *, stop_overdue: bool, head_start_seconds: float = 0.0) -> list[EndedLease]:
        """Return leases without processes; if `stop_overdue`, stop those that are over their time first.

        `head_start_seconds` is the time that their launchers have to do so themselves, because they report it.
        """
        leases = self._store.active_leases()
        dead = [(lease, "reboot") for lease in leases if lease.boot_id != self._clock.boot_id]
        leases = [lease for lease in leases if lease.boot_id == self._clock.boot_id]
        unlocked = [lease for lease in leases if self._locks.is_free(lease.id)]
        # no process holds these locks, but some may have closed them; one search serves all leases
        matchers = [self._create_matcher(lease) for lease in unlocked if lease.held]
        survivors = {matcher.id for matcher in find_by_matcher(matchers)} if matchers else set()
        died = {lease.id: lease for lease in unlocked if lease.id not in survivors}
        dead += [(lease, "died") for lease in died.values()]
        latest = self._clock.boot() - head_start_seconds
        overdue = [
            lease
            for lease in leases
            if lease.id not in died and lease.until_boot is not None and lease.until_boot <= latest
        ]
        if stop_overdue and overdue:
            stuck = self.stop(overdue, "time")
            dead += [(lease, "time") for lease in overdue if lease.id not in stuck]
        return dead

    def stop(self, leases: Sequence[Lease], reason: str) -> dict[str, list[int]]:
        """Stop the processes of several leases within one grace period.

        Return the processes that are stuck in the kernel, by lease ID. All other leases are over, whoever holds their
        locks: a process can keep a lock that no scan finds. `audit` finds such a process if it uses a GPU.

        The reason is recorded first, because the launcher may report the end itself.
        """
        with contextlib.suppress(GpuyardError), self._store.transaction() as connection:
            connection.executemany(  # on a full disk, stopping them matters more than the reason
                "UPDATE leases SET stop_reason = ? WHERE id = ?",
                [(reason, lease.id) for lease in leases],
            )
        for lease in leases:
            self._store.cgroups.close(lease.id)
        with contextlib.ExitStack() as pins:
            matchers = [
                replace(
                    self._create_matcher(lease),
                    lock=pins.enter_context(self._locks.pin(lease.id)),
                    launcher=(lease.pid, lease.process_start),
                )
                for lease in leases
            ]
            remaining = stop_processes(matchers, self._store.config.grace_seconds)
            for lease_id in remaining:
                self._store.cgroups.kill(lease_id)
            left = find_by_matcher([matcher for matcher in matchers if matcher.id in remaining])
            stuck = {matcher.id: [*filter(is_dying, pids)] for matcher, pids in left.items()}
        return {lease_id: pids for lease_id, pids in stuck.items() if pids}

    def find_survivors(self, lease: Lease) -> list[int]:
        """Return the running processes of a lease."""
        with self._locks.pin(lease.id) as lock:
            return find_processes(replace(self._create_matcher(lease), lock=lock))

    def _create_matcher(self, lease: Lease) -> ProcessMatcher:
        find_in_group = partial(self._store.cgroups.find_holders, lease.id)
        return ProcessMatcher(lease.id, lease.uid, find_in_group=find_in_group)

    def record_ends(self, connection: sqlite3.Connection, ended: Sequence[EndedLease]) -> None:
        """Inside a transaction, record the ends, free the GPUs, and remove unused groups and locks."""
        for lease, reason in ended:
            if lease.held:
                connection.execute(
                    'UPDATE leases SET "end" = ?, end_reason = COALESCE(stop_reason, ?)'
                    " WHERE number = ? AND end_reason IS NULL",
                    (self._end_time(lease), reason, lease.number),
                )
                connection.execute("DELETE FROM holds WHERE lease = ?", (lease.number,))
            else:  # it never held GPUs, so there is nothing to remember
                connection.execute(
                    "DELETE FROM leases WHERE number = ? AND start IS NULL", (lease.number,)
                )
        with_group = self._store.cgroups.lease_ids()
        if ended or with_group:
            active_ids = {lease.id for lease in self._store.active_leases()}
            self._store.cgroups.sweep(with_group - active_ids)
        if ended:
            self._locks.sweep(active_ids)

    def _end_time(self, lease: Lease) -> float:
        """Return the end on the wall clock of the start, even if it was set since; after a reboot, the boot time."""
        start = lease.start or 0.0
        if lease.boot_id == self._clock.boot_id and lease.start_boot is not None:
            return start + self._clock.boot() - lease.start_boot
        return max(start, self._clock.wall() - self._clock.boot())

    def remove_locks(self, ended: Sequence[EndedLease]) -> None:
        """Delete the locks of leases whose end is committed."""
        for lease, _ in ended:
            self._locks.remove(lease.id)
