"""Chooses the free GPUs of a request: the fullest for a share, and the best connected for several."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from gpuyard.share.models import WHOLE, Rates

MAX_TABULATED_GPUS = 8
"""Largest machine for which `Rates` has every set of GPUs (255 sets). Larger ones have only pairs, and sets grow from them."""


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
