"""Power supplies: how much more they take from the wall than they give."""

import itertools

from gpuyard.catalog.facility import SupplyGrade

# 80 PLUS, 230 V internal redundant: efficiency at a share of the rated load
_CURVES: dict[SupplyGrade, tuple[tuple[float, float], ...]] = {
    "gold": ((0.1, 0.80), (0.2, 0.88), (0.5, 0.92), (1.0, 0.88)),
    "platinum": ((0.1, 0.82), (0.2, 0.90), (0.5, 0.94), (1.0, 0.91)),
    "titanium": ((0.1, 0.90), (0.2, 0.94), (0.5, 0.96), (1.0, 0.91)),
}
INRUSH_AMPS = 35.0
"""Of one cold supply for a few milliseconds at 240 V; assumed, datasheets give 20 to 50."""
MAGNETIC_TRIP = 5.0
"""A type C breaker may trip at once from five times its rating (IEC 60898-1)."""


def efficiency(grade: SupplyGrade, load_share: float) -> float:
    """On the curve between its points, and level outside of them."""
    points = _CURVES[grade]
    if load_share <= points[0][0]:
        return points[0][1]
    for (low, at_low), (high, at_high) in itertools.pairwise(points):
        if load_share <= high:
            return at_low + (at_high - at_low) * (load_share - low) / (high - low)
    return points[-1][1]


def wall_watts(
    output_watts: float, grade: SupplyGrade, supplies: int, supply_watts: float
) -> float:
    """What all supplies together take in when they share the load."""
    share = output_watts / (supplies * supply_watts)
    return output_watts / efficiency(grade, share)


def most_at_once(breaker_amps: float) -> int:
    """How many cold supplies one breaker takes at the same moment."""
    return max(int(MAGNETIC_TRIP * breaker_amps / INRUSH_AMPS), 1)
