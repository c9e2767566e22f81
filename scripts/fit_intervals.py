"""How wide intervals have to be for a software stack that nobody described: `interval.Reach`, sized on published
tables by leaving one source out. `fit_constants.py` calls it and writes what it finds.

Each side of the interval is a quantile of what predictions were off by, as a sum of reasons that are never
negative (quantile regression). Every source counts the same, and in it every series, whatever their numbers of
rows. The quantiles of the sources that are in the fit are not those of one that is not: so both sides are then
stretched, by the least that makes the aims hold on sources left out. A source is judged by a stretch that the
others have chosen. Nothing is random.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from itertools import product
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
MOST_ROWS = 700  # of a source that the fit looks at; the coverage is that of all rows
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
    """The set that ships, one without each source, and by how much they are stretched. `nested` has those sources
    without which the others would have chosen another stretch, with that: judged by it, a source has no part in
    anything that it is judged by."""
    some = errors.some
    without = {name: _fitted(errors, some & (errors.source != name)) for name in errors.sources}
    tried = _tried(errors, without)
    every = np.ones(len(without), dtype=bool)
    slow, fast = tried.narrowest(every)
    nested = {
        name: tried.narrowest(np.array([other != name for other in without])) for name in without
    }
    return {
        "all": asdict(_stretched(_fitted(errors, some), slow, fast)),
        "without": {name: asdict(_stretched(off, slow, fast)) for name, off in without.items()},
        "stretched": {"slow": round(slow, 2), "fast": round(fast, 2)},
        "nested": {
            name: asdict(_stretched(without[name], *pair))
            for name, pair in nested.items()
            if pair != (slow, fast)
        },
    }


@dataclass(frozen=True)
class Tried:
    """What every pair of stretches holds of every source left out, and how wide it is: sources down."""

    pairs: list[tuple[float, float]]
    held: Floats
    width: Floats

    def narrowest(self, sources: Truths) -> tuple[float, float]:
        """The narrowest pair that meets the aims on some sources."""
        held, width = self.held[sources], self.width[sources].mean(axis=0)
        meets = (held.min(axis=0) >= LEAST) & (held.mean(axis=0) >= AVERAGE)
        if not meets.any():
            raise SystemExit("no stretch meets the aims")
        return self.pairs[int(np.argmin(np.where(meets, width, np.inf)))]


def _tried(errors: Errors, without: dict[str, Spread]) -> Tried:
    pairs = [(float(slow), float(fast)) for slow, fast in product(STRETCHES, STRETCHES)]
    held = np.empty((len(without), len(pairs)))
    width = np.empty_like(held)
    for row, (name, off) in enumerate(without.items()):
        here = errors.source == name
        slower, far = errors.slower[here], errors.far.take(here)
        for column, (slow, fast) in enumerate(pairs):
            reach = Reach.of(far, _stretched(off, slow, fast)).and_sigma(UNCERTAINTY["measured"])
            held[row, column] = ((slower <= reach.slow) & (-slower <= reach.fast)).mean()
            width[row, column] = np.median(np.exp(reach.fast) - np.exp(-reach.slow))
    return Tried(pairs, held, width)


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
