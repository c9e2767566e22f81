"""Every operation on a share, on behalf of a caller whom the kernel named.

A lease lives as long as its lock is held or a process of it is left. Nothing renews it: whoever asks next looks
whether the lock is free, and closes what is dead before anything is given again.
"""

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import write_text
from gpuyard.share.isolation.groups import Groups
from gpuyard.share.service.caller import Caller
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.config import config_file, read_config
from gpuyard.share.store.database import Database
from gpuyard.share.store.lease import COLUMNS, LONGEST_COMMAND, WHOLE, Lease, NoneFree, Request
from gpuyard.share.store.locks import Locks
from gpuyard.share.turns.calendar import Reservation
from gpuyard.share.turns.choice import parts_of
from gpuyard.share.turns.queue import expected_start, in_order, turn
from gpuyard.share.turns.reservations import Reservations, Wish
from gpuyard.share.turns.rules import (
    WEEK_SECONDS,
    Allowance,
    Rules,
    allowance,
    groups_of,
    recent_use,
)
from gpuyard.share.turns.when import shown
from gpuyard.share.watch import processes
from gpuyard.share.watch.gpus import Reading

if TYPE_CHECKING:
    import sqlite3

DATABASE = "leases.sqlite"
LOCKS = "locks"
_MOST_OF_ONE_USER = 500  # so that nobody can fill the disk or slow down all others


@dataclass(frozen=True)
class State:
    """What is held and who waits, in the order of their turns."""

    held: tuple[Lease, ...]
    waiting: tuple[Lease, ...]
    reservations: tuple[Reservation, ...] = ()
    """Those that are not over, and drains."""


@dataclass(frozen=True)
class Turn:
    """How far a request is: held, or its place in the queue (1: next) and when it is expected to start."""

    lease: Lease
    position: int = 0
    expected_seconds: float | None = None
    reason: str = ""
    """What it waits for, where that is not a GPU."""


