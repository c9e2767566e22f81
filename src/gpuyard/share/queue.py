"""The queue: its order, which request may start now and on which GPUs, and when each is expected to start.

All functions are pure. Reservations are appointments by the wall clock. A `Calendar` counts seconds since boot, as leases
do, converted by the wall clock as it is set when the calendar is created.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuyard.share.calendar import Calendar
from gpuyard.share.gpu_choice import choose_free_gpus
from gpuyard.share.models import WHOLE, Lease, Rates


@dataclass(frozen=True)
class Allowance:
    """The GPUs that groups may still lease."""

    remaining: Mapping[str, int] = field(default_factory=dict)
    """More GPUs by group; a missing group has no limit, and -1 forbids even shares of GPUs that it uses already."""
    groups: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Groups by UID."""
    used: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """GPUs by group of which members hold any share. Each counts as one, because others cannot lease it as a whole."""

    def exceeded_group(self, lease: Lease, free: Mapping[int, int] | None = None) -> str | None:
        """Return a group that may not use as many more GPUs as this lease needs.

        `free` has the free parts of GPUs on which a lease for a share may be placed next to others of its group.
        """
        free = free or {}
        for group in self._limited_groups(lease):
            used = self.used.get(group, frozenset())
            if lease.requested_gpus:
                more = len(set(lease.requested_gpus) - used)
            else:
                more = lease.count - sum(free.get(gpu, 0) >= lease.parts for gpu in used)
            if max(0, more) > self.remaining[group]:
                return group
        return None

    def limit_choice(self, lease: Lease, free: Mapping[int, int]) -> Mapping[int, int]:
        """Return the GPUs among which any choice keeps to the quotas: used ones, and as many others as remain."""
        for group in self._limited_groups(lease):
            if lease.count > self.remaining[group]:
                used = self.used.get(group, frozenset())
                others = sorted(
                    (gpu for gpu in free if gpu not in used and free[gpu] >= lease.parts),
                    key=lambda gpu: (free[gpu], gpu),
                )
                allowed = used.union(others[: max(0, self.remaining[group])], lease.requested_gpus)
                free = {gpu: parts for gpu, parts in free.items() if gpu in allowed}
        return free

    def subtract(self, lease: Lease, gpus: Sequence[int] = ()) -> "Allowance":
        """Return the allowance after a lease has started on these GPUs; by default, on GPUs that are new to its group."""
        remaining, used = dict(self.remaining), dict(self.used)
        for group in self._limited_groups(lease):
            before = used.get(group, frozenset())
            used[group] = before.union(gpus)
            remaining[group] -= len(used[group]) - len(before) if gpus else lease.count
        return Allowance(remaining, self.groups, used)

    def _limited_groups(self, lease: Lease) -> list[str]:
        return sorted(self.groups.get(lease.uid, frozenset()) & self.remaining.keys())


def sort_queue(waiting: Sequence[Lease], recent_use: Mapping[int, float]) -> list[Lease]:
    """Sort by priority, then by recent use of the user (by UID), then by arrival."""
    return sorted(
        waiting,
        key=lambda lease: (-lease.priority, recent_use.get(lease.uid, 0.0), lease.number),
    )


def waits_for_own_lease(
    request: Lease, order: Sequence[Lease], held: Sequence[Lease], gpus: Sequence[int]
) -> bool:
    """Return whether a request can start only after a lease of its own user that has no time limit.

    Its user could let it wait forever, so it keeps no GPUs from other users who wait.
    """
    if all(other.uid == request.uid for other in order):
        return False
    free = dict.fromkeys(gpus, WHOLE)
    for lease in held:
        if lease.uid == request.uid and lease.until_boot is None:
            free |= {gpu: free[gpu] - lease.parts for gpu in lease.gpus if gpu in free}
    return choose_free_gpus(request.count, request.parts, request.requested_gpus, free, {}) is None


def choose_gpus_in_turn(
    lease: Lease,
    order: Sequence[Lease],
    free: Mapping[int, int],
    held: Sequence[Lease],
    *,
    rates: Rates,
    calendar: Calendar,
    allowance: Allowance,
    now: float,
) -> tuple[int, ...] | None:
    """Return the GPUs that a request gets now; None: it has to wait. No request delays an earlier one.

    GPUs on which an earlier request could start are left to it, and so are those that it waits for. If reservations or
    leases with a time limit keep an earlier one from starting, others with a time limit may use GPUs until it can
    start.
    """
    remaining, running = dict(free), list(held)
    for earlier in order:
        if all(parts < lease.parts for parts in remaining.values()):
            return None
        if allowance.exceeded_group(earlier, remaining):  # it waits for its group; others may pass
            if earlier.id == lease.id:
                return None
            continue
        choice = allowance.limit_choice(earlier, remaining)
        gpus = calendar.choose_gpus(earlier, choice, rates, now)
        if earlier.id == lease.id:
            return gpus
        if gpus:
            for gpu in gpus:
                remaining[gpu] -= earlier.parts
            end = now + (earlier.seconds or math.inf)
            running.append(replace(earlier, gpus=gpus, until_boot=end))
            allowance = allowance.subtract(earlier, gpus)
        elif calendar.is_possible(earlier, tuple(remaining), now):
            start = expected_start(
                earlier, [earlier], remaining, running, calendar=calendar, now=now
            )
            usable = calendar.usable_gpus(earlier, tuple(remaining), now)
            kept = usable.intersection(earlier.requested_gpus or remaining)
            if start is None:
                remaining.update(dict.fromkeys(kept, 0))
            else:
                calendar = calendar.add_promise(earlier, tuple(kept), start)
        else:
            start = calendar.first_possible_start(earlier, tuple(remaining), now)
            if start < math.inf:  # otherwise it is unknown whether it can ever start
                calendar = calendar.add_promise(earlier, tuple(remaining), start)
    return None


def expected_start(
    lease: Lease,
    order: Sequence[Lease],
    free: Mapping[int, int],
    held: Sequence[Lease],
    *,
    calendar: Calendar,
    now: float,
) -> float | None:
    """Return when a request starts if every lease uses its whole time; None if one before it has no time limit."""
    remaining = dict(free)
    booking_ends = sorted({b.end for b in calendar.bookings if now < b.end < math.inf})
    lease_ends = [(running.until_boot or math.inf, running) for running in held]
    for earlier in order:
        while (gpus := _choose_if_enough(earlier, remaining, calendar, now)) is None:
            lease_ends.sort(key=lambda end: end[0])
            next_end = lease_ends[0][0] if lease_ends else math.inf
            if booking_ends and booking_ends[0] < next_end:
                now = max(now, booking_ends.pop(0))
                continue
            if math.isinf(next_end):
                return None
            _, ending = lease_ends.pop(0)
            now = max(now, next_end)
            for gpu in ending.gpus:
                if gpu in remaining:
                    remaining[gpu] += ending.parts
        if earlier.id == lease.id:
            return now
        for gpu in gpus:
            remaining[gpu] -= earlier.parts
        lease_ends.append((now + (earlier.seconds or math.inf), replace(earlier, gpus=gpus)))
    return None


def _choose_if_enough(
    lease: Lease, free: Mapping[int, int], calendar: Calendar, now: float
) -> tuple[int, ...] | None:
    """Choose GPUs for a lease; do not read the calendar while too few are free."""
    if choose_free_gpus(lease.count, lease.parts, lease.requested_gpus, free, {}) is None:
        return None
    return calendar.choose_gpus(lease, free, {}, now)
