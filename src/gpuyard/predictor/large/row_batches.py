"""The micro-batch of rows that do not state it: the largest that fits, which is what people use."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpuyard.predictor.large.constants import load_fit
from gpuyard.predictor.large.evaluation import usable_bytes
from gpuyard.predictor.large.layout import stack_layouts
from gpuyard.predictor.large.memory import MemoryConstants, compute_memory
from gpuyard.predictor.large.model import describe_model, stack_models
from gpuyard.predictor.large.published_table import state_bytes
from gpuyard.predictor.large.rows import PublishedRow
from gpuyard.predictor.table import Floats

_MAX_MICRO_BATCH = 64  # if the table states no batch at all


def infer_micro_batches(rows: Sequence[PublishedRow]) -> list[PublishedRow]:
    """Return the rows with the largest power of two that fits, where the table states no micro-batch."""
    return [row if row.micro_known else _infer(row) for row in rows]


def _infer(row: PublishedRow) -> PublishedRow:
    layout = row.layout
    global_known = row.global_known
    largest = max(1, layout.global_batch // layout.data) if global_known else _MAX_MICRO_BATCH
    sizes = [2**exponent for exponent in range(largest.bit_length())]
    candidates = [
        replace(
            row,
            layout=replace(
                layout,
                micro_batch=size,
                global_batch=layout.global_batch if global_known else size * layout.data,
            ),
        )
        for size in sizes
    ]
    fit = load_fit()
    needed = predict_memory(candidates, fit.memory) * fit.memory_margin
    fitting = int(np.count_nonzero(needed <= usable_bytes(row.memory_bytes)))
    return candidates[max(0, fitting - 1)]


def predict_memory(rows: Sequence[PublishedRow], constants: MemoryConstants) -> Floats:
    """Return the predicted bytes on the fullest GPU of each row."""
    layouts = stack_layouts([row.layout for row in rows], [row.expert_tensor for row in rows])
    model = stack_models([describe_model(row.shape) for row in rows])
    return compute_memory(model, layouts, state_bytes(rows), constants).total
