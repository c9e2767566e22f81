"""Judge the large-model predictions against a table of published runs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.catalog import gpus
from gpuyard.predictor.large.constants import LargeFit, load_fit
from gpuyard.predictor.large.effects import has_evidence
from gpuyard.predictor.large.evaluation import usable_bytes
from gpuyard.predictor.large.interval import (
    correction_weight,
    count_differences,
    interval_kind,
    narrow_interval,
)
from gpuyard.predictor.large.published_table import (
    Table,
    compile_table,
    predict_table,
    published_bytes,
)
from gpuyard.predictor.large.row_batches import infer_micro_batches, predict_memory
from gpuyard.predictor.large.rows import PublishedRow, Skipped, read_rows
from gpuyard.predictor.table import Booleans, Floats

MemoryScores = dict[str, Any]


@dataclass(frozen=True)
class Scores:
    """A comparison of predictions with measurements, for one source or for all."""

    source: str
    rows: int
    median_abs_error: float
    mean_abs_error: float
    p90_abs_error: float
    inside_interval: float
    bias: float

    def as_json(self) -> dict[str, Any]:
        return vars(self)


@dataclass(frozen=True)
class TableScores:
    """The judgment of one table."""

    sources: tuple[Scores, ...]
    overall: Scores | None
    skipped: tuple[Skipped, ...]
    choices: dict[str, float | int | None]
    memory: MemoryScores | None

    def as_json(self) -> dict[str, Any]:
        return {
            "sources": [score.as_json() for score in self.sources],
            "overall": self.overall.as_json() if self.overall else {},
            "skipped": [{"row": s.row, "reason": s.reason} for s in self.skipped],
            "choices": self.choices,
            "memory": self.memory,
        }


def judge_table(path: Path, memory: Path | None = None, points: int = 0) -> TableScores:
    """Predict every row of a table and compare; with `points`, one row per series corrects the others.

    Rows of both tables that measured memory, or ran out of it, judge the predicted memory.
    """
    rows, skipped = read_rows(path)
    fit = load_fit()
    timed, table, predicted = _predict([row for row in rows if row.has_speed], fit, skipped)
    sources: list[Scores] = []
    overall = None
    choices: dict[str, float | int | None] = {
        "groups": 0, "median_regret": None, "p90_regret": None,
    }  # fmt: skip
    if timed:
        low, high, keep = _find_intervals(table, fit, points)
        corrected = predicted * _compute_corrections(table, predicted, points)
        names = np.array([row.source for row in timed])
        for name in dict.fromkeys(names):
            mask = (names == name) & keep
            if mask.any():
                sources.append(
                    _score(str(name), corrected[mask], table.measured[mask], low[mask], high[mask])
                )
        if keep.any():
            overall = _score("all", corrected[keep], table.measured[keep], low[keep], high[keep])
        choices = judge_choices(timed, table.measured, predicted)
    remaining = [row for row in rows if not row.has_speed]
    return TableScores(
        tuple(sources), overall, tuple(sorted(skipped, key=lambda s: s.row)), choices,
        judge_memory(remaining, memory) if memory or remaining else None,
    )  # fmt: skip


def _predict(
    rows: list[PublishedRow], fit: LargeFit, skipped: list[Skipped]
) -> tuple[list[PublishedRow], Table, Floats]:
    """Return the rows with a prediction; the others join `skipped`."""
    rows = infer_micro_batches(rows)
    table = compile_table(rows)
    if not rows:
        return rows, table, np.empty(0)
    with np.errstate(all="ignore"):
        predicted, _ = predict_table(table, fit.constants, fit.effects)
    good = np.isfinite(predicted / table.measured) & (predicted > 0) & (table.measured > 0)
    if good.all():
        return rows, table, predicted
    reason = "its numbers are too large or too small for a prediction"
    skipped += [Skipped(row.row, reason) for row, ok in zip(rows, good, strict=True) if not ok]
    return _predict([row for row, ok in zip(rows, good, strict=True) if ok], fit, skipped)


def _score(source: str, predicted: Floats, measured: Floats, low: Floats, high: Floats) -> Scores:
    relative = predicted / measured - 1
    errors = np.abs(relative)
    inside = (measured >= predicted * low) & (measured <= predicted * high)
    return Scores(
        source, len(errors), float(np.median(errors)), float(errors.mean()),
        float(np.quantile(errors, 0.9)), float(inside.mean()), float(np.median(relative)),
    )  # fmt: skip


def series_key(row: PublishedRow) -> tuple[object, ...]:
    """Return what rows of one series share: one software, GPU, precision, and model."""
    shape = row.shape
    size = (shape.layers, shape.hidden, shape.heads, shape.ffn)
    return row.source, row.framework, row.gpu, row.precision, row.model, row.lora, size


def _compute_corrections(table: Table, predicted: Floats, points: int) -> Floats:
    """Return the factor by which one row of each series corrects the others."""
    factor = np.ones(len(table))
    if not points:
        return factor
    for indices in find_series(table.rows).values():
        point = find_reference_row(table.rows, indices)
        for index in indices:
            weight = correction_weight(table.rows[index].layout, table.rows[point].layout)
            factor[index] = (table.measured[point] / predicted[point]) ** weight
    return factor


def _find_intervals(table: Table, fit: LargeFit, points: int) -> tuple[Floats, Floats, Booleans]:
    """Return the ends of each row's interval over its prediction, and which rows are judged."""
    low, high = np.empty(len(table)), np.empty(len(table))
    for index, row in enumerate(table.rows):
        low[index], high[index] = fit.spread[find_row_kind(fit, row)]
    keep = np.ones(len(table), dtype=bool)
    if points:
        for indices in find_series(table.rows).values():
            point = find_reference_row(table.rows, indices)
            keep[point] = False
            for index in indices:
                row = table.rows[index]
                differences = count_differences(row.layout, table.rows[point].layout)
                low[index], high[index] = narrow_interval(fit, find_row_kind(fit, row), differences)
    return low, high, keep


