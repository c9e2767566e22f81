"""Whose turn it is: what a request may have, where it stands, and the GPUs that it is given."""

import contextlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuyard.errors import UserMistake
from gpuyard.share.isolation.groups import Groups
from gpuyard.share.service.caller import Caller
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.config import ShareConfig
from gpuyard.share.store.lease import WHOLE, Lease, LeaseRequest, NoneFree
from gpuyard.share.store.lease_table import LeaseTable, gone
from gpuyard.share.store.locks import Locks
from gpuyard.share.store.past_use import PastUse
from gpuyard.share.turns import queue
from gpuyard.share.turns.choice import parts_of
from gpuyard.share.turns.queue import ShareState, Turn
from gpuyard.share.turns.reservations import Reservations
from gpuyard.share.turns.rules import Allowance, allowance, groups_of, recent_use
from gpuyard.share.turns.when import shown
from gpuyard.share.watch import processes

if TYPE_CHECKING:
    import sqlite3


class Asking:
    """What `Broker.ask` and `claim` decide by; the transaction is theirs."""

    def __init__(
        self,
        *,
        leases: LeaseTable,
        locks: Locks,
        groups: Groups,
        clock: Clock,
        config: ShareConfig,
        reservations: Reservations,
        past: PastUse,
    ) -> None:
        self._leases = leases
        self._past = past
        self._locks = locks
        self._groups = groups
        self._clock = clock
        self._config = config
        self._reservations = reservations

    def check(self, request: LeaseRequest) -> int:
        """How many parts of each GPU it asks for; raises for what nobody can have."""
        self._config.check_is_ours("gpuyard lease N -- COMMAND, or --shell")
        known = self._config.indices
        if request.count > len(known):
            raise UserMistake(f"{request.count} GPUs were requested; this machine has {len(known)}")
        unknown = [index for index in request.gpus if index not in known]
        if unknown:
            raise UserMistake(
                f"there is no GPU {unknown[0]}; this machine has {', '.join(map(str, known))}"
            )
        parts = parts_of(request, [self._config.gpu(i).memory_bytes for i in request.gpus or known])
        if parts is None:
            raise UserMistake("nobody knows how much memory these GPUs have; use --share instead")
        if parts > WHOLE:
            raise UserMistake("no GPU has that much memory; lease whole GPUs, without --memory")
        return parts

    def new_lock(self) -> tuple[str, int]:
        """A name that no lease has, and its lock."""
        while True:
            id_ = os.urandom(4).hex()
            with contextlib.suppress(FileExistsError):
                return id_, self._locks.make(id_)

    def grant(self, connection: "sqlite3.Connection", caller: Caller, id_: str) -> Turn:
        """Inside a transaction: give it its GPUs if it is its turn."""
        found = self.turn(id_)
        gpus = found.lease.gpus
        if found.lease.held or not gpus:
            return found
        now, seconds = self._clock.boot(), found.lease.seconds
        until = self._reservations.calendar().cut(gpus, found.lease.uid, now)
        if seconds is not None:
            until = min(now + seconds, math.inf if until is None else until)
        lease = replace(found.lease, start=self._clock.wall(), start_boot=now, until_boot=until)
        connection.execute(
            "UPDATE leases SET gpus = ?, start = ?, start_boot = ?, until_boot = ? WHERE id = ?",
            (json.dumps(gpus), lease.start, now, until, id_),
        )
        connection.executemany(
            "INSERT INTO holds (lease, gpu, parts) VALUES (?, ?, ?)",
            [(lease.number, gpu, lease.parts) for gpu in gpus],
        )
        self._locks.note(id_, json.dumps(vars(lease)))
        if self._config.isolation:
            own, others = self._config.devices(gpus)
            self._groups.enclose(id_, caller.pid, self._config.isolation, own=own, others=others)
        return Turn(lease)

    def turn(self, id_: str) -> Turn:
        """Where it stands; its `gpus` are those that it would get now."""
        living = self._leases.living()
        lease = next((one for one in living if one.id == id_), None)
        if lease is None:
            raise gone(id_)
        if lease.held:
            return Turn(lease)
        held = tuple(one for one in living if one.held)
        waiting = [one for one in living if not one.held and not _stopped(one, id_)]
        order = self.in_order(waiting)
        allowed = self._allowance(living)
        calendar = self._reservations.calendar()
        now = self._clock.boot()
        gpus = queue.turn(
            lease,
            order,
            self._free(held),
            rates=self._config.rates,
            calendar=calendar,
            allowance=allowed,
            now=now,
        )
        if gpus:
            return Turn(replace(lease, gpus=gpus))
        expected = self.expected_start(lease, ShareState(held, tuple(order)))
        position = 1 + [one.id for one in order].index(id_)
        over = self._over_quota(lease)
        return Turn(lease, position, None if over else expected, over)

    def expected_start(self, lease: Lease, state: ShareState) -> float | None:
        """Seconds from now; None: nobody can say."""
        now = self._clock.boot()
        order = [other for other in state.waiting if not _stopped(other, lease.id)]
        calendar = self._reservations.calendar()
        then = queue.expected_start(
            lease, order, self._free(state.held), state.held, calendar=calendar, now=now
        )
        return None if then is None else then - now

    def in_order(self, waiting: Sequence[Lease]) -> list[Lease]:
        """Those who wait, by whose turn it is."""
        half_life = self._config.rules.half_life_seconds
        if half_life is None or len(waiting) < 2:
            return queue.in_order(waiting)
        now = self._clock.wall()
        past = self._past.decayed(self._leases.database, self._config.rules, now)
        held = [lease for lease in self._leases.living() if lease.held]
        used = recent_use(self._config.rules, held, now, waiting, past)
        return queue.in_order(waiting, used)

    def _allowance(self, living: Sequence[Lease]) -> Allowance:
        rules, now = self._config.rules, self._clock.wall()
        past: dict[int, float] = {}
        if rules.weekly_hours:
            past = self._past.of_last_week(self._leases.database, now)
        return allowance(rules, living, past, now)

    def refuse_above_quota(self, caller: Caller, parts: int) -> None:
        """What a group may never hold is not waited for."""
        quotas = self._config.rules.quotas
        for group in sorted(groups_of(caller.uid) & quotas.keys()) if quotas else ():
            if parts > quotas[group] * WHOLE:
                raise UserMistake(
                    f"the group {group} has a quota of {quotas[group]} "
                    f"GPU{'' if quotas[group] == 1 else 's'} at once; ask for fewer"
                )

    def _over_quota(self, lease: Lease) -> str:
        group = self._allowance(self._leases.living()).exceeded(lease)
        return f"the group {group} has used up its quota" if group else ""

    def _free(self, held: Sequence[Lease]) -> dict[int, int]:
        free = dict.fromkeys(self._config.indices, WHOLE)
        for lease in held:
            for gpu in lease.gpus:
                if gpu in free:
                    free[gpu] -= lease.parts
        return free

    def refuse_unless_all(self, lease: Lease, request: LeaseRequest) -> None:
        """Who does not wait gets what they asked for, or a sentence."""
        if not lease.held:
            if over := self._over_quota(lease):
                raise NoneFree(f"no more GPUs can be had now: {over}")
            raise NoneFree(self._busy_sentence(request))
        if request.seconds is None and lease.until_boot is not None:
            raise NoneFree(
                f"GPU {', '.join(map(str, lease.gpus))} is reserved from "
                f"{shown(self._clock.wall_at(lease.until_boot))} on; say how long you need it with --for"
            )

    def _busy_sentence(self, request: LeaseRequest) -> str:
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
