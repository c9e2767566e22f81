"""One GPU's throughput without a measurement, and scaled from another GPU's, against published figures."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from gpuyard.catalog import gpus, models
from gpuyard.catalog.published import single_gpu_rows
from gpuyard.catalog.published_rows import SingleGpuRow
from gpuyard.predict.compute import MOST_FIXED, roofline
from gpuyard.predict.constants import RooflineFit, fitted_roofline
from gpuyard.predict.table import Floats
from gpuyard.predict.validation.score import Score, score_of

TABLE = "lambda"
Pair = tuple[SingleGpuRow, SingleGpuRow]


def one_gpu_rows() -> tuple[SingleGpuRow, ...]:
    """Lambda's: one program for each model on every GPU. A GPU must offer the precision."""
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
    """The same model on the same GPU in the same series at a batch and at the next larger one."""
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
    """Of the smaller batch, from the larger one's figure and the estimate of what no batch changes."""
    seconds = measured_seconds([large for _, large in pairs])
    made = []
    for (small, large), known in zip(pairs, seconds, strict=True):
        line = roofline(models().get(large.model), gpus().get(large.gpu), large.precision, fit)
        fixed = min(line.fixed_seconds, MOST_FIXED * known)
        made.append(fixed + (known - fixed) * small.batch_per_gpu / large.batch_per_gpu)
    return np.array(made)


def score_single_gpu() -> dict[str, Score]:
    """`smaller batch`: from the same GPU's figure at the next larger batch; the others as below."""
    ratios = slower_by(fitted_roofline)
    return {
        **{name: score_of(ratio - 1) for name, ratio in ratios.items()},
        "smaller batch": score_of(_smaller_batch_errors()),
    }


def slower_by(without: Callable[[str], RooflineFit]) -> dict[str, Floats]:
    """Measured over predicted seconds of one GPU, by constants that were fitted without it. `roofline`:
    from the datasheet alone; `scaled`: from the same model's figure on each other GPU of the same set."""
    rows = one_gpu_rows()
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
        fit = fitted_roofline(pair[0].gpu)
        errors.append(measured_seconds(pair[:1]) / smaller_batch_seconds([pair], fit) - 1)
    return np.concatenate(errors)


def _comparable(row: SingleGpuRow, other: SingleGpuRow) -> bool:
    same_set = row.series.split()[0] == other.series.split()[0]
    return (
        same_set
        and row.gpu != other.gpu
        and (row.model, row.precision) == (other.model, other.precision)
    )