def find_row_kind(fit: LargeFit, row: PublishedRow) -> str:
    """Return the kind of a row's interval; runs without fused kernels differ as much as those on unknown GPUs."""
    experts = row.shape.experts
    known = has_evidence(fit, gpus().get(row.gpu), row.precision, experts)
    return interval_kind(experts=experts, known=bool(known) and row.flash)


def find_series(rows: Sequence[PublishedRow]) -> dict[tuple[object, ...], list[int]]:
    """Return the indices of the rows of each series."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[series_key(row)].append(index)
    return groups


def find_reference_row(rows: Sequence[PublishedRow], indices: Sequence[int]) -> int:
    """Return the row that a user would have measured: the middle one by the number of GPUs."""
    order = sorted(indices, key=lambda index: (rows[index].gpus, index))
    return order[(len(order) - 1) // 2]


def judge_choices(
    rows: Sequence[PublishedRow], measured: Floats, predicted: Floats
) -> dict[str, float | int | None]:
    """Return how much slower the layout that we would pick was than the best of its group."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        key = (*series_key(row), row.gpus, row.layout.global_batch, row.shape.sequence)
        groups[key].append(index)
    regrets = []
    for indices in groups.values():
        layouts = {rows[i].layout for i in indices}
        if len(layouts) < 2:
            continue
        speeds = measured[indices]
        regrets.append(1 - speeds[np.argmax(predicted[indices])] / speeds.max())
    if not regrets:
        return {"groups": 0, "median_regret": None, "p90_regret": None}
    return {
        "groups": len(regrets),
        "median_regret": float(np.median(regrets)),
        "p90_regret": float(np.quantile(regrets, 0.9)),
    }


def judge_memory(rows: list[PublishedRow], path: Path | None = None) -> MemoryScores:
    """Return how well predicted memory and the verdict of fitting agree with rows and a further table."""
    more, skipped = read_rows(path) if path else ([], [])
    skipped += [
        Skipped(row.row, "it states a speed, not a memory") for row in more if row.has_speed
    ]
    rows = rows + [row for row in more if not row.has_speed]
    reasons = [{"row": s.row, "reason": s.reason} for s in sorted(skipped, key=lambda s: s.row)]
    if not rows:
        return {"rows": 0, "median_abs_error": None, "fits_right": None, "said_fits_but_oom": None,
                "said_oom_but_fit": None, "skipped": reasons}  # fmt: skip
    predicted = predict_memory(rows, load_fit().memory)
    measured = np.array([published_bytes(row) for row in rows])
    limits = np.array([usable_bytes(row.memory_bytes) for row in rows])
    fits = predicted * load_fit().memory_margin <= limits
    ran = ~np.isnan(measured)
    errors = np.abs(predicted[ran] / measured[ran] - 1)
    return {
        "rows": len(rows),
        "median_abs_error": float(np.median(errors)) if ran.any() else None,
        "fits_right": float((fits == ran).mean()),
        "said_fits_but_oom": float((fits & ~ran).mean()),
        "said_oom_but_fit": float((~fits & ran).mean()),
        "skipped": reasons,
    }
