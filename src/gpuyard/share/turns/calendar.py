"""Reserved times: who has which GPUs from when to when, and what that leaves to others. Pure functions.

Reservations are appointments by the wall clock. A `Calendar` is counted in seconds since boot, as leases are: that is
how the wall clock stands when it is made.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.share.store.lease import WHOLE, Lease
from gpuyard.share.turns.choice import Rates, choose

SHORTEST_SECONDS = 60.0
"""A lease without an end is given no GPU that is reserved so soon."""
RESERVATION, DRAIN = "reservation", "drain"


@dataclass(frozen=True)
class Reservation:
    """Somebody's appointment with some GPUs, in seconds since 1970; a drain is one with nobody."""

    number: int
    id: str
    kind: str
    uid: int
    user: str
    count: int
    wanted: tuple[int, ...]
    """Which were asked for; empty: any, and these may be exchanged for others until it starts."""
    gpus: tuple[int, ...]
    start: float
    end: float | None
    """None: until somebody says so, which only a drain can be."""

    @property
    def ends(self) -> float:
        return math.inf if self.end is None else self.end

    def overlaps(self, start: float, end: float) -> bool:
        """What ends when another starts is no overlap."""
        return self.start < end and start < self.ends

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Reservation":
        """As `asdict` writes it, after a way through JSON."""
        lists = {name: tuple(document[name]) for name in ("wanted", "gpus")}
        return cls(**{**document, **lists})


@dataclass(frozen=True)
class Booking:
    """A time in which GPUs are one user's (None: nobody's)."""

    uid: int | None
    gpus: tuple[int, ...]
    start: float
    end: float
    is_promise: bool = False
    """To somebody in the queue, and not fixed: a lease without an end can't be cut for it, and waits."""


@dataclass(frozen=True)
class Calendar:
    """All bookings that are not over."""

    bookings: tuple[Booking, ...] = ()

    @classmethod
    def of(cls, reservations: Sequence[Reservation], boot_minus_wall: float) -> "Calendar":
        return cls(
            tuple(
                Booking(
                    None if one.kind == DRAIN else one.uid,
                    one.gpus,
                    one.start + boot_minus_wall,
                    one.ends + boot_minus_wall,
                )
                for one in reservations
            )
        )

    def free_until(self, gpu: int, uid: int, now: float) -> float:
        """When somebody else's time on it starts; `now`: it has."""
        return min(
            (
                max(one.start, now)
                for one in self.bookings
                if gpu in one.gpus and one.uid != uid and one.end > now
            ),
            default=math.inf,
        )

    def cut(self, gpus: Sequence[int], uid: int, now: float) -> float | None:
        """When a lease on these GPUs has to end; None: nobody reserved them."""
        first = min((self.free_until(gpu, uid, now) for gpu in gpus), default=math.inf)
        return None if math.isinf(first) else first

    def usable(self, lease: Lease, gpus: Sequence[int], now: float) -> set[int]:
        """Those that it could start on, as far as the calendar goes."""
        needed = SHORTEST_SECONDS if lease.seconds is None else lease.seconds
        promised = {
            gpu for one in self.bookings if one.is_promise and one.end > now for gpu in one.gpus
        } - self.own(lease.uid, now)
        return {
            gpu
            for gpu in gpus
            if self.free_until(gpu, lease.uid, now) >= now + needed
            and not (lease.seconds is None and gpu in promised)
        }

    def own(self, uid: int, now: float) -> set[int]:
        """Those that a user has reserved for this time."""
        return {
            gpu
            for one in self.bookings
            if one.uid == uid and one.start <= now < one.end
            for gpu in one.gpus
        }

    def choose(
        self, lease: Lease, free: Mapping[int, int], rates: Rates, now: float
    ) -> tuple[int, ...] | None:
        """The user's own reserved GPUs first; without an end, those that are free the longest."""
        for gpus in self._choices(lease, tuple(free), now):
            left = free if gpus is None else {gpu: free[gpu] for gpu in free if gpu in gpus}
            found = choose(lease.count, lease.parts, lease.wanted, left, rates)
            if found:
                return found
        return None

    def possible(self, lease: Lease, gpus: Sequence[int], now: float) -> bool:
        """Whether it could start now if nobody held a lease."""
        return self.choose(lease, dict.fromkeys(gpus, WHOLE), {}, now) is not None

    def possible_from(self, lease: Lease, gpus: Sequence[int], now: float) -> float:
        """When the calendar lets it start."""
        times = sorted({one.end for one in self.bookings if now < one.end < math.inf})
        return next((time for time in times if self.possible(lease, gpus, time)), math.inf)

    def promise(self, lease: Lease, gpus: Sequence[int], start: float) -> "Calendar":
        """The same with a time that those behind it in the queue keep free for it."""
        booking = Booking(None, lease.wanted or tuple(gpus), start, math.inf, is_promise=True)
        return replace(self, bookings=(*self.bookings, booking))

    def _choices(self, lease: Lease, gpus: Sequence[int], now: float) -> Iterator[set[int] | None]:
        if not self.bookings:
            yield None  # all
            return
        usable = self.usable(lease, gpus, now)
        own = usable & self.own(lease.uid, now)
        if own:
            yield own
        if lease.seconds is None:
            limits = {gpu: self.free_until(gpu, lease.uid, now) for gpu in usable}
            for limit in sorted(set(limits.values()), reverse=True):
                yield {gpu for gpu in usable if limits[gpu] >= limit}
        yield usable