class Broker:
    """The operations; one object a thread."""

    def __init__(
        self, directory: Path, *, clock: Clock | None = None, read_only: bool = False
    ) -> None:
        self.directory = directory
        self.clock = clock or Clock()
        self.config = read_config(directory)
        self._indices = self.config.indices
        self.locks = Locks(directory / LOCKS)
        self.database = Database(directory / DATABASE, read_only=read_only)
        self.groups = Groups(directory)
        self._reservations = Reservations(self.database, self.clock, self.config, self.locks)

    def close(self) -> None:
        self.database.close()

    def ask(self, caller: Caller, request: Request) -> tuple[Turn, int]:
        """A lease, or a place in the queue, with the lock that whoever uses it must hold."""
        parts = self._check(request)
        dead = self._dead(stop_overdue=True)
        with self.database.transaction() as connection:
            self._end_all(connection, dead)
            if sum(lease.uid == caller.uid for lease in self._living()) >= _MOST_OF_ONE_USER:
                raise GpuyardError(
                    f"{caller.user} has {_MOST_OF_ONE_USER} leases and places in the queue, which is the "
                    "most that one user can have"
                )
            rules = self.config.rules
            self._refuse_above_quota(caller, request.count * parts)
            id_, lock = self._new_lock()
            try:
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
                found = self._grant(connection, caller, id_)
                if not request.waits:
                    self._refuse_unless_all(found.lease, request)
            except BaseException:
                os.close(lock)
                self.locks.remove(id_)
                raise
        self._remove_locks(dead)
        return found, lock

    def claim(self, caller: Caller, id_: str) -> Turn:
        """Whether its turn has come; if it has, the GPUs are its own from now on."""
        found = self._own(caller, id_)
        if found.held:
            return Turn(found)
        dead = self._dead(stop_overdue=True)
        place = self._turn(id_)
        if not dead and not place.lease.gpus:
            return place  # nothing to write
        with self.database.transaction() as connection:
            self._end_all(connection, dead)
            granted = self._grant(connection, caller, id_)
        self._remove_locks(dead)
        return granted

    def enclose(self, caller: Caller, id_: str, pid: int) -> None:
        """Let another process of the caller have this lease's GPUs, and no others."""
        self._own(caller, id_)
        if processes.owner(pid) != caller.uid:
            raise GpuyardError(f"process {pid} is not yours")
        self.groups.add(id_, pid)

    def leave(self, caller: Caller, id_: str) -> None:
        """Give up a place in the queue."""
        self._own(caller, id_)
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM leases WHERE id = ? AND start IS NULL", (id_,))
        self.locks.remove(id_)

    def finish(self, caller: Caller, id_: str, *, childless: bool) -> bool:
        """The command has ended; the lease has, too, unless processes of it are left.

        `childless`: the kernel told the launcher that none is, so its own hold on the lock is the last one. Else
        it has let go of the lock, and /proc is searched.
        """
        found = self._own(caller, id_)
        if not childless and (not self.locks.is_free(id_) or self._survivors(found)):
            return False
        now = self.clock.boot()
        how = "time" if found.until_boot is not None and found.until_boot <= now else "finished"
        with self.database.transaction() as connection:
            self._end_all(connection, [(found, how)])
        self.locks.remove(id_)
        return True

    def release(self, caller: Caller, id_: str) -> Lease:
        """End a lease before its time: its processes first, then the lease."""
        found = self._by_id(id_)
        if caller.uid != found.uid and not caller.is_admin(self.config.admin_group):
            raise GpuyardError(
                f"lease {id_} is {found.user}'s; only {found.user} and members of the group "
                f"{self.config.admin_group} can release it"
            )
        if not self._stop(found, "released"):
            raise GpuyardError(
                f"processes of lease {id_} can't be ended, so it stays: "
                f"{', '.join(map(str, self._survivors(found)))}"
            )
        with self.database.transaction() as connection:
            self._end_all(connection, [(found, "released")])
        self.locks.remove(id_)
        return found

    def state(self) -> State:
        """Everything that lives now; what is dead is closed first, where this may write."""
        dead = self._dead(stop_overdue=False)
        if dead:
            with contextlib.suppress(GpuyardError), self.database.transaction() as connection:
                self._end_all(connection, dead)
            self._remove_locks(dead)
        gone = {lease.id for lease, _ in dead}
        living = [lease for lease in self._living() if lease.id not in gone]
        return State(
            tuple(lease for lease in living if lease.held),
            tuple(self._in_order([lease for lease in living if not lease.held])),
            tuple(self._reservations.current()),
        )

    def reserve(self, caller: Caller, wish: Wish) -> Reservation:
        """GPUs for a time to come."""
        self._check_is_ours("scontrol create reservation")
        return self._reservations.make(caller, wish, self._living)

    def cancel(self, caller: Caller, id_: str) -> Reservation:
        """Take a reservation back."""
        return self._reservations.cancel(caller, id_, self._living)

    def set_rules(self, caller: Caller, rules: Rules) -> None:
        """For admins."""
        if not caller.is_admin(self.config.admin_group):
            raise GpuyardError(
                f"only root and members of the group {self.config.admin_group} can set the policy"
            )
        self.config = replace(self.config, rules=rules)
        write_text(config_file(self.directory), self.config.text(), mode=0o644)

    def drain(self, caller: Caller, gpus: tuple[int, ...], until: float | None) -> Reservation:
        """Give no new leases on these GPUs (none named: on any)."""
        self._check_is_ours("scontrol update NodeName=NODE State=DRAIN Reason=REASON")
        return self._reservations.drain(caller, gpus, until)

    def resume(self, caller: Caller) -> list[Reservation]:
        """End all drains."""
        return self._reservations.resume(caller)

    def record_utilisation(self, readings: Mapping[int, Reading]) -> None:
        """Note how busy each lease's GPUs are now; where nothing can be read or written, nothing is."""
        now = self.clock.boot()
        rows = [
            (sum(busy) / len(busy), max(busy) > 0, now, lease.number)
            for lease in self._living()
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

    def history(self) -> list[Lease]:
        """Every lease that ever held GPUs, oldest first."""
        return self._select("start IS NOT NULL")

    def expected_start(self, lease: Lease, state: State) -> float | None:
        """Seconds from now; None: nobody can say."""
        now = self.clock.boot()
        order = [other for other in state.waiting if not _stopped(other, lease.id)]
        calendar = self._reservations.calendar()
        then = expected_start(
            lease, order, self._free(state.held), state.held, calendar=calendar, now=now
        )
        return None if then is None else then - now

    # -- what is below is shared by the operations

    def _check_is_ours(self, instead: str) -> None:
        if self.config.scheduler != "local":
            raise GpuyardError(f"Slurm gives these GPUs out now; use: {instead}")

    def _check(self, request: Request) -> int:
        self._check_is_ours("gpuyard lease N -- COMMAND, or --shell")
        known = self._indices
        if request.count > len(known):
            raise UserMistake(f"{request.count} GPUs were requested; this machine has {len(known)}")
        unknown = [index for index in request.gpus if index not in known]
        if unknown:
            raise UserMistake(
                f"there is no GPU {unknown[0]}; this machine has {', '.join(map(str, known))}"
            )
        parts = parts_of(request, [self.config.gpu(i).memory_bytes for i in request.gpus or known])
        if parts is None:
            raise UserMistake("nobody knows how much memory these GPUs have; use --share instead")
        if parts > WHOLE:
            raise UserMistake("no GPU has that much memory; lease whole GPUs, without --memory")
        return parts

    def _new_lock(self) -> tuple[str, int]:
        while True:
            id_ = os.urandom(4).hex()
            with contextlib.suppress(FileExistsError):
                return id_, self.locks.make(id_)

    def _grant(self, connection: "sqlite3.Connection", caller: Caller, id_: str) -> Turn:
        """Inside a transaction: give it its GPUs if it is its turn."""
        found = self._turn(id_)
        gpus = found.lease.gpus
        if found.lease.held or not gpus:
            return found
        now, seconds = self.clock.boot(), found.lease.seconds
        until = self._reservations.calendar().cut(gpus, found.lease.uid, now)
        if seconds is not None:
            until = min(now + seconds, math.inf if until is None else until)
        lease = replace(found.lease, start=self.clock.wall(), start_boot=now, until_boot=until)
        connection.execute(
            "UPDATE leases SET gpus = ?, start = ?, start_boot = ?, until_boot = ? WHERE id = ?",
            (json.dumps(gpus), lease.start, now, until, id_),
        )
        connection.executemany(
            "INSERT INTO holds (lease, gpu, parts) VALUES (?, ?, ?)",
            [(lease.number, gpu, lease.parts) for gpu in gpus],
        )
        self.locks.note(id_, json.dumps(vars(lease)))
        if self.config.isolation:
            own, others = self.config.devices(gpus)
            self.groups.enclose(id_, caller.pid, self.config.isolation, own=own, others=others)
        return Turn(lease)

    def _turn(self, id_: str) -> Turn:
        """Where it stands; its `gpus` are those that it would get now."""
        living = self._living()
        lease = next((one for one in living if one.id == id_), None)
        if lease is None:
            raise _gone(id_)
        if lease.held:
            return Turn(lease)
        held = tuple(one for one in living if one.held)
        waiting = [one for one in living if not one.held and not _stopped(one, id_)]
        order = self._in_order(waiting)
        allowed = self._allowance(living)
        calendar = self._reservations.calendar()
        now = self.clock.boot()
        gpus = turn(
            lease,
            order,
            self._free(held),
            rates=self.config.rates,
            calendar=calendar,
            allowance=allowed,
            now=now,
        )
        if gpus:
            return Turn(replace(lease, gpus=gpus))
        expected = self.expected_start(lease, State(held, tuple(order)))
        position = 1 + [one.id for one in order].index(id_)
        over = self._over_quota(lease)
        return Turn(lease, position, None if over else expected, over)

    def _in_order(self, waiting: Sequence[Lease]) -> list[Lease]:
        half_life = self.config.rules.half_life_seconds
        if half_life is None or len(waiting) < 2:
            return in_order(waiting)
        now = self.clock.wall()
        recent = self._select(
            'start IS NOT NULL AND COALESCE("end", ?) > ?', now, now - 10 * half_life
        )
        return in_order(waiting, recent_use(self.config.rules, recent, now, waiting))

    def _allowance(self, living: Sequence[Lease]) -> Allowance:
        rules, now = self.config.rules, self.clock.wall()
        recent = []
        if rules.weekly_hours:
            recent = self._select(
                'start IS NOT NULL AND COALESCE("end", ?) > ?', now, now - WEEK_SECONDS
            )
        return allowance(rules, living, recent, now)

    def _refuse_above_quota(self, caller: Caller, parts: int) -> None:
        """What a group may never hold is not waited for."""
        quotas = self.config.rules.quotas
        for group in sorted(groups_of(caller.uid) & quotas.keys()) if quotas else ():
            if parts > quotas[group] * WHOLE:
                raise UserMistake(
                    f"the group {group} has a quota of {quotas[group]} "
                    f"GPU{'' if quotas[group] == 1 else 's'} at once; ask for fewer"
                )

    def _over_quota(self, lease: Lease) -> str:
        group = self._allowance(self._living()).exceeded(lease)
        return f"the group {group} has used up its quota" if group else ""

    def _free(self, held: Sequence[Lease]) -> dict[int, int]:
        free = dict.fromkeys(self._indices, WHOLE)
        for lease in held:
            for gpu in lease.gpus:
                if gpu in free:
                    free[gpu] -= lease.parts
        return free

    def _dead(self, *, stop_overdue: bool) -> list[tuple[Lease, str]]:
        """Leases that nobody has any more, and how each ended."""
        dead = []
        for lease in self._living():
            if lease.boot_id != self.clock.boot_id:
                dead.append((lease, "reboot"))
            elif self.locks.is_free(lease.id) and not (lease.held and self._survivors(lease)):
                dead.append((lease, "died"))
            elif (
                stop_overdue
                and lease.until_boot is not None
                and lease.until_boot <= self.clock.boot()
                and self._stop(lease, "time")
            ):
                dead.append((lease, "time"))
        return dead

    def _stop(self, lease: Lease, why: str) -> bool:
        """End its processes; why is noted first, for the launcher may still say by itself that it ended."""
        with self.database.transaction() as connection:
            connection.execute("UPDATE leases SET ending = ? WHERE id = ?", (why, lease.id))
        launcher = (lease.pid, lease.process_start)
        lock = self.locks.identity(lease.id)
        grace = self.config.grace_seconds
        ended = processes.stop(lease.id, lease.uid, lock, launcher, grace)
        return ended and self.locks.is_free(lease.id)

    def _survivors(self, lease: Lease) -> list[int]:
        return processes.processes_of(lease.id, lease.uid, self.locks.identity(lease.id))

    def _end_all(
        self, connection: "sqlite3.Connection", ended: Sequence[tuple[Lease, str]]
    ) -> None:
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
        grouped = self.groups.ids()
        if ended or grouped:
            living = {lease.id for lease in self._living()}
            self.groups.sweep(grouped - living)
        if ended:
            self.locks.sweep(living)

    def _end_of(self, lease: Lease) -> float:
        """On the clock by which it started, however that was set since; before a reboot: when it came."""
        start = lease.start or 0.0
        if lease.boot_id == self.clock.boot_id and lease.start_boot is not None:
            return start + self.clock.boot() - lease.start_boot
        return max(start, self.clock.wall() - self.clock.boot())

    def _remove_locks(self, ended: Sequence[tuple[Lease, str]]) -> None:
        for lease, _ in ended:
            self.locks.remove(lease.id)

    def _living(self) -> list[Lease]:
        return self._select("ended IS NULL")

    def _select(self, condition: str, *values: object) -> list[Lease]:
        with self.database.sentences():
            rows = self.database.connection.execute(
                # the condition is one of the few above, never a user's text
                f"SELECT {COLUMNS} FROM leases WHERE {condition} ORDER BY number",  # noqa: S608
                values,
            ).fetchall()
        return [Lease.from_row(row) for row in rows]

    def _by_id(self, id_: str) -> Lease:
        found = self._select("id = ? AND ended IS NULL", id_)
        if not found:
            raise _gone(id_)
        return found[0]

    def _own(self, caller: Caller, id_: str) -> Lease:
        found = self._by_id(id_)
        if caller.uid != found.uid:
            raise GpuyardError(f"lease {id_} is {found.user}'s, not yours")
        return found

    def _refuse_unless_all(self, lease: Lease, request: Request) -> None:
        """Who does not wait gets what they asked for, or a sentence."""
        if not lease.held:
            if over := self._over_quota(lease):
                raise NoneFree(f"no more GPUs can be had now: {over}")
            raise NoneFree(self._busy_sentence(request))
        if request.seconds is None and lease.until_boot is not None:
            raise NoneFree(
                f"GPU {', '.join(map(str, lease.gpus))} is reserved from "
                f"{shown(self.clock.wall_at(lease.until_boot))} on; say how long you need it with --for"
            )

    def _busy_sentence(self, request: Request) -> str:
        what = (
            f"GPU {', '.join(map(str, request.gpus))}"
            if request.gpus
            else f"{request.count} GPU{'' if request.count == 1 else 's'}"
        )
        more = " or has reserved them" if self._reservations.current() else " them"
        return f"{what} can't be had now; `gpuyard who` shows who holds{more}"


def _stopped(lease: Lease, asking: str) -> bool:
    """Whoever waits and was stopped is passed over until they go on."""
    return lease.id != asking and processes.is_stopped(lease.pid)


def _utilisation(lease: Lease, readings: Mapping[int, Reading]) -> list[float]:
    found = (readings.get(gpu, Reading()).utilisation for gpu in lease.gpus)
    return [share for share in found if share is not None]


def _gone(id_: str) -> UserMistake:
    return UserMistake(f"there is no lease {id_!r} now; `gpuyard who` lists them")
