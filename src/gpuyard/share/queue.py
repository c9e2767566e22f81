"""Whose turn it is: pure functions of who waits, what is free and what will be."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuyard.share.choice import Rates, choose
from gpuyard.share.lease import Lease


def in_order(waiting: Sequence[Lease], used: Mapping[int, float] | None = None) -> list[Lease]:
    """Priority first, then who used less lately (`used`: by uid), then who came first."""
    recent = used or {}
    return sorted(
        waiting,
        key=lambda lease: (-lease.priority, recent.get(lease.uid, 0.0), lease.number),
    )


def turn(
    lease: Lease, order: Sequence[Lease], free: Mapping[int, int], rates: Rates
) -> tuple[int, ...] | None:
    """The GPUs that this one gets now; None: it has to wait. Nobody overtakes those before them.

    What an earlier one could start on is left to it, and so is what it waits for.
    """
    left = dict(free)
    for earlier in order:
        gpus = choose(earlier.count, earlier.parts, earlier.wanted, left, rates)
        if earlier.id == lease.id:
            return gpus
        for gpu in gpus or earlier.wanted or tuple(left):
            if gpu in left:
                left[gpu] = left[gpu] - earlier.parts if gpus else 0
    return None


def expected_start(
    lease: Lease,
    order: Sequence[Lease],
    free: Mapping[int, int],
    held: Sequence[Lease],
    now: float,
) -> float | None:
    """When it starts if every lease lasts as long as it may; None: one before it has no end."""
    left = dict(free)
    ends = [(running.until_boot or math.inf, running) for running in held]
    for earlier in order:
        while (gpus := choose(earlier.count, earlier.parts, earlier.wanted, left, {})) is None:
            ends.sort(key=lambda end: end[0])
            if not ends or math.isinf(ends[0][0]):
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
