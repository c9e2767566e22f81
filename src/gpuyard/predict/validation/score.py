"""How far predictions lie from what was published, by table and in all, beside two simple formulas."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog.published import TRAINING_TABLES, published
from gpuyard.catalog.published_rows import PublishedRow, PublishedSource
from gpuyard.predict.constants import Spread, Tuning, fitted, spread
from gpuyard.predict.prediction import StepParts
from gpuyard.predict.table import Floats
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
class Validation:
    """All tables, and their average, in which a large table counts as much as a small one."""

    tables: dict[str, TableScore]
    overall: Score
    perfect_scaling: Score
    no_overlap: Score


def validate(tables: Sequence[str] = TRAINING_TABLES) -> Validation:
    """Predict every row with the constants that were fitted without its table."""
    for name in tables:
        published(name)  # raises where there is no such table
    # the lab is in no fit, so that what ships is blind to it
    left_out = {name: name if name in TRAINING_TABLES else None for name in tables}
    scored = {name: score_table(name, fitted(out), spread(out)) for name, out in left_out.items()}
    every = list(scored.values())
    return Validation(
        scored,
        average([t.score for t in every]),
        average([t.perfect_scaling for t in every]),
        average([t.no_overlap for t in every]),
    )


def score_table(name: str, tuning: Tuning, off: Spread) -> TableScore:
    """One table with the constants given."""
    table = published(name)
    rows: list[PredictedRow] = []
    ours: list[Floats] = []
    perfect: list[Floats] = []
    plain: list[Floats] = []
    widths: list[Floats] = []
    for cases in compiled(table.rows):
        parts = cases.predicted(tuning)
        rate = np.array([row.gpus * row.batch_per_gpu for row in cases.rows]) / parts.step_seconds
        low, high = off.ends(rate, relative_sigma(cases, parts, off))
        rows += [
            PredictedRow(row, float(r), float(slow), float(fast))
            for row, r, slow, fast in zip(cases.rows, rate, low, high, strict=True)
        ]
        ours.append(cases.measured_seconds / parts.step_seconds - 1)
        perfect.append(cases.measured_seconds / cases.perfect_seconds - 1)
        plain.append(cases.measured_seconds / cases.no_overlap_seconds(tuning) - 1)
        widths.append((high - low) / 2 / rate)
    inside = np.mean([p.low <= p.row.samples_per_second <= p.high for p in rows])
    score = score_of(np.concatenate(ours), float(inside), float(np.median(np.concatenate(widths))))
    return TableScore(
        table.source,
        score,
        score_of(np.concatenate(perfect)),
        score_of(np.concatenate(plain)),
        table.anchors,
        table.skipped,
        tuple(rows),
    )


def relative_sigma(cases: Cases, parts: StepParts, off: Spread) -> Floats:
    """One σ of a step that stands on a measured one, by how far it is from it."""
    added = parts.exposed_communication_seconds + parts.straggler_seconds
    more_machines = cases.spots.nodes > cases.anchor_spots.nodes
    stretch = np.log(cases.batch / cases.anchor_batch)
    return np.sqrt(
        off.compute**2
        + (off.between * more_machines) ** 2
        + off.of_exchange(added / parts.step_seconds, cases.spots.nodes > 1) ** 2
        + (off.batch * stretch) ** 2
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
