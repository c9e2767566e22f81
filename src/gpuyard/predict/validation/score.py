"""How far predictions lie from what was published, by table, by source and in all, beside two simple
formulas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.catalog.published import TRAINING_TABLES, published
from gpuyard.catalog.published_rows import PublishedRow, PublishedSource
from gpuyard.predict import constants as c
from gpuyard.predict.constants import (
    Spread,
    Tuning,
    fitted,
    nested_spreads,
    spread,
    spread_sources,
)
from gpuyard.predict.interval import Distance, Reach
from gpuyard.predict.table import Floats, StepParts
from gpuyard.predict.validation.cases import Cases, compiled


@dataclass(frozen=True)
class Score:
    """Errors of throughput: predicted over published, less one."""

    rows: int
    mean_abs_error: float
    median_abs_error: float
    p90_abs_error: float
    worst_abs_error: float
    bias: float
    inside_interval: float | None = None  # None: a formula without an interval
    median_interval_width: float | None = None  # half of it, as a share of the prediction


@dataclass(frozen=True)
class PredictedRow:
    """One published row and what was predicted for it."""

    row: PublishedRow
    samples_per_second: float
    low: float
    high: float

    @property
    def error(self) -> float:
        return self.samples_per_second / self.row.samples_per_second - 1


@dataclass(frozen=True)
class TableScore:
    """One table: ours, the two formulas on the same rows, and what was left out."""

    source: PublishedSource
    score: Score
    perfect_scaling: Score
    no_overlap: Score
    anchors: int
    skipped: tuple[tuple[str, int], ...]
    rows: tuple[PredictedRow, ...]


@dataclass(frozen=True)
class SourceScore:
    """One publisher's machines under one software stack: how far off, and how much of it the interval holds
    that was sized without it."""

    source: str
    table: str
    frameworks: tuple[str, ...]
    score: Score
    median_low: float  # ends of the interval, as shares of the prediction less one
    median_high: float
    input_workers: tuple[int, ...] = ()  # for each GPU, where the table says them


@dataclass(frozen=True)
class Validation:
    """All tables, and their average, in which a large table counts as much as a small one; and all sources,
    of which the same is true."""

    tables: dict[str, TableScore]
    overall: Score
    perfect_scaling: Score
    no_overlap: Score
    beside: dict[str, TableScore]  # in no average over tables; their sources count
    sources: dict[str, SourceScore]
    by_source: Score  # their average
    # what is inside of sources of the fit where they had no say in how far intervals are stretched either
    nested: dict[str, float]

    @property
    def nested_average(self) -> float:
        """Over all sources."""
        inside = {name: one.score.inside_interval or 0.0 for name, one in self.sources.items()}
        return float(np.mean(list((inside | self.nested).values())))

    @property
    def worst_source(self) -> SourceScore:
        """Of which the interval holds least."""
        return min(self.sources.values(), key=lambda one: one.score.inside_interval or 0.0)


def validate(tables: Sequence[str] = TRAINING_TABLES, beside: Sequence[str] = ()) -> Validation:
    """Predict every row with constants that were fitted without its table and an interval that was sized
    without its source. Tables `beside` count by their sources alone."""
    for name in (*tables, *beside):
        published(name)  # raises where there is no such table
    # no constant is fitted to the others, so that what ships is blind to them
    left_out = {name: name if name in TRAINING_TABLES else None for name in (*tables, *beside)}
    scored = {name: score_table(name, fitted(out)) for name, out in left_out.items()}
    every = [scored[name] for name in tables]
    sources = _by_source([row for table in scored.values() for row in table.rows])
    return Validation(
        {name: scored[name] for name in tables},
        average([t.score for t in every]),
        average([t.perfect_scaling for t in every]),
        average([t.no_overlap for t in every]),
        {name: scored[name] for name in beside},
        sources,
        average([one.score for one in sources.values()]),
        _nested(sources, left_out),
    )


def _nested(sources: dict[str, SourceScore], left_out: dict[str, str | None]) -> dict[str, float]:
    """Each with an interval that had no part of it, not even in its stretch."""
    off = nested_spreads()
    known = {name: one.table for name, one in sources.items() if name in off}
    found: dict[str, list[PredictedRow]] = {name: [] for name in known}
    for table in dict.fromkeys(known.values()):
        for predicted in score_table(table, fitted(left_out[table]), off.__getitem__).rows:
            found[predicted.row.source].append(predicted)
    return {name: _held(rows)[0] for name, rows in found.items()}


def spread_without(source: str) -> Spread:
    return spread(source if source in spread_sources() else None)


def score_table(
    name: str, tuning: Tuning, off: Callable[[str], Spread] = spread_without
) -> TableScore:
    """One table with the constants given, and for each source its interval."""
    table = published(name)
    rows: list[PredictedRow] = []
    ours: list[Floats] = []
    perfect: list[Floats] = []
    plain: list[Floats] = []
    for cases in compiled(table.rows):
        parts = cases.predicted(tuning)
        rate = np.array([row.gpus * row.batch_per_gpu for row in cases.rows]) / parts.step_seconds
        low, high = _ends(cases, parts, rate, off)
        rows += [
            PredictedRow(row, float(r), float(slow), float(fast))
            for row, r, slow, fast in zip(cases.rows, rate, low, high, strict=True)
        ]
        ours.append(cases.measured_seconds / parts.step_seconds - 1)
        perfect.append(cases.measured_seconds / cases.perfect_seconds - 1)
        plain.append(cases.measured_seconds / cases.no_overlap_seconds(tuning) - 1)
    return TableScore(
        table.source,
        score_of(np.concatenate(ours), *_held(rows)),
        score_of(np.concatenate(perfect)),
        score_of(np.concatenate(plain)),
        table.anchors,
        table.skipped,
        tuple(rows),
    )


def _ends(
    cases: Cases, parts: StepParts, rate: Floats, off: Callable[[str], Spread]
) -> tuple[Floats, Floats]:
    far = distance(cases, parts)
    source = np.array([row.source for row in cases.rows])
    slow, fast = np.empty_like(rate), np.empty_like(rate)
    for name in dict.fromkeys(source.tolist()):
        here = source == name
        reach = Reach.of(far.take(here), off(name)).and_sigma(c.UNCERTAINTY["measured"])
        slow[here], fast[here] = reach.slow, reach.fast
    return Reach(slow, fast).ends(rate)


def _held(rows: Sequence[PredictedRow]) -> tuple[float, float]:
    """The share of rows inside their interval, and half the median interval."""
    inside = np.mean([p.low <= p.row.samples_per_second <= p.high for p in rows])
    width = np.median([(p.high - p.low) / 2 / p.samples_per_second for p in rows])
    return float(inside), float(width)


def _by_source(rows: Sequence[PredictedRow]) -> dict[str, SourceScore]:
    found: dict[str, list[PredictedRow]] = {}
    for predicted in rows:
        found.setdefault(predicted.row.source, []).append(predicted)
    return {
        name: SourceScore(
            name,
            members[0].row.table,
            tuple(sorted({p.row.framework for p in members})),
            score_of(np.array([p.error for p in members]), *_held(members)),
            float(np.median([p.low / p.samples_per_second - 1 for p in members])),
            float(np.median([p.high / p.samples_per_second - 1 for p in members])),
            tuple(sorted({p.row.input_workers for p in members if p.row.input_workers})),
        )
        for name, members in found.items()
    }


def distance(cases: Cases, parts: StepParts) -> Distance:
    """Of each row from the figure that it stands on."""
    from_one = Distance.of(parts, cases.spots.gpus, cases.accumulate)
    return replace(
        from_one,
        doublings=np.log2(cases.spots.gpus / cases.anchor_spots.gpus),
        batch=np.abs(np.log(cases.batch / cases.anchor_batch)),
    )


def score_of(errors: Floats, inside: float | None = None, width: float | None = None) -> Score:
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
    """Over tables; rows are counted, and the worst is the worst."""

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
