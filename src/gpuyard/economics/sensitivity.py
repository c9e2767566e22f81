"""Which uncertain input decides: one at a time (tornado), and all at once (Monte Carlo)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import Array, array_of
from gpuyard.economics.rent_or_own import RentOrOwn, break_even_months, saving_usd
from gpuyard.errors import UserMistake

MOST_DRAWS = 1_000_000
_ABOUT_A_MONTH_OF_FLOATS = 4_000_000  # values held at once; more draws go in chunks
_SHARE_INPUTS = frozenset(
    {"spares_share", "support_share_per_year", "financed_share", "interest_per_year",
     "value_kept_per_year", "speed_lead", "rest_resold"}
)  # fmt: skip
_CEILINGS = {"hours_per_year": 8784.0}

Ranges = Mapping[str, tuple[float, float]]
"""Input → the lowest and the highest that it may turn out to be."""


@dataclass(frozen=True)
class TornadoBar:
    """One input at both ends of its range, everything else as it is."""

    name: str
    low: float
    high: float
    saving_at_low_usd: float
    saving_at_high_usd: float
    break_even_at_low_months: float | None  # None: never
    break_even_at_high_months: float | None

    @property
    def swing_usd(self) -> float:
        return abs(self.saving_at_high_usd - self.saving_at_low_usd)


@dataclass(frozen=True)
class SavingSpread:
    """What many draws of all uncertain inputs came to."""

    draws: int
    seed: int
    owning_is_cheaper: float  # share of the draws
    saving_usd: tuple[float, float, float]  # 5 %, half, 95 %
    break_even_months: tuple[float, float, float]  # infinite where it is never even
    edges_usd: tuple[float, ...]  # of the histogram of the saving
    counts: tuple[int, ...]


def ranges_around(case: RentOrOwn, swing: float) -> dict[str, tuple[float, float]]:
    """Every input that matters, up and down by the same share."""
    if not 0 < swing < 1:
        raise UserMistake("the swing must be above 0 % and below 100 %")
    found: dict[str, tuple[float, float]] = {}
    for name, value in case.inputs().items():
        at = float(array_of(value))
        if at == 0 or not _matters(case, name, at):
            continue
        floor = 1.0 if name == "pue" else 0.0
        ceiling = 1.0 if name in _SHARE_INPUTS else _CEILINGS.get(name, np.inf)
        found[name] = (max(at * (1 - swing), floor), min(at * (1 + swing), ceiling))
    return found


def tornado(case: RentOrOwn, ranges: Ranges) -> list[TornadoBar]:
    """One bar an input, the one that moves the saving most first."""
    bars = []
    for name, (low, high) in ranges.items():
        if not low <= high:
            raise UserMistake(f"the range of {name} goes from {low:g} down to {high:g}")
        ends = case.with_inputs({name: np.array([low, high])})
        # where an input enters neither (the discount rate and the break-even), both ends are alike
        saving = np.broadcast_to(saving_usd(ends), 2).tolist()
        months = np.broadcast_to(break_even_months(ends), 2).tolist()
        even = [m if np.isfinite(m) else None for m in months]
        bars.append(TornadoBar(name, low, high, saving[0], saving[1], even[0], even[1]))
    return sorted(bars, key=lambda bar: -bar.swing_usd)


def monte_carlo(case: RentOrOwn, ranges: Ranges, draws: int, seed: int = 0) -> SavingSpread:
    """All inputs drawn at once, each from a triangle: never outside its range, most often as stated."""
    if not 100 <= draws <= MOST_DRAWS:
        raise UserMistake(f"expected 100 to {MOST_DRAWS:,} draws, got {draws:,}")
    random = np.random.default_rng(seed)
    stated = case.inputs()
    drawn = {
        name: _triangle(random, low, float(array_of(stated[name])), high, draws)
        for name, (low, high) in ranges.items()
    }
    chunk = max(1, _ABOUT_A_MONTH_OF_FLOATS // (case.months + 1))
    savings, evens = [], []
    for start in range(0, draws, chunk):
        size = min(chunk, draws - start)
        part = case.with_inputs({n: values[start : start + size] for n, values in drawn.items()})
        savings.append(np.broadcast_to(saving_usd(part), size))
        evens.append(np.broadcast_to(break_even_months(part), size))
    saving, even = np.concatenate(savings), np.concatenate(evens)
    counts, edges = np.histogram(saving, bins=40)
    return SavingSpread(
        draws=draws,
        seed=seed,
        owning_is_cheaper=float(np.mean(saving > 0)),
        saving_usd=_quantiles(saving),
        break_even_months=_quantiles(even),
        edges_usd=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
    )


def _matters(case: RentOrOwn, name: str, at: float) -> bool:
    changed = case.with_inputs({name: at * 0.9 if name != "pue" else 1 + (at - 1) * 0.9})
    before, after = float(saving_usd(case)), float(saving_usd(changed))
    return abs(after - before) > 1e-9 * max(1.0, abs(before))


def _triangle(random: np.random.Generator, low: float, at: float, high: float, draws: int) -> Array:
    if not low <= high:
        raise UserMistake(f"a range goes from {low:g} down to {high:g}")
    if low == high:
        return np.full(draws, low)
    return random.triangular(low, min(max(at, low), high), high, draws)


def _quantiles(values: Array) -> tuple[float, float, float]:
    # no interpolation: between a number and infinity there is nothing
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95], method="inverted_cdf").tolist()
    return low, middle, high
