"""One GPU's throughput without a measurement, and scaled from another GPU's, against published figures."""

from collections.abc import Sequence

import numpy as np

from gpuyard.catalog import gpus, models
from gpuyard.catalog.published import SingleGpuRow, single_gpu_rows
from gpuyard.predict.compute import roofline
from gpuyard.predict.step import Floats
from gpuyard.predict.tuning import RooflineFit, fitted_roofline
from gpuyard.predict.validation.score import Score, score_of

TABLE = "lambda"


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


def score_single_gpu() -> dict[str, Score]:
    """`roofline`: from the datasheet alone; `scaled`: from the same model's figure on each other GPU of
    the same set. The constants are fitted without the GPU that is predicted."""
    rows = one_gpu_rows()
    measured = measured_seconds(rows)
    ids = list(dict.fromkeys(row.gpu for row in rows))
    by_gpu = {gpu: estimated_seconds(rows, fitted_roofline(gpu)) for gpu in ids}
    alone = [measured[i] / by_gpu[row.gpu][i] - 1 for i, row in enumerate(rows)]
    scaled = [
        measured[i] / (by_gpu[row.gpu][i] * measured[j] / by_gpu[row.gpu][j]) - 1
        for i, row in enumerate(rows)
        for j, other in enumerate(rows)
        if _comparable(row, other)
    ]
    return {"roofline": score_of(np.array(alone)), "scaled": score_of(np.array(scaled))}


def _comparable(row: SingleGpuRow, other: SingleGpuRow) -> bool:
    same_set = row.series.split()[0] == other.series.split()[0]
    return (
        same_set
        and row.gpu != other.gpu
        and (row.model, row.precision) == (other.model, other.precision)
    )
