"""The queue: its order, which request may start now and on which GPUs, and when each is expected to start.

All functions are pure. Reservations are appointments by the wall clock. A `Calendar` counts seconds since boot, as leases
do, converted by the wall clock as it is set when the calendar is created.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

from gpuyard.share.models import DRAIN, WHOLE, Lease, Rates, Reservation

MAX_TABULATED_GPUS = 8
"""Largest machine for which `Rates` has every set of GPUs (255 sets). Larger ones have only pairs, and sets grow from them."""
MIN_SECONDS = 60.0
"""A lease without a time limit gets no GPU that is reserved within this time."""


@dataclass(frozen=True)
class Booking:
    """A time in which GPUs are kept for one user (None: for no one)."""

    uid: int | None
    gpus: tuple[int, ...]
    start: float
    end: float
    is_promise: bool = False
    """Kept for a request in the queue, so its start is not fixed. It cannot end a lease without a time limit."""
    is_busy: bool = False
    """In use without a lease. Requests that accept busy GPUs get them last."""


@dataclass(frozen=True)
class Calendar:
    """All bookings that are not over."""

    bookings: tuple[Booking, ...] = ()

    @classmethod
    def from_reservations(
        cls, reservations: Sequence[Reservation], boot_minus_wall: float
    ) -> "Calendar":
        return cls(
            tuple(
                Booking(
                    None if reservation.kind == DRAIN else reservation.uid,
                    reservation.gpus,
                    reservation.start + boot_minus_wall,
                    reservation.end_or_infinity + boot_minus_wall,
                )
                for reservation in reservations
            )
        )

    @classmethod
    def from_busy(cls, gpus: Collection[int]) -> "Calendar":
        """Return a calendar of GPUs that are in use without a lease, nobody knows how long."""
        if not gpus:
            return cls()
        return cls((Booking(None, tuple(gpus), -math.inf, math.inf, is_busy=True),))

    def without_busy(self) -> "Calendar":
        """Return the calendar for requests that accept busy GPUs."""
        return Calendar(tuple(booking for booking in self.bookings if not booking.is_busy))

    @cached_property
    def _by_gpu(self) -> dict[int, list[Booking]]:
        """The bookings of each GPU by start."""
        by_gpu: dict[int, list[Booking]] = {}
        for booking in sorted(self.bookings, key=lambda booking: booking.start):
            for gpu in booking.gpus:
                by_gpu.setdefault(gpu, []).append(booking)
        return by_gpu

    @cached_property
    def _by_user(self) -> dict[int | None, list[Booking]]:
        by_user: dict[int | None, list[Booking]] = {}
        for booking in self.bookings:
            by_user.setdefault(booking.uid, []).append(booking)
        return by_user

    def free_until(self, gpu: int, uid: int, now: float, *, even_if_busy: bool = False) -> float:
        """Return when the next booking of another user starts on a GPU; `now` if one has started."""
        return next(
            (
                max(booking.start, now)
                for booking in self._by_gpu.get(gpu, ())
                if booking.uid != uid
                and booking.end > now
                and not (even_if_busy and booking.is_busy)
            ),
            math.inf,
        )

    def latest_end(self, gpus: Sequence[int], uid: int, now: float) -> float | None:
        """Return when a lease on these GPUs has to end; None if no other user has reserved them."""
        first = min(
            (self.free_until(gpu, uid, now, even_if_busy=True) for gpu in gpus), default=math.inf
        )
        return None if math.isinf(first) else first

    def usable_gpus(self, lease: Lease, gpus: Sequence[int], now: float) -> set[int]:
        """Return the GPUs on which the bookings let a lease start now."""
        promised = self._promised_gpus(lease, now)
        if promised:
            promised -= self.own_gpus(lease.uid, now)
        return {
            gpu
            for gpu in gpus
            if self.free_until(gpu, lease.uid, now, even_if_busy=lease.even_if_busy)
            >= now + _needed_seconds(lease)
            and gpu not in promised
        }

    def _promised_gpus(self, lease: Lease, now: float) -> set[int]:
        """Return the GPUs that are promised to requests before a lease without a time limit."""
        if lease.seconds is not None:
            return set()
        return {
            gpu
            for booking in self.bookings
            if booking.is_promise and booking.end > now
            for gpu in booking.gpus
        }

    def own_gpus(self, uid: int, now: float) -> set[int]:
        """Return the GPUs that a user has reserved for this time."""
        return {
            gpu
            for booking in self._by_user.get(uid, ())
            if booking.start <= now < booking.end
            for gpu in booking.gpus
        }

    def choose_gpus(
        self, lease: Lease, free: Mapping[int, int], rates: Rates, now: float
    ) -> tuple[int, ...] | None:
        """Choose GPUs for a lease: the user's own reserved ones first, then those that stay free the longest."""
        for allowed in self._candidate_sets(lease, tuple(free), now):
            candidates = (
                free if allowed is None else {gpu: free[gpu] for gpu in free if gpu in allowed}
            )
            gpus = choose_free_gpus(
                lease.count, lease.parts, lease.requested_gpus, candidates, rates
            )
            if gpus:
                return gpus
        return None

    def is_possible(self, lease: Lease, gpus: Sequence[int], now: float) -> bool:
        """Return whether a lease could start now if all GPUs were free."""
        usable = self.usable_gpus(lease, gpus, now) if self.bookings else set(gpus)
        if lease.requested_gpus:
            return usable.issuperset(lease.requested_gpus)
        return len(usable) >= lease.count

    def first_possible_start(self, lease: Lease, gpus: Sequence[int], now: float) -> float:
        """Return when the bookings first let a lease start."""
        times = sorted({booking.end for booking in self.bookings if now < booking.end < math.inf})
        # the candidates of each GPU are searched from where the last time ended: there may be hundreds
        blocking = {
            gpu: [
                booking
                for booking in self._by_gpu.get(gpu, ())
                if booking.uid != lease.uid and not (lease.even_if_busy and booking.is_busy)
            ]
            for gpu in lease.requested_gpus or gpus
        }
        next_booking = dict.fromkeys(blocking, 0)
        promised, needed_seconds = self._promised_gpus(lease, now), _needed_seconds(lease)
        for time in times:
            blocked = promised - self.own_gpus(lease.uid, time) if promised else promised
            usable = 0
            for gpu, bookings in blocking.items():
                index = next_booking[gpu]
                while index < len(bookings) and bookings[index].end <= time:
                    index += 1
                next_booking[gpu] = index
                start = bookings[index].start if index < len(bookings) else math.inf
                usable += start >= time + needed_seconds and gpu not in blocked
            if usable >= lease.count:
                return time
        return math.inf

    def add_promise(self, lease: Lease, gpus: Sequence[int], start: float) -> "Calendar":
        """Return a calendar in which requests behind this one in the queue keep its GPUs free."""
        booking = Booking(
            None, lease.requested_gpus or tuple(gpus), start, math.inf, is_promise=True
        )
        return replace(self, bookings=(*self.bookings, booking))

    def _candidate_sets(
        self, lease: Lease, gpus: Sequence[int], now: float
    ) -> Iterator[set[int] | None]:
        """Yield the sets of GPUs to choose from, best first; None: all of them."""
        if not self.bookings:
            yield None
            return
        usable = self.usable_gpus(lease, gpus, now)
        busy = {gpu for booking in self.bookings if booking.is_busy for gpu in booking.gpus}
        last = sorted(usable & busy)
        for count in range(len(last) + 1):  # as few busy ones as possible
            pool = usable - set(last[count:])
            own = pool & self.own_gpus(lease.uid, now)
            if own:
                yield own
            if lease.seconds is None:
                limits = {
                    gpu: self.free_until(gpu, lease.uid, now, even_if_busy=True) for gpu in pool
                }
                for limit in sorted(set(limits.values()), reverse=True):
                    yield {gpu for gpu in pool if limits[gpu] >= limit}
            yield pool


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


