"""Errors of predictions against published results, by table, by source, and overall.

Two simple formulas serve as baselines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.catalog.published import TRAINING_TABLES, published_table
from gpuyard.catalog.published_rows import PublishedRow, PublishedSource
from gpuyard.predictor import constants as c
from gpuyard.predictor.constants import (
    Spread,
    Tuning,
    list_spread_sources,
    load_nested_spreads,
    load_tuning,
    spread,
)
from gpuyard.predictor.interval import Distance, PredictionInterval
from gpuyard.predictor.table import Floats, StepParts
from gpuyard.predictor.validation.cases import Cases, compile_cases


@dataclass(frozen=True)
class Score:
    """Statistics of throughput errors: predicted over published, minus one."""

    rows: int
    mean_abs_error: float
    median_abs_error: float
    p90_abs_error: float
    worst_abs_error: float
    bias: float
    inside_interval: float | None = None  # None: a formula without an interval
    median_interval_width: float | None = None  # half the interval as a share of the prediction


@dataclass(frozen=True)
class PredictedRow:
    """One published row with its prediction."""

    row: PublishedRow
    samples_per_second: float
    low: float
    high: float

    @property
    def error(self) -> float:
        return self.samples_per_second / self.row.samples_per_second - 1


@dataclass(frozen=True)
class TableScore:
    """The scores of one table, of the two baselines on the same rows, and the rows left out."""

    source: PublishedSource
    score: Score
    perfect_scaling: Score
    no_overlap: Score
    anchors: int
    skipped: tuple[tuple[str, int], ...]
    rows: tuple[PredictedRow, ...]


@dataclass(frozen=True)
class SourceScore:
    """The score of one publisher's machines under one software stack.

    The interval was sized without this source.
    """

    source: str
    table: str
    frameworks: tuple[str, ...]
    score: Score
    median_low: float  # ends of the interval as shares of the prediction, minus one
    median_high: float
    input_workers: tuple[int, ...] = ()  # per GPU, if the table states them


@dataclass(frozen=True)
class Validation:
    """Scores of all tables and sources with their averages, in which all tables and sources weigh the same."""

    tables: dict[str, TableScore]
    overall: Score
    perfect_scaling: Score
    no_overlap: Score
    sizing_tables: dict[str, TableScore]  # not in the averages over tables; their sources count
    sources: dict[str, SourceScore]
    by_source: Score  # average over sources
    # share of rows inside the interval for sources of the fit, excluded even from stretching the intervals
    nested: dict[str, float]

    @property
    def nested_average(self) -> float:
        """The mean share inside the interval over all sources, nested if available."""
        inside = {
            name: source.score.inside_interval or 0.0 for name, source in self.sources.items()
        }
        return float(np.mean(list((inside | self.nested).values())))

    @property
    def worst_source(self) -> SourceScore:
        """The source with the smallest share of rows inside the interval."""
        return min(self.sources.values(), key=lambda source: source.score.inside_interval or 0.0)


def validate(
    tables: Sequence[str] = TRAINING_TABLES, sizing_tables: Sequence[str] = ()
) -> Validation:
    """Predict every row with constants fitted without its table and an interval sized without its source.

    Tables in `sizing_tables` count only through their sources.
    """
    for name in (*tables, *sizing_tables):
        published_table(name)  # raises an error if the table does not exist
    # No constant is fitted to the other tables, so the default constants are blind to them.
    left_out = {
        name: name if name in TRAINING_TABLES else None for name in (*tables, *sizing_tables)
    }
    scores = {name: score_table(name, load_tuning(out)) for name, out in left_out.items()}
    averaged = [scores[name] for name in tables]
    sources = _score_sources([row for table in scores.values() for row in table.rows])
    return Validation(
        {name: scores[name] for name in tables},
        average([t.score for t in averaged]),
        average([t.perfect_scaling for t in averaged]),
        average([t.no_overlap for t in averaged]),
        {name: scores[name] for name in sizing_tables},
        sources,
        average([source.score for source in sources.values()]),
        _score_nested(sources, left_out),
    )


def _score_nested(
    sources: dict[str, SourceScore], left_out: dict[str, str | None]
) -> dict[str, float]:
    """Score each source with an interval that was neither sized nor stretched with it."""
    spreads = load_nested_spreads()
    tables = {name: source.table for name, source in sources.items() if name in spreads}
    rows: dict[str, list[PredictedRow]] = {name: [] for name in tables}
    for table in dict.fromkeys(tables.values()):
        tuning = load_tuning(left_out[table])
        for predicted in score_table(table, tuning, spreads.__getitem__).rows:
            rows[predicted.row.source].append(predicted)
    return {name: _score_coverage(members)[0] for name, members in rows.items()}


def spread_without(source: str) -> Spread:
    return spread(source if source in list_spread_sources() else None)


def score_table(
    name: str, tuning: Tuning, find_spread: Callable[[str], Spread] = spread_without
) -> TableScore:
    """Score one table with the given constants; `find_spread` returns the spread of each source."""
    table = published_table(name)
    rows: list[PredictedRow] = []
    ours: list[Floats] = []
    perfect: list[Floats] = []
    plain: list[Floats] = []
    for cases in compile_cases(table.rows):
        parts = cases.predict(tuning)
        rate = np.array([row.gpus * row.batch_per_gpu for row in cases.rows]) / parts.step_seconds
        low, high = _find_bounds(cases, parts, rate, find_spread)
        rows += [
            PredictedRow(row, float(r), float(slow), float(fast))
            for row, r, slow, fast in zip(cases.rows, rate, low, high, strict=True)
        ]
        ours.append(cases.measured_seconds / parts.step_seconds - 1)
        perfect.append(cases.measured_seconds / cases.perfect_seconds - 1)
        plain.append(cases.measured_seconds / cases.no_overlap_seconds(tuning) - 1)
    return TableScore(
        table.source,
        score_errors(np.concatenate(ours), *_score_coverage(rows)),
        score_errors(np.concatenate(perfect)),
        score_errors(np.concatenate(plain)),
        table.anchors,
        table.skipped,
        tuple(rows),
    )


def _find_bounds(
    cases: Cases, parts: StepParts, rate: Floats, find_spread: Callable[[str], Spread]
) -> tuple[Floats, Floats]:
    distance = measure_distance(cases, parts)
    source = np.array([row.source for row in cases.rows])
    slow, fast = np.empty_like(rate), np.empty_like(rate)
    for name in dict.fromkeys(source.tolist()):
        here = source == name
        interval = PredictionInterval.from_spread(distance.select(here), find_spread(name))
        interval = interval.add_sigma(c.UNCERTAINTY["measured"])
        slow[here], fast[here] = interval.slow, interval.fast
    return PredictionInterval(slow, fast).bounds(rate)


def _score_coverage(rows: Sequence[PredictedRow]) -> tuple[float, float]:
    """Return the share of rows inside their interval, and half the median interval."""
    inside = np.mean([p.low <= p.row.samples_per_second <= p.high for p in rows])
    width = np.median([(p.high - p.low) / 2 / p.samples_per_second for p in rows])
    return float(inside), float(width)


def _score_sources(rows: Sequence[PredictedRow]) -> dict[str, SourceScore]:
    by_source: dict[str, list[PredictedRow]] = {}
    for predicted in rows:
        by_source.setdefault(predicted.row.source, []).append(predicted)
    return {
        name: SourceScore(
            name,
            members[0].row.table,
            tuple(sorted({p.row.framework for p in members})),
            score_errors(np.array([p.error for p in members]), *_score_coverage(members)),
            float(np.median([p.low / p.samples_per_second - 1 for p in members])),
            float(np.median([p.high / p.samples_per_second - 1 for p in members])),
            tuple(sorted({p.row.input_workers for p in members if p.row.input_workers})),
        )
        for name, members in by_source.items()
    }


def measure_distance(cases: Cases, parts: StepParts) -> Distance:
    """Return the distance of each row from its anchor."""
    from_single_gpu = Distance.from_parts(parts, cases.machines.gpus, cases.accumulate)
    return replace(
        from_single_gpu,
        doublings=np.log2(cases.machines.gpus / cases.anchor_machines.gpus),
        batch=np.abs(np.log(cases.batch / cases.anchor_batch)),
    )


def score_errors(errors: Floats, inside: float | None = None, width: float | None = None) -> Score:
    distance = np.abs(errors)
    return Score(
        rows=len(errors),
        mean_abs_error=float(distance.mean()),
        median_abs_error=float(np.median(distance)),
        p90_abs_error=float(np.quantile(distance, 0.9)),
        worst_abs_error=float(distance.max()),
        bias=float(errors.mean()),
        inside_interval=inside,
        median_interval_width=width,
    )


def average(scores: Sequence[Score]) -> Score:
    """Average scores over tables; the rows are summed, and the worst error is the maximum."""

    def mean(name: str) -> float | None:
        values = [getattr(score, name) for score in scores]
        return None if None in values else float(np.mean(values))

    return Score(
        rows=sum(score.rows for score in scores),
        mean_abs_error=mean("mean_abs_error") or 0.0,
        median_abs_error=mean("median_abs_error") or 0.0,
        p90_abs_error=mean("p90_abs_error") or 0.0,
        worst_abs_error=max(score.worst_abs_error for score in scores),
        bias=mean("bias") or 0.0,
        inside_interval=mean("inside_interval"),
        median_interval_width=mean("median_interval_width"),
    )
