"""Fit the constants of the memory formula to published peaks."""

from collections import Counter
from dataclasses import fields

import numpy as np
from scipy.optimize import least_squares

from gpuyard.predictor.large.evaluation import usable_bytes
from gpuyard.predictor.large.layout import stack_layouts
from gpuyard.predictor.large.memory import MemoryConstants, compute_memory
from gpuyard.predictor.large.model import describe_model, stack_models
from gpuyard.predictor.large.published_table import published_bytes, state_bytes
from gpuyard.predictor.large.row_batches import predict_memory
from gpuyard.predictor.large.rows import PublishedRow
from gpuyard.predictor.table import Booleans, Floats
from large_tables import find_publishers

MEMORY_MARGIN = 1.08  # a model must fit with this much to spare
NOISE, PRIOR = 0.07, 0.2


def is_ordinary(row: PublishedRow) -> bool:
    """Return whether a row's peak may be fitted: no offloading, chunked loss, or optimizer in backward, and no OOM."""
    plain = row.quality != "C" and not row.source.startswith("torchtune")
    return plain and not np.isnan(row.value) and not (row.source == "litgpt" and row.gpus > 1)


def fit_memory(rows: list[PublishedRow]) -> tuple[MemoryConstants, Floats]:
    """Return the memory constants and the logarithms of measured over predicted."""
    names = [f.name for f in fields(MemoryConstants)]
    model = stack_models([describe_model(row.shape) for row in rows])
    layout = stack_layouts([row.layout for row in rows], [row.expert_tensor for row in rows])
    states, measured = state_bytes(rows), np.array([published_bytes(row) for row in rows])
    counts = Counter(row.source for row in rows)
    weight = np.array([counts[row.source] ** -0.25 for row in rows])
    start = MemoryConstants()

    def build(vector: Floats) -> MemoryConstants:
        values = {n: getattr(start, n) * np.exp(x) for n, x in zip(names, vector, strict=True)}
        return MemoryConstants(**{name: float(value) for name, value in values.items()})

    def errors(vector: Floats) -> Floats:
        return np.log(measured / compute_memory(model, layout, states, build(vector)).total)

    solution = least_squares(
        lambda v: np.concatenate([weight * errors(v) / NOISE, v / PRIOR]),
        np.zeros(len(names)), loss="soft_l1", f_scale=1.5,
    )  # fmt: skip
    return build(solution.x), errors(solution.x)


def leave_memory_out(rows: list[PublishedRow], usable: Booleans) -> Floats:
    """Return the predicted bytes of all rows, with each publisher left out of the fit to the usable ones."""
    names = find_publishers(rows)
    predicted = np.full(len(rows), np.nan)
    for name in sorted(set(names)):
        out = np.flatnonzero(names == name)
        constants, _ = fit_memory([rows[i] for i in np.flatnonzero((names != name) & usable)])
        predicted[out] = predict_memory([rows[i] for i in out], constants)
    return predicted


def judge_fits(rows: list[PublishedRow], predicted: Floats) -> str:
    """Return how often the verdict of fitting is right."""
    limits = np.array([usable_bytes(row.memory_bytes) for row in rows])
    fits = predicted * MEMORY_MARGIN <= limits
    ran = ~np.isnan([row.value for row in rows])
    return (
        f"right for {(fits == ran).mean():.1%} of {len(rows)} rows, said fits but ran out {(fits & ~ran).mean():.1%}, "
        f"said does not fit but ran {(~fits & ran).mean():.1%}"
    )
