"""Every operation on a share, on behalf of a caller whom the kernel identified.

A lease lives as long as its lock is held or one of its processes runs. Nothing renews it: the next operation checks
whether the lock is free, and ends dead leases before it grants their GPUs again.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError
from gpuyard.share import processes
from gpuyard.share.caller import Caller, this_process
from gpuyard.share.clock import Clock
from gpuyard.share.config import ALL, Rules, lock_config, read_config
from gpuyard.share.expiry import LeaseReaper
from gpuyard.share.grants import GrantPolicy
from gpuyard.share.models import (
    ExpectedStart,
    Lease,
    LeaseRequest,
    QueueStatus,
    Reservation,
    ReservationRequest,
    ShareState,
)
from gpuyard.share.schedule import WAITING, JobAnnouncement, ScheduleAnswer
from gpuyard.share.store import Store

if TYPE_CHECKING:
    from gpuyard.share.fair_share import PastUse
    from gpuyard.share.reservations import Reservations

MAX_LEASES_PER_USER = 100  # so that no user can fill the disk or slow down the others
MAX_WAITING_PER_USER = 50
_HEAD_START_SECONDS = 2.0  # for launchers, which stop their commands themselves
_MAX_PREDICTED_STARTS = 10  # each takes longer the longer the queue is
_MAX_HISTORY_ROWS = 1000  # fit into one message of the service, however long they are


class _LacksGpus(Exception):
    """A request would get no GPUs now."""


class Broker:
    """The operations of one caller; one object per thread."""

    def __init__(
        self,
        directory: Path,
        caller: Caller | None = None,
        *,
        clock: Clock | None = None,
        read_only: bool = False,
        past_use: "PastUse | None" = None,
    ) -> None:
        """`caller` is this process by default; `past_use` is shared by all brokers of a process."""
        self.caller = caller or this_process()
        self.store = Store(directory, clock=clock, read_only=read_only)
        self._locks = self.store.locks
        self._reaper = LeaseReaper(self.store)
        self._policy = GrantPolicy(self.store, past_use)

    def close(self) -> None:
        self.store.close()

    def ask(self, request: LeaseRequest) -> tuple[QueueStatus, int]:
        """Request GPUs. Return a lease or a place in the queue, with the lock that its holder must keep open."""
        parts = self._policy.check(request)
        request = self._policy.limit_time(request)
        self._end_dead(stop_overdue=False)
        self._look_for_strangers()
        self._policy.scheduler.refresh()
        if self._has_overdue():
            with contextlib.suppress(_LacksGpus):
                return self._insert(request, parts, needs_gpus=True)
            self._end_dead()
            self._policy.scheduler.refresh()
        return self._insert(request, parts)

    def _insert(
        self, request: LeaseRequest, parts: int, *, needs_gpus: bool = False
    ) -> tuple[QueueStatus, int]:
        """Add a request and grant it if it is next; if it `needs_gpus` and gets none, add nothing."""
        lease_id, lock = "", -1
        try:
            with self.store.transaction() as connection:
                self._reaper.record_ends(connection, ())  # removes groups that leases left behind
                self._check_lease_count()
                self.store.config.rules.check_quota(
                    self.caller.uid, self.caller.user, request.count
                )
                lease_id, lock = self._locks.create()
                self._locks.record_asking(lease_id, self.store.clock.boot())
                self.store.insert_request(
                    connection, self.caller, request, lease_id=lease_id, parts=parts
                )
                status = self._policy.grant(connection, self.caller, lease_id)
                if needs_gpus and not status.lease.held:
                    raise _LacksGpus
                if not request.waits:
                    self._policy.refuse_unless_complete(status, request)
        except BaseException:  # on a full disk, it is the commit that fails
            if lock != -1:
                os.close(lock)
                self._locks.remove(lease_id)
            raise
        return self._predict_start(status), lock

    def claim(self, lease_id: str) -> QueueStatus:
        """Return the place of a request in the queue; if it is next, grant its GPUs."""
        lease = self.store.find_own_lease(self.caller, lease_id)
        if lease.held:
            return QueueStatus(lease)
        self._locks.record_asking(lease_id, self.store.clock.boot())
        self._end_dead(stop_overdue=False)
        self._look_for_strangers()
        self._policy.scheduler.refresh()
        status = self._policy.queue_status(lease_id)
        if not status.lease.gpus and self._has_overdue():
            self._end_dead()
            self._policy.scheduler.refresh()
            status = self._policy.queue_status(lease_id)
        if not status.lease.gpus:
            return status  # nothing to write
        with self.store.transaction() as connection:
            granted = self._policy.grant(connection, self.caller, lease_id)
        return self._predict_start(granted)

    def _predict_start(self, status: QueueStatus) -> QueueStatus:
        """Add the expected start of a request that waits."""
        if not status.lease.held:
            with contextlib.suppress(GpuyardError):
                predicted = self._policy.queue_status(status.lease.id)
                if not predicted.lease.gpus:  # otherwise, it is next when it asks again
                    return predicted
        return status

    def _has_overdue(self, seconds: float = 0.0) -> bool:
        """Return whether leases are over their time, by at least that many seconds."""
        latest = self.store.clock.boot() - seconds
        return bool(self.store.select_leases("end_reason IS NULL AND until_boot <= ?", latest))

    def _end_dead(self, head_start_seconds: float = 0.0, *, stop_overdue: bool = True) -> None:
        """Record the end of dead leases; stop those that are over their time first, which takes a grace period."""
        dead = self._reaper.find_dead(
            stop_overdue=stop_overdue, head_start_seconds=head_start_seconds
        )
        if dead:
            with self.store.transaction() as connection:
                self._reaper.record_ends(connection, dead)
            self._reaper.remove_locks(dead)

    def _look_for_strangers(self) -> None:
        """Find GPUs that somebody uses without a lease. A driver may hang, so it is not for transactions."""
        from gpuyard.share.gpus import read_recent
        from gpuyard.share.misuse import find_busy_gpus

        config = self.store.config
        readings = read_recent(self.store.directory, config)
        held = self.store.held_leases() if readings else ()
        self.store.busy = find_busy_gpus(config, held, readings)

    def enclose(self, lease_id: str, pid: int) -> None:
        """Give another process of the caller access to the GPUs of a lease, and to no others."""
        self.store.find_own_lease(self.caller, lease_id)
        process_start = processes.start_time(pid)
        if processes.owner(pid) != self.caller.uid:
            raise GpuyardError(f"process {pid} is not yours")
        self.store.cgroups.add(lease_id, pid, process_start)

    def leave(self, lease_id: str) -> None:
        """Give up a place in the queue."""
        self.store.find_own_lease(self.caller, lease_id)
        with self.store.transaction() as connection:
            deleted = connection.execute(
                "DELETE FROM leases WHERE id = ? AND start IS NULL", (lease_id,)
            ).rowcount
        if deleted:  # the lock of a held lease must stay: it shows who holds the GPUs
            self._locks.remove(lease_id)

    def finish(self, lease_id: str, *, childless: bool) -> bool:
        """End a lease whose command has ended, unless processes of it remain; return whether it ended.

        `childless` means that the kernel reports no remaining child to the launcher, so its own lock is the last one.
        Otherwise the launcher has closed the lock, and /proc is searched. It is also searched if another process calls:
        GPUs that are still in use are never granted again, whatever their user claims.
        """
        lease = self.store.find_own_lease(self.caller, lease_id)
        if not childless and not self._locks.is_free(lease_id):
            return False
        if not (childless and self.caller.pid == os.getpid()) and any(
            pid != self.caller.pid for pid in self._reaper.find_survivors(lease)
        ):
            return False
        now = self.store.clock.boot()
        overdue = lease.until_boot is not None and lease.until_boot <= now
        self._end(lease, "time" if overdue else "finished")
        return True

    def release(self, lease_id: str) -> Lease:
        """Stop the processes of a lease, then end it before its time."""
        lease = self.store.find_lease(lease_id)
        group = self.store.config.admin_group
        is_admin = self.caller.is_admin(group)
        if self.caller.uid != lease.uid and not is_admin:
            raise GpuyardError(
                f"lease {lease_id} belongs to {lease.user}; only {lease.user} and members of the group "
                f"{group} can release it"
            )
        if self.caller.pid == os.getpid():  # this process may run on the lease itself
            self._locks.close_inherited(lease_id)
        stuck = self._reaper.stop([lease], "released")
        if stuck and not is_admin:
            raise GpuyardError(
                f"lease {lease_id} stays, because these processes are stuck in the kernel: "
                f"{', '.join(map(str, stuck[lease_id]))}; members of the group {group} can end it nevertheless"
            )
        try:
            self._end(lease, "released")
        except GpuyardError:  # the disk is full: without its lock, the lease counts as dead
            self._locks.remove(lease_id)
        return lease

    def expect_clients(self) -> None:
        """Let all requests keep their places after a time in which the service was away and nobody could ask."""
        for lease in self.store.active_leases():
            if not lease.held:
                self._locks.record_asking(lease.id, self.store.clock.boot())

    def end_overdue(self) -> None:
        """Stop leases that are over their time, even if no request needs their GPUs."""
        head_start_seconds = self.store.config.grace_seconds + _HEAD_START_SECONDS
        if self._has_overdue(head_start_seconds):
            self._end_dead(head_start_seconds)

    def _end(self, lease: Lease, reason: str) -> None:
        with self.store.transaction() as connection:
            self._reaper.record_ends(connection, [(lease, reason)])
        self._locks.remove(lease.id)

    def schedule(self, runner: str, jobs: list[JobAnnouncement]) -> ScheduleAnswer:
        """Announce the open jobs of one of the caller's runners; return which of them start or are resized."""
        self.store.config.check_scheduler("gpuyard submit --engine slurm")
        self._end_dead(stop_overdue=False)
        self._look_for_strangers()
        answer = self._policy.scheduler.announce(self.caller, runner, jobs)
        lacks_gpus = any(job.phase == WAITING and job.id not in answer.starts for job in jobs)
        if lacks_gpus and self._has_overdue():
            self._end_dead()
            answer = self._policy.scheduler.announce(self.caller, runner, jobs)
        return answer

    def state(self) -> ShareState:
        """Return all current leases, requests, and reservations; record the end of dead leases if possible."""
        dead = self._reaper.find_dead(stop_overdue=False)
        if dead:
            with contextlib.suppress(GpuyardError), self.store.transaction() as connection:
                self._reaper.record_ends(connection, dead)
            self._reaper.remove_locks(dead)
        dead_ids = {lease.id for lease, _ in dead}
        active = [lease for lease in self.store.active_leases() if lease.id not in dead_ids]
        waiting = self._policy.sort_queue([lease for lease in active if not lease.held])
        return ShareState(
            tuple(self._hide_commands([lease for lease in active if lease.held])),
            tuple(self._hide_commands(waiting)),
            tuple(self.store.reservations()),
            tuple(self._policy.scheduler.announced()),
            self._policy.withheld(active),
            tuple(self._predict_starts(waiting[:_MAX_PREDICTED_STARTS])),
            self._policy.scheduler.reasons(),
        )

    def _predict_starts(self, waiting: Sequence[Lease]) -> Iterator[ExpectedStart]:
        if waiting:
            self._look_for_strangers()
        for lease in waiting:
            with contextlib.suppress(GpuyardError):  # it may have left the queue
                status = self._policy.queue_status(lease.id)
                is_next = bool(status.lease.gpus)
                yield ExpectedStart(
                    lease.id, 0.0 if is_next else status.expected_seconds, status.reason
                )

    def history_page(self, after: int = 0, since: float = 0.0) -> list[Lease]:
        """Return the oldest leases that have a number above `after` and held GPUs, at `since` or later."""
        leases = self.store.select_leases(
            'start IS NOT NULL AND number > ? AND ("end" IS NULL OR "end" >= ?)',
            *(after, since),
            limit=_MAX_HISTORY_ROWS,
        )
        return self._hide_commands(leases)

    def prune_history(self) -> None:
        """Delete some of the leases and reservations that ended before the time for which they are kept."""
        keep_seconds = self.store.config.rules.history_seconds
        if keep_seconds is None:
            return
        before = self.store.clock.wall() - keep_seconds
        old = 'SELECT number FROM leases WHERE end_reason IS NOT NULL AND "end" < ? LIMIT ?'
        if self.store.select(old, (before, 1)):
            with self.store.transaction() as connection:
                connection.execute(
                    f"DELETE FROM leases WHERE number IN ({old})",  # noqa: S608 - our own text
                    (before, _MAX_HISTORY_ROWS),
                )
                connection.execute('DELETE FROM reservations WHERE "end" < ?', (before,))

    def _hide_commands(self, leases: Sequence[Lease]) -> list[Lease]:
        """Remove the commands of other users, which can contain secrets, unless the caller may see them."""
        config = self.store.config
        if config.rules.commands == ALL or self.caller.is_admin(config.admin_group):
            return list(leases)
        return [
            lease if lease.uid == self.caller.uid else replace(lease, command="")
            for lease in leases
        ]

    def reserve(self, request: ReservationRequest) -> Reservation:
        """Reserve GPUs for a later time."""
        self.store.config.check_scheduler("scontrol create reservation")
        return self._reservations().reserve(self.caller, request)

    def cancel(self, reservation_id: str) -> Reservation:
        """Cancel a reservation."""
        return self._reservations().cancel(self.caller, reservation_id)

    def drain(self, gpus: tuple[int, ...], until: float | None) -> Reservation:
        """Grant no new leases on these GPUs (none named: on any). For admins."""
        self.store.config.check_scheduler("scontrol update NodeName=NODE State=DRAIN Reason=REASON")
        return self._reservations().drain(self.caller, gpus, until)

    def resume(self) -> list[Reservation]:
        """End all drains. For admins."""
        return self._reservations().resume(self.caller)

    def _reservations(self) -> "Reservations":
        from gpuyard.share.reservations import Reservations  # a lease needs only the calendar

        return Reservations(self.store)

    def set_rules(self, rules: Rules, before: Rules | None = None) -> None:
        """Change the policy from the one that the caller has read `before`. For admins."""
        group = self.store.config.admin_group
        if not self.caller.is_admin(group):
            raise GpuyardError(f"only root and members of the group {group} can set the policy")
        if rules.job_policy != self.store.config.rules.job_policy or rules.explore_gpu_seconds:
            from gpuyard.policies import get_policy

            get_policy(rules.job_policy, explore_gpu_s=rules.explore_gpu_seconds)
        with lock_config(self.store.directory):  # its owner may have changed since it was read
            config = read_config(self.store.directory)
            if before is not None and config.rules not in (before, rules):
                raise GpuyardError(
                    "somebody else changed the policy in the meantime; look at it with `gpuyard share policy`, and "
                    "repeat your change"
                )
            self.store.config = replace(config, rules=rules)
            self.store.config.write(self.store.directory)

    def record_utilization(self, utilization: Mapping[int, float]) -> None:
        """Add a sample of the GPUs' utilization to each lease, if the store can be written."""
        now = self.store.clock.boot()
        samples = [
            (lease.number, [utilization[gpu] for gpu in lease.gpus if gpu in utilization])
            for lease in self.store.held_leases()
        ]
        rows = [
            (sum(shares) / len(shares), max(shares) > 0, now, number)
            for number, shares in samples
            if shares
        ]
        if not rows:
            return
        with contextlib.suppress(GpuyardError), self.store.transaction() as connection:
            connection.executemany(
                "UPDATE leases SET utilization_sum = utilization_sum + ?,"
                " utilization_samples = utilization_samples + 1,"
                " idle_since_boot = CASE WHEN ? THEN NULL ELSE COALESCE(idle_since_boot, ?) END"
                " WHERE number = ? AND end_reason IS NULL",
                rows,
            )

    def _check_lease_count(self) -> None:
        own = [lease for lease in self.store.active_leases() if lease.uid == self.caller.uid]
        waiting = sum(not lease.held for lease in own)
        if len(own) - waiting >= MAX_LEASES_PER_USER:
            raise GpuyardError(
                f"{self.caller.user} has {MAX_LEASES_PER_USER} leases, which is the limit per user; "
                "release some first"
            )
        if waiting >= MAX_WAITING_PER_USER:
            raise GpuyardError(
                f"{self.caller.user} has {MAX_WAITING_PER_USER} requests in the queue, which is the limit per "
                "user; wait until some have started"
            )