def _needed_seconds(lease: Lease) -> float:
    return MIN_SECONDS if lease.seconds is None else lease.seconds


def sort_queue(waiting: Sequence[Lease], recent_use: Mapping[int, float]) -> list[Lease]:
    """Sort by priority, then by recent use of the user (by UID), then by arrival."""
    return sorted(
        waiting,
        key=lambda lease: (-lease.priority, recent_use.get(lease.uid, 0.0), lease.number),
    )


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
            if start < math.inf:  # otherwise nobody knows whether it can ever start
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


def choose_free_gpus(
    count: int, parts: int, requested: Sequence[int], free: Mapping[int, int], rates: Rates
) -> tuple[int, ...] | None:
    """Return the GPUs for a request, given the free parts of each GPU; None: it has to wait."""
    candidates = [gpu for gpu, free_parts in sorted(free.items()) if free_parts >= parts]
    if requested:
        return tuple(requested) if set(requested) <= set(candidates) else None
    if len(candidates) < count:
        return None
    if parts < WHOLE:
        candidates.sort(key=lambda gpu: (free[gpu], gpu))  # the fullest GPU that still has room
        return tuple(sorted(candidates[:count]))
    if not rates or count == 1:
        return tuple(candidates[:count])
    # max returns the first of several equal sets
    if gpu_mask(candidates[:count]) in rates:
        return max(combinations(candidates, count), key=lambda gpus: rates.get(gpu_mask(gpus), 0.0))
    return max(
        (_grow_set(first, count, candidates, rates) for first in candidates),
        key=lambda gpus: _ring_rates(gpus, rates),
    )


def _grow_set(first: int, count: int, candidates: Sequence[int], rates: Rates) -> tuple[int, ...]:
    """Start from one GPU, and keep adding the one with the fastest links to those chosen so far."""
    chosen = [first]
    total_rates = {gpu: 0.0 for gpu in candidates if gpu != first}
    while len(chosen) < count:
        for gpu in total_rates:
            total_rates[gpu] += rates.get(1 << gpu | 1 << chosen[-1], 0.0)
        best = max(total_rates, key=total_rates.__getitem__)
        del total_rates[best]
        chosen.append(best)
    return tuple(sorted(chosen))


def _ring_rates(gpus: Sequence[int], rates: Rates) -> tuple[float, float]:
    """Return the best rate of a ring, in which each GPU has two neighbors, and the sum over all pairs as tie-breaker."""
    pair_rates = [sorted(rates.get(1 << a | 1 << b, 0.0) for b in gpus if a != b) for a in gpus]
    return min(gpu_rates[-2] for gpu_rates in pair_rates), sum(map(sum, pair_rates))


def gpu_mask(gpus: Sequence[int]) -> int:
    """Return the bit mask of a set of GPUs: {0, 2} → 0b101."""
    return sum(1 << gpu for gpu in gpus)
