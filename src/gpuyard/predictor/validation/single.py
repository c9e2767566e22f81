"""Validation of single-GPU throughput: speeds of publishers never seen, scaled figures, and smaller batches."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from gpuyard.catalog import gpus, models
from gpuyard.catalog.published import single_gpu_rows
from gpuyard.catalog.published_rows import SingleGpuRow
from gpuyard.predictor.compute import MAX_FIXED, roofline
from gpuyard.predictor.constants import RooflineFit, load_roofline_fit
from gpuyard.predictor.speed_evidence import load_speed_evidence
from gpuyard.predictor.table import Floats
from gpuyard.predictor.validation.score import Score, score_errors
from gpuyard.predictor.validation.speed import compare_scaled, score_speeds

TABLE = "lambda"
BATCH_TABLES = ("tf_benchmarks_2017", "pollux_t4", TABLE)
Pair = tuple[SingleGpuRow, SingleGpuRow]


def load_single_gpu_rows() -> tuple[SingleGpuRow, ...]:
    """Return Lambda's rows of GPUs that support the precision: the same program per model on every GPU."""
    return tuple(
        row
        for row in single_gpu_rows()
        if row.table == TABLE and gpus().get(row.gpu).peak_flops(row.precision) is not None
    )


def estimated_seconds(rows: Sequence[SingleGpuRow], fit: RooflineFit) -> Floats:
    lines = [
        (roofline(models().get(r.model), gpus().get(r.gpu), r.precision, fit), r.batch_per_gpu)
        for r in rows
    ]
    return np.array([line.fixed_seconds + batch * line.seconds_per_sample for line, batch in lines])


def measured_seconds(rows: Sequence[SingleGpuRow]) -> Floats:
    return np.array([row.batch_per_gpu / row.samples_per_second for row in rows])


def batch_pairs() -> tuple[Pair, ...]:
    """Return pairs of rows that differ only in the batch: one and the next larger one."""
    series: dict[tuple[str, ...], list[SingleGpuRow]] = {}
    for row in single_gpu_rows():
        if row.model in models() and row.table in BATCH_TABLES:
            key = (row.table, row.series, row.model, row.gpu, row.precision)
            series.setdefault(key, []).append(row)
    ordered = [sorted(rows, key=lambda row: row.batch_per_gpu) for rows in series.values()]
    return tuple(
        pair
        for rows in ordered
        for pair in pairwise(rows)
        if pair[0].batch_per_gpu < pair[1].batch_per_gpu
    )


def smaller_batch_seconds(pairs: Sequence[Pair], fit: RooflineFit) -> Floats:
    """Predict the smaller batch from the larger one's figure and the estimated fixed part."""
    predicted = []
    for (small, large), seconds in zip(
        pairs, measured_seconds([large for _, large in pairs]), strict=True
    ):
        line = roofline(models().get(large.model), gpus().get(large.gpu), large.precision, fit)
        fixed = min(line.fixed_seconds, MAX_FIXED * seconds)
        predicted.append(fixed + (seconds - fixed) * small.batch_per_gpu / large.batch_per_gpu)
    return np.array(predicted)


def score_single_gpu() -> dict[str, Score]:
    """Score one GPU's speed; `smaller batch` uses the same GPU's figure at the next larger batch."""
    return {
        **score_speeds(),
        "scaled": score_errors(compare_scaled(load_speed_evidence()) - 1),
        "smaller batch": score_errors(_smaller_batch_errors()),
    }


def _smaller_batch_errors() -> Floats:
    errors = []
    for pair in batch_pairs():
        fit = load_roofline_fit(pair[0].gpu)
        errors.append(measured_seconds(pair[:1]) / smaller_batch_seconds([pair], fit) - 1)
    return np.concatenate(errors)