def arranged(
    new: Reservation,
    others: Sequence[Reservation],
    *,
    gpus: Sequence[int],
    rates: Rates,
    is_held: Callable[[Reservation, int], bool],
    now: float,
) -> list[Reservation] | None:
    """All with their GPUs, none with another's at the same time; None: they don't fit.

    Where the new one fits beside the others it gets the best connected. Else those that have not started and named no
    GPUs are placed again from the earliest start on, which finds room whenever there are enough GPUs at every time
    and nobody named theirs; beside named ones the tightest gaps are used first.
    `is_held`: a lease that can't be cut is on that GPU when that reservation starts.
    """
    free = {gpu: WHOLE for gpu in gpus if not is_held(new, gpu) and not _taken(gpu, new, others)}
    found = choose(new.count, WHOLE, new.wanted, free, rates)
    if found:
        return [*others, replace(new, gpus=found)]
    placed = [one for one in others if one.wanted or one.start <= now]
    if new.wanted:
        if any(_taken(gpu, new, placed) or is_held(new, gpu) for gpu in new.wanted):
            return None
        placed.append(replace(new, gpus=new.wanted))
    loose = [one for one in (*others, new) if one.number not in {two.number for two in placed}]
    for one in sorted(loose, key=lambda one: one.start):
        able = [gpu for gpu in gpus if not is_held(one, gpu) and not _taken(gpu, one, placed)]
        if len(able) < one.count:
            return None
        able.sort(key=lambda gpu: _next_start(gpu, one, placed))
        placed.append(replace(one, gpus=tuple(sorted(able[: one.count]))))
    return placed


def most_reserved(start: float, end: float, others: Sequence[Reservation]) -> tuple[float, int]:
    """When the most GPUs are reserved in that time, and how many."""
    times = [start, *(one.start for one in others if start < one.start < end)]
    counts = [(sum(o.count for o in others if o.start <= time < o.ends), time) for time in times]
    most = max(count for count, _ in counts)
    return min(time for count, time in counts if count == most), most


def _taken(gpu: int, by: Reservation, others: Sequence[Reservation]) -> bool:
    return any(gpu in one.gpus and one.overlaps(by.start, by.ends) for one in others)


def _next_start(gpu: int, after: Reservation, others: Sequence[Reservation]) -> float:
    return min(
        (one.start for one in others if gpu in one.gpus and one.start >= after.ends),
        default=math.inf,
    )
