"""How wide intervals have to be for a software stack that nobody described: `interval.Reach`, sized on published
tables by leaving one source out. `fit_constants.py` calls it and writes what it finds.

Each side of the interval is a quantile of what predictions were off by, as a sum of reasons that are never
negative (quantile regression). Every source counts the same, and in it every series, whatever their numbers of
rows. The quantiles of the sources that are in the fit are not those of one that is not: so both sides are then
stretched, by the least that makes the aims hold on sources left out. Each source is also judged by an interval that it
had no say in at all, its stretch included. Nothing is random.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import minimize

from gpuyard.predict.constants import UNCERTAINTY, Spread
from gpuyard.predict.interval import MOST_DOUBLINGS, Distance, Reach, saturating
from gpuyard.predict.table import Floats, Truths
from gpuyard.predict.validation.cases import Cases
from gpuyard.predict.validation.score import distance

# aims: the average over sources left out, and the least of any
AVERAGE, LEAST = 0.9, 0.75
QUANTILE = 0.9
STRETCHES = np.arange(1.0, 4.0, 0.05)
SMOOTH = 0.003  # within so much of zero an error counts a little on both sides
ENOUGH_ROWS = 4  # of fewer, one that is outside is more than a quarter
MOST_ROWS = 700  # of a source that the fit looks at; the coverage is that of all rows
WIDTHS = 100  # of a source whose median width is taken
ROUNDING = 1e-9
SLOW = ("tax", "exchange", "batch")
FAST = ("exchange_fast", "batch_fast")


@dataclass(frozen=True)
class Errors:
    """What was off by how much, and how far it was from what it stands on."""

    slower: Floats  # log of measured over predicted seconds
    far: Distance
    source: "np.ndarray[Any, np.dtype[np.str_]]"
    weight: Floats  # sums to one in a source

    @property
    def sources(self) -> list[str]:
        return sorted(set(self.source.tolist()))

    @property
    def some(self) -> Truths:
        """Enough rows of every source."""
        chosen = np.zeros(len(self.slower), dtype=bool)
        for name in self.sources:
            rows = np.flatnonzero(self.source == name)
            chosen[rows[:: -(-len(rows) // MOST_ROWS)]] = True
        return chosen


def errors_of(predicted: list[tuple[Cases, Any]]) -> Errors:
    """Of cases with the steps that were predicted for them."""
    rows = [row for cases, _ in predicted for row in cases.rows]
    series = [(row.source, row.series, row.model, row.precision) for row in rows]
    in_series, of_source = Counter(series), Counter(key[0] for key in set(series))
    distances = [distance(cases, parts) for cases, parts in predicted]
    far = {
        name: np.concatenate(
            [
                np.broadcast_to(getattr(d, name), len(cases.rows))
                for d, (cases, _) in zip(distances, predicted, strict=True)
            ]
        )
        for name in vars(distances[0])
    }
    return Errors(
        np.concatenate([np.log(cases.measured_seconds / p.step_seconds) for cases, p in predicted]),
        Distance(**far),
        np.array([row.source for row in rows]),
        np.array([1 / in_series[key] / of_source[key[0]] for key in series]),
    )


def spreads(errors: Errors) -> dict[str, Any]:
    """The set that ships, one without each source, and by how much they are stretched. In `nested` a source has no
    part in its stretch either: all is done again without it, as if it had never been published."""
    some = errors.some
    without = {name: _fitted(errors, some & (errors.source != name)) for name in errors.sources}
    slow, fast = _stretch(errors, without)
    neither = {
        pair: _fitted(errors, some & ~np.isin(errors.source, pair))
        for pair in combinations(errors.sources, 2)
    }
    nested = {}
    for name, off in without.items():
        others = {_other(pair, name): both for pair, both in neither.items() if name in pair}
        nested[name] = _stretched(off, *_stretch(errors, others))
    return {
        "all": asdict(_stretched(_fitted(errors, some), slow, fast)),
        "without": {name: asdict(_stretched(off, slow, fast)) for name, off in without.items()},
        "stretched": {"slow": round(slow, 2), "fast": round(fast, 2)},
        "nested": {name: asdict(off) for name, off in nested.items()},
    }


def _other(pair: tuple[str, str], name: str) -> str:
    return pair[1] if pair[0] == name else pair[0]


def _stretch(errors: Errors, without: dict[str, Spread]) -> tuple[float, float]:
    """Of the slow and the fast side: the narrowest interval that meets the aims on sources left out."""
    held, width = zip(*(_tried(errors, name, off) for name, off in without.items()), strict=True)
    average = np.mean(width, axis=0)
    rows = Counter(errors.source.tolist())
    least = np.min(
        [of for name, of in zip(without, held, strict=True) if rows[name] >= ENOUGH_ROWS], axis=0
    )
    meets = (least >= LEAST - ROUNDING) & (np.mean(held, axis=0) >= AVERAGE)
    if not meets.any():
        raise SystemExit("no stretch meets the aims")
    slow, fast = np.unravel_index(np.argmin(np.where(meets, average, np.inf)), meets.shape)
    return float(STRETCHES[slow]), float(STRETCHES[fast])


def _tried(errors: Errors, name: str, off: Spread) -> tuple[Floats, Floats]:
    """What every stretch of the slow side (down) and of the fast side holds of a source, and how wide it is."""
    here = errors.source == name
    slower, far = errors.slower[here], errors.far.take(here)
    reaches = [
        Reach.of(far, _stretched(off, by, by)).and_sigma(UNCERTAINTY["measured"])
        for by in map(float, STRETCHES)
    ]
    slow = np.stack([reach.slow for reach in reaches], axis=1)
    fast = np.stack([reach.fast for reach in reaches], axis=1)
    inside = (slower[:, None] <= slow).astype(float).T @ (-slower[:, None] <= fast).astype(float)
    few = slice(None, None, -(-len(slower) // WIDTHS))
    width = np.exp(fast[few])[:, None, :] - np.exp(-slow[few])[:, :, None]
    return inside / len(slower), np.median(width, axis=0)


def _fitted(errors: Errors, rows: Truths) -> Spread:
    far = errors.far.take(rows)
    weight = errors.weight[rows]
    doublings = np.minimum(far.doublings, MOST_DOUBLINGS)
    slow = np.stack([doublings, saturating(far.exchanged), far.batch], axis=1)
    fast = np.stack([np.sqrt(far.exposed), far.batch], axis=1)
    found = dict(zip(SLOW, _quantile(errors.slower[rows], slow, weight), strict=True))
    found |= dict(zip(FAST, _quantile(-errors.slower[rows], fast, weight), strict=True))
    return Spread(**found)


def _quantile(values: Floats, reasons: Floats, weight: Floats) -> list[float]:
    """Coefficients, none of them negative, of a sum below which the quantile lies: the least smoothed check
    loss."""

    def loss(x: Floats) -> tuple[float, Floats]:
        off = values - reasons @ x
        above = 1 / (1 + np.exp(-np.clip(off / SMOOTH, -50, 50)))
        lost = SMOOTH * np.logaddexp(0, off / SMOOTH) - (1 - QUANTILE) * off
        return float(np.sum(weight * lost)), -(reasons.T @ (weight * (above - (1 - QUANTILE))))

    start = np.full(reasons.shape[1], 0.05)
    bounds = [(0.0, None)] * reasons.shape[1]
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return [float(x) for x in found]


def _stretched(off: Spread, slow: float, fast: float) -> Spread:
    values = asdict(off)
    return Spread(
        **{name: float(f"{values[name] * slow:.3g}") for name in SLOW},
        **{name: float(f"{values[name] * fast:.3g}") for name in FAST},
    )
