"""Which free GPUs a request gets: those that reach each other fastest; fractions where there are fractions already."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from gpuyard.share.store.lease import WHOLE, LeaseRequest

Rates = Mapping[int, float]
"""All-reduce rate of a set of GPUs, as a bit mask of their indices; empty where the topology is unknown."""
MOST_TABLED = 8
"""GPUs of a machine whose every set is in the table: 255. Of a larger one only the pairs are, and sets grow from them."""


def choose(
    count: int,
    parts: int,
    wanted: Sequence[int],
    free: Mapping[int, int],
    rates: Rates,
) -> tuple[int, ...] | None:
    """By what is free of each GPU; None: it has to wait."""
    able = [gpu for gpu, left in sorted(free.items()) if left >= parts]
    if wanted:
        return tuple(wanted) if set(wanted) <= set(able) else None
    if len(able) < count:
        return None
    if parts < WHOLE:
        able.sort(key=lambda gpu: (free[gpu], gpu))  # the fullest that still has room
        return tuple(sorted(able[:count]))
    if not rates or count == 1:
        return tuple(able[:count])
    # of equals, max takes the first
    if mask(able[:count]) in rates:
        return max(combinations(able, count), key=lambda gpus: rates.get(mask(gpus), 0.0))
    return max(
        (_grown(first, count, able, rates) for first in able), key=lambda gpus: _ring(gpus, rates)
    )


def _grown(first: int, count: int, able: Sequence[int], rates: Rates) -> tuple[int, ...]:
    """From one GPU on, always the one that reaches those so far fastest."""
    chosen = [first]
    reach = {gpu: 0.0 for gpu in able if gpu != first}
    while len(chosen) < count:
        for gpu in reach:
            reach[gpu] += rates.get(1 << gpu | 1 << chosen[-1], 0.0)
        best = max(reach, key=reach.__getitem__)
        del reach[best]
        chosen.append(best)
    return tuple(sorted(chosen))


def _ring(gpus: Sequence[int], rates: Rates) -> tuple[float, float]:
    """What a ring through them runs at, at most: each has two neighbours. Of equals, the rates of all pairs together."""
    reach = [sorted(rates.get(1 << a | 1 << b, 0.0) for b in gpus if a != b) for a in gpus]
    return min(rates_of_one[-2] for rates_of_one in reach), sum(map(sum, reach))


def mask(gpus: Sequence[int]) -> int:
    """{0, 2} → 0b101."""
    return sum(1 << gpu for gpu in gpus)


def parts_of(request: LeaseRequest, memory_bytes: Sequence[int | None]) -> int | None:
    """How much of a GPU a request takes, where it asks by memory: of the smallest. None: nobody knows."""
    if request.memory_bytes is None:
        return request.parts
    known = [size for size in memory_bytes if size]
    if not known or len(known) < len(memory_bytes):
        return None
    return -(-request.memory_bytes * WHOLE // min(known))
