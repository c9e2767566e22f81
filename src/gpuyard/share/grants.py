"""Which requests get GPUs: checks of a request, its place in the queue, and the grant itself."""

import json
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from gpuyard.errors import UserMistake
from gpuyard.share import queue
from gpuyard.share.caller import Caller
from gpuyard.share.config import describe_used_quota, read_config
from gpuyard.share.models import WHOLE, Lease, LeaseRequest, NoneFree, QueueStatus
from gpuyard.share.ownership import check_sole_owner
from gpuyard.share.queue import Allowance
from gpuyard.share.schedule import Withheld
from gpuyard.share.scheduling import JobScheduler
from gpuyard.share.store import Store, insert_holds, lease_not_found

if TYPE_CHECKING:
    from gpuyard.share.fair_share import PastUse

_LEASE_WITH_SLURM = "gpuyard lease N -- COMMAND, or --shell"


class GrantPolicy:
    """The decisions behind `Broker.ask` and `Broker.claim`, which own the transaction."""

    def __init__(self, store: Store, past_use: "PastUse | None") -> None:
        """`past_use` is shared by all brokers of a process, so that a long history is not summed by each."""
        self._store = store
        self._clock = store.clock
        self._past_use = past_use
        self.scheduler = JobScheduler(store, self.sort_queue, self._allowance)

    def check(self, request: LeaseRequest) -> int:
        """Return the parts of each GPU that a request needs; raise UserMistake if it can never be granted."""
        config = self._store.config
        config.check_scheduler(_LEASE_WITH_SLURM)
        check_sole_owner(config)
        config.check_gpus(request.count, request.gpus)
        sizes = [config.gpu(index).memory_bytes for index in request.gpus or config.indices]
        parts = request.required_parts(sizes)
        if parts is None:
            raise UserMistake("the memory size of these GPUs is unknown; use --share instead")
        if parts > WHOLE:
            raise UserMistake("no GPU has that much memory; lease whole GPUs, without --gpu-memory")
        return parts

    def limit_time(self, request: LeaseRequest) -> LeaseRequest:
        """Return the request with the maximum lease time if it has none; refuse one that is longer."""
        rules = self._store.config.rules
        if request.seconds is None:
            return replace(request, seconds=rules.max_lease_seconds)
        rules.check_time("lease", request.seconds)
        return request

    def grant(self, connection: sqlite3.Connection, caller: Caller, lease_id: str) -> QueueStatus:
        """Inside a transaction, grant a request its GPUs if it is next.

        The owner of the GPUs changes inside a transaction too, so the configuration is read again.
        """
        read_config(self._store.directory).check_scheduler(_LEASE_WITH_SLURM)
        status = self.queue_status(lease_id, predict_start=False)
        gpus = status.lease.gpus
        if status.lease.held or not gpus:
            return status
        now, seconds = self._clock.boot(), status.lease.seconds
        until = self._store.calendar().latest_end(gpus, status.lease.uid, now)
        if seconds is not None:
            until = min(now + seconds, math.inf if until is None else until)
        lease = replace(status.lease, start=self._clock.wall(), start_boot=now, until_boot=until)
        connection.execute(
            "UPDATE leases SET gpus = ?, start = ?, start_boot = ?, until_boot = ? WHERE id = ?",
            (json.dumps(gpus), lease.start, now, until, lease_id),
        )
        insert_holds(connection, lease)
        self._store.locks.write_note(lease_id, json.dumps(asdict(lease)))
        config = self._store.config
        if config.isolation:
            from gpuyard.share.devices import split_device_numbers

            own, others = split_device_numbers(config, gpus)
            self._store.cgroups.enclose(
                lease_id,
                caller.pid,
                config.isolation,
                own=own,
                others=others,
                process_start=caller.process_start,
            )
        return QueueStatus(lease, reason=status.reason)

    def queue_status(self, lease_id: str, *, predict_start: bool = True) -> QueueStatus:
        """Return the place of a request; `gpus` of its lease are those that it would get now.

        Inside a transaction, do not predict its start, because that takes long in a long queue.
        """
        active = self._store.active_leases()
        lease = next((lease for lease in active if lease.id == lease_id), None)
        if lease is None:
            raise lease_not_found(lease_id)
        if lease.held:
            return QueueStatus(lease)
        held = [other for other in active if other.held]
        order = self._order(active, held, lease)
        order = self.scheduler.pending(active).insert_into(order)
        free = self._free_parts(held)
        calendar = self._store.calendar()
        allowance = self._allowance([*active, *order])
        now = self._clock.boot()
        gpus = queue.choose_gpus_in_turn(
            lease,
            order,
            free,
            held,
            rates=self._store.config.rates,
            calendar=calendar,
            allowance=allowance,
            now=now,
        )
        if gpus:
            return QueueStatus(replace(lease, gpus=gpus), reason=self._describe_use(gpus))
        position = 1 + [other.id for other in order].index(lease_id)
        group = allowance.exceeded_group(lease, free)
        if group:
            return QueueStatus(lease, position, None, describe_used_quota(group))
        start = None
        if predict_start:
            start = queue.expected_start(lease, order, free, held, calendar=calendar, now=now)
        accepted = calendar.without_busy().choose_gpus(lease, free, {}, now)
        reason = self._describe_use(accepted or ())
        if reason:
            reason += "; --even-if-busy leases it nevertheless"
        return QueueStatus(lease, position, None if start is None else start - now, reason)

    def _order(
        self, active: Sequence[Lease], held: Sequence[Lease], lease: Lease | None = None
    ) -> list[Lease]:
        """Return the requests that others wait for, and this one, in the order in which they are served."""
        requests = self._store.claimable_requests(active)
        if lease is not None and lease not in requests:
            requests.append(lease)
        gpus = self._store.config.indices
        return self.sort_queue(
            [
                request
                for request in requests
                if request is lease or not queue.waits_for_own_lease(request, requests, held, gpus)
            ]
        )

    def _describe_use(self, gpus: Sequence[int]) -> str:
        """Describe the use of these GPUs without a lease; empty: there is none."""
        return "; ".join(self._store.busy[gpu] for gpu in gpus if gpu in self._store.busy)

    def withheld(self, active: Sequence[Lease]) -> tuple[Withheld, ...]:
        """Return for which waiting job or request idle GPUs are kept, and why."""
        withheld = self.scheduler.withheld(active)
        waiting = [lease for lease in active if not lease.held]
        if withheld or not waiting:
            return withheld
        held, now = [lease for lease in active if lease.held], self._clock.boot()
        order = self._order(active, held)
        allowance, calendar = self._allowance(active), self._store.calendar()
        free = self._free_parts(held)
        first = next((lease for lease in order if not allowance.exceeded_group(lease, free)), None)
        if first is None:
            return ()
        usable = calendar.usable_gpus(first, tuple(free), now)
        idle = [
            gpu
            for gpu in usable.intersection(first.requested_gpus or free)
            if free[gpu] >= first.parts
        ]
        if not idle or calendar.choose_gpus(first, free, {}, now):  # it gets them in a moment
            return ()
        start = queue.expected_start(first, [first], free, held, calendar=calendar, now=now)
        reason = f"it is next in the queue and needs {first.count} GPUs"
        expected = None if start is None else self._clock.wall_at(start)
        name = f"lease {first.id}"
        return (Withheld(len(idle), first.user, name, first.count, reason, expected),)

    def sort_queue(self, waiting: Sequence[Lease]) -> list[Lease]:
        """Sort requests by the order in which they are served."""
        rules = self._store.config.rules
        if rules.half_life_seconds is None or len(waiting) < 2:
            return queue.sort_queue(waiting, {})
        from gpuyard.share.fair_share import recent_use

        now = self._clock.wall()
        past = self._open_past_use().decayed(self._store, rules, now)
        used = recent_use(rules, self._store.held_leases(), now, waiting, past)
        return queue.sort_queue(waiting, used)

    def refuse_unless_complete(self, status: QueueStatus, request: LeaseRequest) -> None:
        """Raise NoneFree unless a request that does not wait got all that it asked for."""
        lease = status.lease
        if not lease.held:
            if status.reason:
                raise NoneFree(f"no more GPUs are available now: {status.reason}")
            raise NoneFree(self._describe_busy(request, lease))
        if request.seconds is None and lease.until_boot is not None:
            from gpuyard.share.timeparse import format_time

            raise NoneFree(
                f"GPU {', '.join(map(str, lease.gpus))} is reserved from "
                f"{format_time(self._clock.wall_at(lease.until_boot))}; add --for with the time that you need"
            )

    def _allowance(self, active: Sequence[Lease]) -> Allowance:
        rules = self._store.config.rules
        if not rules.quotas and not rules.weekly_hours and rules.max_gpus_per_user is None:
            return Allowance()
        from gpuyard.share.fair_share import calculate_allowance

        now = self._clock.wall()
        past: dict[int, float] = {}
        if rules.weekly_hours:
            past = self._open_past_use().last_week(self._store, now)
        return calculate_allowance(rules, active, past, now)

    def _open_past_use(self) -> "PastUse":
        if self._past_use is None:
            from gpuyard.share.fair_share import PastUse

            self._past_use = PastUse()
        return self._past_use

    def _free_parts(self, held: Sequence[Lease]) -> dict[int, int]:
        free = dict.fromkeys(self._store.config.indices, WHOLE)
        for lease in held:
            for gpu in lease.gpus:
                if gpu in free:
                    free[gpu] -= lease.parts
        return free

    def _describe_busy(self, request: LeaseRequest, lease: Lease) -> str:
        what = (
            f"GPU {', '.join(map(str, request.gpus))}"
            if request.gpus
            else f"{request.count} GPU{'' if request.count == 1 else 's'}"
        )
        others = [other for other in self._store.active_leases() if other.id != lease.id]
        for withheld in self.withheld(others):
            if withheld.gpus >= request.count:
                return (
                    f"{what} cannot be leased now: the idle ones are withheld for {withheld.name} of "
                    f"{withheld.user}, because {withheld.reason}; without --now, your request waits "
                    "for its turn"
                )
        owners = "holds or has reserved them" if self._store.reservations() else "holds them"
        return f"{what} cannot be leased now; `gpuyard who` shows who {owners}"
