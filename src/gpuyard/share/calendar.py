"""The bookings of GPUs: reservations, drains, promises to waiting requests, and GPUs in use without a lease."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpuyard.share.gpu_choice import choose_free_gpus
from gpuyard.share.models import DRAIN, Lease, Rates, Reservation

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
        """Return a calendar of GPUs that are in use without a lease, its end is unknown."""
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


def _needed_seconds(lease: Lease) -> float:
    return MIN_SECONDS if lease.seconds is None else lease.seconds
