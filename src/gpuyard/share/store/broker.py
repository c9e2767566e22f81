"""Every operation on a share, on behalf of a caller whom the kernel named.

A lease lives as long as its lock is held or a process of it is left. Nothing renews it: whoever asks next looks
whether the lock is free, and closes what is dead before anything is given again.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError
from gpuyard.files import write_text
from gpuyard.share.isolation.groups import Groups
from gpuyard.share.service.caller import Caller
from gpuyard.share.store.asking import Asking
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.config import ShareConfig, config_file, read_config
from gpuyard.share.store.database import Database
from gpuyard.share.store.ending import Ending
from gpuyard.share.store.lease import LONGEST_COMMAND, Lease, LeaseRequest
from gpuyard.share.store.lease_table import LeaseTable, insert_held
from gpuyard.share.store.locks import Locks
from gpuyard.share.store.past_use import PastUse
from gpuyard.share.turns.calendar import Reservation
from gpuyard.share.turns.queue import ShareState, Turn
from gpuyard.share.turns.reservations import Reservations, Wish
from gpuyard.share.turns.rules import Rules, groups_of
from gpuyard.share.watch import processes
from gpuyard.share.watch.gpus import Reading

if TYPE_CHECKING:
    import sqlite3

DATABASE = "leases.sqlite"
LOCKS = "locks"
_MOST_OF_ONE_USER = 500  # so that nobody can fill the disk or slow down all others


class Broker:
    """The operations; one object a thread."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock | None = None,
        read_only: bool = False,
        past: PastUse | None = None,
    ) -> None:
        """`past`: one for all brokers of a process, so that a long history is not added up by each."""
        self._past = past or PastUse()
        self.directory = directory
        self.clock = clock or Clock()
        self.config = read_config(directory)
        self.config.check_machine(directory, self.clock.boot_id)
        self.locks = Locks(directory / LOCKS)
        self.database = Database(directory / DATABASE, read_only=read_only, fill=self._fill)
        self.groups = Groups(directory)
        self._leases = LeaseTable(self.database)
        self._reservations = Reservations(self.database, self.clock, self.config, self.locks)
        self._ending = Ending(
            database=self.database,
            leases=self._leases,
            locks=self.locks,
            groups=self.groups,
            clock=self.clock,
            config=self.config,
        )
        self._asking = self._ask_by(self.config)

    def close(self) -> None:
        self.database.close()

    def ask(self, caller: Caller, request: LeaseRequest) -> tuple[Turn, int]:
        """A lease, or a place in the queue, with the lock that whoever uses it must hold."""
        parts = self._asking.check(request)
        dead = self._ending.dead(stop_overdue=True)
        id_, lock = "", -1
        try:
            with self.database.transaction() as connection:
                self._ending.end_all(connection, dead)
                self._refuse_crowd(caller)
                self._asking.refuse_above_quota(caller, request.count * parts)
                id_, lock = self._asking.new_lock()
                self._insert(connection, caller, request, id_, parts)
                found = self._asking.grant(connection, caller, id_)
                if not request.waits:
                    self._asking.refuse_unless_all(found.lease, request)
        except BaseException:  # of a full disk the commit is what fails
            if lock != -1:
                os.close(lock)
                self.locks.remove(id_)
            raise
        self._ending.remove_locks(dead)
        return found, lock

    def claim(self, caller: Caller, id_: str) -> Turn:
        """Whether its turn has come; if it has, the GPUs are its own from now on."""
        found = self._leases.own(caller, id_)
        if found.held:
            return Turn(found)
        dead = self._ending.dead(stop_overdue=True)
        place = self._asking.turn(id_)
        if not dead and not place.lease.gpus:
            return place  # nothing to write
        with self.database.transaction() as connection:
            self._ending.end_all(connection, dead)
            granted = self._asking.grant(connection, caller, id_)
        self._ending.remove_locks(dead)
        return granted

    def enclose(self, caller: Caller, id_: str, pid: int) -> None:
        """Let another process of the caller have this lease's GPUs, and no others."""
        self._leases.own(caller, id_)
        if processes.owner(pid) != caller.uid:
            raise GpuyardError(f"process {pid} is not yours")
        self.groups.add(id_, pid)

    def leave(self, caller: Caller, id_: str) -> None:
        """Give up a place in the queue."""
        self._leases.own(caller, id_)
        with self.database.transaction() as connection:
            left = connection.execute(
                "DELETE FROM leases WHERE id = ? AND start IS NULL", (id_,)
            ).rowcount
        if left:  # else it holds GPUs, and by its lock it is known who does
            self.locks.remove(id_)

    def finish(self, caller: Caller, id_: str, *, childless: bool) -> bool:
        """The command has ended; the lease has, too, unless processes of it are left.

        `childless`: the kernel told the launcher that none is, so its own hold on the lock is the last one. Else
        it has let go of the lock, and /proc is searched. So it is where another process says so: GPUs that somebody
        still uses are given to nobody, whatever their user says.
        """
        found = self._leases.own(caller, id_)
        if not childless and not self.locks.is_free(id_):
            return False
        if not (childless and caller.pid == os.getpid()) and any(
            pid != caller.pid for pid in self._ending.survivors(found)
        ):
            return False
        now = self.clock.boot()
        how = "time" if found.until_boot is not None and found.until_boot <= now else "finished"
        with self.database.transaction() as connection:
            self._ending.end_all(connection, [(found, how)])
        self.locks.remove(id_)
        return True

    def release(self, caller: Caller, id_: str) -> Lease:
        """End a lease before its time: its processes first, then the lease."""
        found = self._leases.by_id(id_)
        if caller.uid != found.uid and not caller.is_admin(self.config.admin_group):
            raise GpuyardError(
                f"lease {id_} is {found.user}'s; only {found.user} and members of the group "
                f"{self.config.admin_group} can release it"
            )
        if not self._ending.stop([found], "released"):
            raise GpuyardError(
                f"processes of lease {id_} can't be ended, so it stays: "
                f"{', '.join(map(str, self._ending.survivors(found)))}"
            )
        with self.database.transaction() as connection:
            self._ending.end_all(connection, [(found, "released")])
        self.locks.remove(id_)
        return found

    def state(self) -> ShareState:
        """Everything that lives now; what is dead is closed first, where this may write."""
        dead = self._ending.dead(stop_overdue=False)
        if dead:
            with contextlib.suppress(GpuyardError), self.database.transaction() as connection:
                self._ending.end_all(connection, dead)
            self._ending.remove_locks(dead)
        gone = {lease.id for lease, _ in dead}
        living = [lease for lease in self._leases.living() if lease.id not in gone]
        return ShareState(
            tuple(lease for lease in living if lease.held),
            tuple(self._asking.in_order([lease for lease in living if not lease.held])),
            tuple(self._reservations.current()),
        )

    def reserve(self, caller: Caller, wish: Wish) -> Reservation:
        """GPUs for a time to come."""
        self.config.check_is_ours("scontrol create reservation")
        return self._reservations.make(caller, wish, self._leases.living)

    def cancel(self, caller: Caller, id_: str) -> Reservation:
        """Take a reservation back."""
        return self._reservations.cancel(caller, id_, self._leases.living)

    def set_rules(self, caller: Caller, rules: Rules) -> None:
        """For admins."""
        if not caller.is_admin(self.config.admin_group):
            raise GpuyardError(
                f"only root and members of the group {self.config.admin_group} can set the policy"
            )
        self.config = replace(self.config, rules=rules)
        self._reservations = Reservations(self.database, self.clock, self.config, self.locks)
        self._asking = self._ask_by(self.config)
        write_text(config_file(self.directory), self.config.text(), mode=0o644)

    def drain(self, caller: Caller, gpus: tuple[int, ...], until: float | None) -> Reservation:
        """Give no new leases on these GPUs (none named: on any)."""
        self.config.check_is_ours("scontrol update NodeName=NODE State=DRAIN Reason=REASON")
        return self._reservations.drain(caller, gpus, until)

    def resume(self, caller: Caller) -> list[Reservation]:
        """End all drains."""
        return self._reservations.resume(caller)

    def record_utilisation(self, readings: Mapping[int, Reading]) -> None:
        """Note how busy each lease's GPUs are now; where nothing can be read or written, nothing is."""
        now = self.clock.boot()
        rows = [
            (sum(busy) / len(busy), max(busy) > 0, now, lease.number)
            for lease in self._leases.living()
            if lease.held and (busy := _utilisation(lease, readings))
        ]
        if not rows:
            return
        with contextlib.suppress(GpuyardError), self.database.transaction() as connection:
            connection.executemany(
                "UPDATE leases SET utilisation_sum = utilisation_sum + ?,"
                " utilisation_samples = utilisation_samples + 1,"
                " idle_since_boot = CASE WHEN ? THEN NULL ELSE COALESCE(idle_since_boot, ?) END"
                " WHERE number = ? AND ended IS NULL",
                rows,
            )

    def history(self, after: int = 0, most: int = -1) -> list[Lease]:
        """Every lease that ever held GPUs, oldest first; or so many of those after one of them."""
        return self._leases.select("start IS NOT NULL AND number > ?", after, most=most)

    def expected_start(self, lease: Lease, state: ShareState) -> float | None:
        """Seconds from now; None: nobody can say."""
        return self._asking.expected_start(lease, state)

    def _fill(self, connection: "sqlite3.Connection") -> None:
        """A new store where another was lost: what is held is held in it from the first moment on."""
        insert_held(connection, self.locks.held().values())

    def _refuse_crowd(self, caller: Caller) -> None:
        if sum(lease.uid == caller.uid for lease in self._leases.living()) >= _MOST_OF_ONE_USER:
            raise GpuyardError(
                f"{caller.user} has {_MOST_OF_ONE_USER} leases and places in the queue, which is the "
                "most that one user can have"
            )

    def _insert(
        self,
        connection: "sqlite3.Connection",
        caller: Caller,
        request: LeaseRequest,
        id_: str,
        parts: int,
    ) -> None:
        rules = self.config.rules
        connection.execute(
            'INSERT INTO leases (id, uid, user, "group", pid, process_start, boot_id, command,'
            " project, count, wanted, parts, seconds, asked, priority)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                id_,
                caller.uid,
                caller.user,
                caller.group,
                caller.pid,
                processes.start_time(caller.pid),
                self.clock.boot_id,
                request.command[:LONGEST_COMMAND],
                request.project,
                request.count,
                json.dumps(request.gpus),
                parts,
                request.seconds,
                self.clock.wall(),
                rules.priority(groups_of(caller.uid)) if rules.priorities else 0,
            ),
        )

    def _ask_by(self, config: ShareConfig) -> Asking:
        return Asking(
            leases=self._leases,
            locks=self.locks,
            groups=self.groups,
            clock=self.clock,
            config=config,
            reservations=self._reservations,
            past=self._past,
        )


def _utilisation(lease: Lease, readings: Mapping[int, Reading]) -> list[float]:
    found = (readings.get(gpu, Reading()).utilisation for gpu in lease.gpus)
    return [share for share in found if share is not None]
