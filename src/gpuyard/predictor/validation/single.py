"""Validation of single-GPU throughput, from datasheets or scaled from another GPU, against published figures."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from gpuyard.catalog import gpus, models
from gpuyard.catalog.published import single_gpu_rows
from gpuyard.catalog.published_rows import SingleGpuRow
from gpuyard.predictor.compute import MAX_FIXED, roofline
from gpuyard.predictor.constants import RooflineFit, load_roofline_fit
from gpuyard.predictor.table import Floats
from gpuyard.predictor.validation.score import Score, score_errors

TABLE = "lambda"
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
        if row.model in models():
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
    """Score estimates by basis; `smaller batch` uses the same GPU's figure at the next larger batch."""
    ratios = measured_to_predicted(load_roofline_fit)
    return {
        **{name: score_errors(ratio - 1) for name, ratio in ratios.items()},
        "smaller batch": score_errors(_smaller_batch_errors()),
    }


def measured_to_predicted(without: Callable[[str], RooflineFit]) -> dict[str, Floats]:
    """Return measured over predicted seconds of one GPU, with constants fitted without it.

    `roofline` predicts from the datasheet alone; `scaled` from the same model's figure on each other GPU of the set.
    """
    rows = load_single_gpu_rows()
    measured = measured_seconds(rows)
    ids = list(dict.fromkeys(row.gpu for row in rows))
    by_gpu = {gpu: estimated_seconds(rows, without(gpu)) for gpu in ids}
    alone = [measured[i] / by_gpu[row.gpu][i] for i, row in enumerate(rows)]
    scaled = [
        measured[i] / (by_gpu[row.gpu][i] * measured[j] / by_gpu[row.gpu][j])
        for i, row in enumerate(rows)
        for j, other in enumerate(rows)
        if _comparable(row, other)
    ]
    return {"roofline": np.array(alone), "scaled": np.array(scaled)}


def _smaller_batch_errors() -> Floats:
    errors = []
    for pair in batch_pairs():
        fit = load_roofline_fit(pair[0].gpu)
        errors.append(measured_seconds(pair[:1]) / smaller_batch_seconds([pair], fit) - 1)
    return np.concatenate(errors)


def _comparable(row: SingleGpuRow, other: SingleGpuRow) -> bool:
    same_set = row.series.split()[0] == other.series.split()[0]
    return (
        same_set
        and row.gpu != other.gpu
        and (row.model, row.precision) == (other.model, other.precision)
    )
