"""How a share stands, and whose turn it is: pure functions of who waits, what is free, what is reserved and what will be."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuyard.share.store.lease import Lease
from gpuyard.share.turns.calendar import Calendar, Reservation
from gpuyard.share.turns.choice import Rates
from gpuyard.share.turns.rules import Allowance


@dataclass(frozen=True)
class ShareState:
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


def in_order(waiting: Sequence[Lease], used: Mapping[int, float] | None = None) -> list[Lease]:
    """Priority first, then who used less lately (`used`: by uid), then who came first."""
    recent = used or {}
    return sorted(
        waiting,
        key=lambda lease: (-lease.priority, recent.get(lease.uid, 0.0), lease.number),
    )


def turn(
    lease: Lease,
    order: Sequence[Lease],
    free: Mapping[int, int],
    *,
    rates: Rates,
    calendar: Calendar,
    allowance: Allowance,
    now: float,
) -> tuple[int, ...] | None:
    """The GPUs that this one gets now; None: it has to wait. Nobody overtakes those before them.

    What an earlier one could start on is left to it, and so is what it waits for. While reserved times keep an
    earlier one from starting, others may use the GPUs that end before these times do.
    """
    left = dict(free)
    for earlier in order:
        if allowance.exceeded(earlier):  # it waits for its own group, and nobody waits for it
            if earlier.id == lease.id:
                return None
            continue
        gpus = calendar.choose(earlier, left, rates, now)
        if earlier.id == lease.id:
            return gpus
        if gpus:
            for gpu in gpus:
                left[gpu] -= earlier.parts
            allowance = allowance.less(earlier)
        elif calendar.possible(earlier, tuple(left), now):
            usable = calendar.usable(earlier, tuple(left), now)
            for gpu in usable.intersection(earlier.wanted or left):
                left[gpu] = 0
        else:
            start = calendar.possible_from(earlier, tuple(left), now)
            calendar = calendar.promise(earlier, tuple(left), start)
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
    """When it starts if every lease lasts as long as it may; None: one before it has no end."""
    left = dict(free)
    reserved = sorted({one.end for one in calendar.bookings if now < one.end < math.inf})
    ends = [(running.until_boot or math.inf, running) for running in held]
    for earlier in order:
        while (gpus := calendar.choose(earlier, left, {}, now)) is None:
            ends.sort(key=lambda end: end[0])
            next_end = ends[0][0] if ends else math.inf
            if reserved and reserved[0] < next_end:
                now = max(now, reserved.pop(0))
                continue
            if math.isinf(next_end):
                return None
            now_or_then, running = ends.pop(0)
            now = max(now, now_or_then)
            for gpu in running.gpus:
                if gpu in left:
                    left[gpu] += running.parts
        if earlier.id == lease.id:
            return now
        for gpu in gpus:
            left[gpu] -= earlier.parts
        ends.append((now + (earlier.seconds or math.inf), replace(earlier, gpus=gpus)))
    return None
