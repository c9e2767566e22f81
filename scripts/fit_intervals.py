"""Fit the width of `PredictionInterval` for an unknown software stack to the errors of published tables.

`fit_constants.py` calls this module and writes the result. Each side of the interval is a quantile of the prediction errors: a
sum of terms with nonnegative coefficients, found by quantile regression. Sources have equal weights, and so have the series of
a source, however many rows they have. Intervals fitted to some sources are too narrow for others. Therefore both sides are
stretched by the smallest factors that reach the target coverage on sources excluded from the fit. Each source is also tested
with an interval whose fit and stretch both exclude it. Nothing is random.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import minimize

from gpuyard.predictor.constants import UNCERTAINTY, Spread
from gpuyard.predictor.interval import MAX_DOUBLINGS, Distance, PredictionInterval, saturate
from gpuyard.predictor.table import Booleans, Floats
from gpuyard.predictor.validation.cases import Cases
from gpuyard.predictor.validation.score import measure_distance

# target coverage of excluded sources: on average, and for each
TARGET_MEAN_COVERAGE, TARGET_MIN_COVERAGE = 0.9, 0.75
QUANTILE = 0.9
STRETCHES = np.arange(1.0, 4.0, 0.05)
SMOOTHING = 0.003  # errors this close to zero count a little on both sides
MIN_ROWS = 4  # with fewer rows in a source, a single miss already breaks TARGET_MIN_COVERAGE
MAX_FITTED_ROWS = 700  # per source; coverage is calculated on all rows
MAX_WIDTHS = 100  # rows per source whose median width is calculated
ROUNDING = 1e-9
SLOW = ("tax", "exchange", "batch")
FAST = ("exchange_fast", "batch_fast")


@dataclass(frozen=True)
class Errors:
    """The prediction error of every row, and its distance from the measurement that the prediction starts from."""

    slower: Floats  # log of measured over predicted seconds
    distance: Distance
    source: "np.ndarray[Any, np.dtype[np.str_]]"
    weight: Floats  # sums to one in a source

    @property
    def sources(self) -> list[str]:
        return sorted(set(self.source.tolist()))

    @property
    def sampled(self) -> Booleans:
        """At most MAX_FITTED_ROWS evenly spaced rows of every source."""
        chosen = np.zeros(len(self.slower), dtype=bool)
        for name in self.sources:
            rows = np.flatnonzero(self.source == name)
            chosen[rows[:: -(-len(rows) // MAX_FITTED_ROWS)]] = True
        return chosen


def collect_errors(predicted: list[tuple[Cases, Any]]) -> Errors:
    """Collect the errors of cases, given with their predicted steps."""
    rows = [row for cases, _ in predicted for row in cases.rows]
    series = [(row.source, row.series, row.model, row.precision) for row in rows]
    rows_in, series_in = Counter(series), Counter(key[0] for key in set(series))
    distances = [measure_distance(cases, parts) for cases, parts in predicted]
    distance = {
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
        Distance(**distance),
        np.array([row.source for row in rows]),
        np.array([1 / rows_in[key] / series_in[key[0]] for key in series]),
    )


def fit_spreads(errors: Errors) -> dict[str, Any]:
    """Fit the spread that ships, one without each source, and the factors that stretch them.

    In `nested`, a source does not influence its stretch either, as if it had never been published.
    """
    sampled = errors.sampled
    without = {
        name: _fit_spread(errors, sampled & (errors.source != name)) for name in errors.sources
    }
    slow, fast = _find_stretch(errors, without)
    without_pair = {
        pair: _fit_spread(errors, sampled & ~np.isin(errors.source, pair))
        for pair in combinations(errors.sources, 2)
    }
    nested = {}
    for name, spread in without.items():
        others = {
            second if first == name else first: pair_spread
            for (first, second), pair_spread in without_pair.items()
            if name in (first, second)
        }
        nested[name] = _scale_spread(spread, *_find_stretch(errors, others))
    return {
        "all": asdict(_scale_spread(_fit_spread(errors, sampled), slow, fast)),
        "without": {
            name: asdict(_scale_spread(spread, slow, fast)) for name, spread in without.items()
        },
        "stretched": {"slow": round(slow, 2), "fast": round(fast, 2)},
        "nested": {name: asdict(spread) for name, spread in nested.items()},
    }


def _find_stretch(errors: Errors, without: dict[str, Spread]) -> tuple[float, float]:
    """Find the slow and fast factors of the narrowest interval that reaches the target coverage."""
    coverages, widths = zip(
        *(_evaluate_stretches(errors, name, spread) for name, spread in without.items()),
        strict=True,
    )
    rows = Counter(errors.source.tolist())
    lowest = np.min(
        [
            coverage
            for name, coverage in zip(without, coverages, strict=True)
            if rows[name] >= MIN_ROWS
        ],
        axis=0,
    )
    reached = (lowest >= TARGET_MIN_COVERAGE - ROUNDING) & (
        np.mean(coverages, axis=0) >= TARGET_MEAN_COVERAGE
    )
    if not reached.any():
        raise SystemExit("no stretch reaches the target coverage; extend STRETCHES")
    width = np.where(reached, np.mean(widths, axis=0), np.inf)
    slow, fast = np.unravel_index(np.argmin(width), reached.shape)
    return float(STRETCHES[slow]), float(STRETCHES[fast])


def _evaluate_stretches(errors: Errors, name: str, spread: Spread) -> tuple[Floats, Floats]:
    """Return a source's coverage and median width for every stretch of the slow side (rows) and the fast side."""
    in_source = errors.source == name
    slower, distance = errors.slower[in_source], errors.distance.select(in_source)
    intervals = [
        PredictionInterval.from_spread(distance, _scale_spread(spread, by, by)).add_sigma(
            UNCERTAINTY["measured"]
        )
        for by in map(float, STRETCHES)
    ]
    slow = np.stack([interval.slow for interval in intervals], axis=1)
    fast = np.stack([interval.fast for interval in intervals], axis=1)
    inside = (slower[:, None] <= slow).astype(float).T @ (-slower[:, None] <= fast).astype(float)
    sampled = slice(None, None, -(-len(slower) // MAX_WIDTHS))
    width = np.exp(fast[sampled])[:, None, :] - np.exp(-slow[sampled])[:, :, None]
    return inside / len(slower), np.median(width, axis=0)


def _fit_spread(errors: Errors, rows: Booleans) -> Spread:
    distance = errors.distance.select(rows)
    weight = errors.weight[rows]
    doublings = np.minimum(distance.doublings, MAX_DOUBLINGS)
    slow = np.stack([doublings, saturate(distance.exchanged), distance.batch], axis=1)
    fast = np.stack([np.sqrt(distance.exposed), distance.batch], axis=1)
    coefficients = dict(
        zip(SLOW, _fit_quantile(errors.slower[rows], slow, weight), strict=True)
    ) | dict(zip(FAST, _fit_quantile(-errors.slower[rows], fast, weight), strict=True))
    return Spread(**coefficients)


def _fit_quantile(values: Floats, terms: Floats, weight: Floats) -> list[float]:
    """Fit nonnegative coefficients whose sum of terms is the values' quantile, by the smoothed pinball loss."""

    def loss(x: Floats) -> tuple[float, Floats]:
        excess = values - terms @ x
        above = 1 / (1 + np.exp(-np.clip(excess / SMOOTHING, -50, 50)))
        losses = SMOOTHING * np.logaddexp(0, excess / SMOOTHING) - (1 - QUANTILE) * excess
        return float(np.sum(weight * losses)), -(terms.T @ (weight * (above - (1 - QUANTILE))))

    start = np.full(terms.shape[1], 0.05)
    bounds = [(0.0, None)] * terms.shape[1]
    fitted = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return [float(x) for x in fitted]


def _scale_spread(spread: Spread, slow: float, fast: float) -> Spread:
    values = asdict(spread)
    return Spread(
        **{name: float(f"{values[name] * slow:.3g}") for name in SLOW},
        **{name: float(f"{values[name] * fast:.3g}") for name in FAST},
    )
