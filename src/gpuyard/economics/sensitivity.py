"""Sensitivity to uncertain inputs: one at a time (tornado), and all at once (Monte Carlo)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuyard.economics.billing import Array, array_of
from gpuyard.economics.rent_or_own import RentOrOwn, break_even_months, saving_usd
from gpuyard.errors import UserMistake

MAX_DRAWS = 1_000_000
_MAX_VALUES_AT_ONCE = 4_000_000  # more draws are split into chunks
_SHARE_INPUTS = frozenset(
    {"spares_share", "support_share_per_year", "financed_share", "interest_per_year",
     "value_kept_per_year", "speed_lead", "rest_resold"}
)  # fmt: skip
_CEILINGS = {"hours_per_year": 8784.0}

Ranges = Mapping[str, tuple[float, float]]
"""The lowest and highest possible value of each input."""


@dataclass(frozen=True)
class TornadoBar:
    """The results with one input at both ends of its range and the others unchanged."""

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
    """The distribution of the saving over many draws of all uncertain inputs."""

    draws: int
    seed: int
    owning_is_cheaper: float  # share of the draws
    saving_usd: tuple[float, float, float]  # 5%, 50%, and 95% quantiles
    break_even_months: tuple[float, float, float]  # infinite if it never breaks even
    edges_usd: tuple[float, ...]  # bin edges of the saving's histogram
    counts: tuple[int, ...]


def ranges_around(case: RentOrOwn, swing: float) -> dict[str, tuple[float, float]]:
    """Return the range of every input that matters, up and down by the same share."""
    if not 0 < swing < 1:
        raise UserMistake("the swing must be above 0% and below 100%")
    ranges: dict[str, tuple[float, float]] = {}
    for name, amount in case.inputs().items():
        value = float(array_of(amount))
        if value == 0 or not _matters(case, name, value):
            continue
        floor = 1.0 if name == "pue" else 0.0
        ceiling = 1.0 if name in _SHARE_INPUTS else _CEILINGS.get(name, np.inf)
        ranges[name] = (max(value * (1 - swing), floor), min(value * (1 + swing), ceiling))
    return ranges


def tornado(case: RentOrOwn, ranges: Ranges) -> list[TornadoBar]:
    """Return one bar per input, the one with the largest effect on the saving first."""
    bars = []
    for name, (low, high) in ranges.items():
        if not low <= high:
            raise UserMistake(f"the range of {name} goes from {low:g} down to {high:g}")
        ends = case.with_inputs({name: np.array([low, high])})
        # an input without effect (such as the discount rate on the break-even) gives one value
        saving = np.broadcast_to(saving_usd(ends), 2).tolist()
        months = np.broadcast_to(break_even_months(ends), 2).tolist()
        finite = [m if np.isfinite(m) else None for m in months]
        bars.append(TornadoBar(name, low, high, saving[0], saving[1], finite[0], finite[1]))
    return sorted(bars, key=lambda bar: -bar.swing_usd)


def monte_carlo(case: RentOrOwn, ranges: Ranges, draws: int, seed: int = 0) -> SavingSpread:
    """Draw all inputs at once from triangular distributions with the stated values as modes."""
    if not 100 <= draws <= MAX_DRAWS:
        raise UserMistake(f"expected 100 to {MAX_DRAWS:,} draws, got {draws:,}")
    random = np.random.default_rng(seed)
    stated = case.inputs()
    samples = {
        name: _draw_triangular(random, low, float(array_of(stated[name])), high, draws)
        for name, (low, high) in ranges.items()
    }
    chunk = max(1, _MAX_VALUES_AT_ONCE // (case.months + 1))
    savings, break_evens = [], []
    for start in range(0, draws, chunk):
        size = min(chunk, draws - start)
        part = case.with_inputs({n: values[start : start + size] for n, values in samples.items()})
        savings.append(np.broadcast_to(saving_usd(part), size))
        break_evens.append(np.broadcast_to(break_even_months(part), size))
    saving, break_even = np.concatenate(savings), np.concatenate(break_evens)
    counts, edges = np.histogram(saving, bins=40)
    return SavingSpread(
        draws=draws,
        seed=seed,
        owning_is_cheaper=float(np.mean(saving > 0)),
        saving_usd=_quantiles(saving),
        break_even_months=_quantiles(break_even),
        edges_usd=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
    )


def _matters(case: RentOrOwn, name: str, value: float) -> bool:
    changed = case.with_inputs({name: value * 0.9 if name != "pue" else 1 + (value - 1) * 0.9})
    before, after = float(saving_usd(case)), float(saving_usd(changed))
    return abs(after - before) > 1e-9 * max(1.0, abs(before))


def _draw_triangular(
    random: np.random.Generator, low: float, mode: float, high: float, draws: int
) -> Array:
    if not low <= high:
        raise UserMistake(f"a range goes from {low:g} down to {high:g}")
    if low == high:
        return np.full(draws, low)
    return random.triangular(low, min(max(mode, low), high), high, draws)


def _quantiles(values: Array) -> tuple[float, float, float]:
    # without interpolation, which is undefined between a number and infinity
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95], method="inverted_cdf").tolist()
    return low, middle, high
