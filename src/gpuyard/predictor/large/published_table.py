"""Predict a table of published runs at once, one row each with its own model, layout, and cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from gpuyard.catalog import gpus
from gpuyard.predictor.large.cluster import NARROW_PRECISIONS, ClusterColumns, stack_clusters
from gpuyard.predictor.large.compute import TrainingOptions
from gpuyard.predictor.large.constants import LargeConstants
from gpuyard.predictor.large.effects import apply_effects, effect_keys
from gpuyard.predictor.large.layout import LayoutColumns, stack_layouts
from gpuyard.predictor.large.memory import StateBytes
from gpuyard.predictor.large.model import ModelColumns, describe_model, stack_models
from gpuyard.predictor.large.rows import PublishedRow
from gpuyard.predictor.large.step import StepColumns, compute_step
from gpuyard.predictor.table import Floats


@dataclass(frozen=True)
class Table:
    """Published runs as columns."""

    rows: tuple[PublishedRow, ...]
    model: ModelColumns
    layout: LayoutColumns
    cluster: ClusterColumns
    options: TrainingOptions
    effect_keys: tuple[tuple[str, ...], ...]  # of matrices; the last is that of attention
    measured: Floats  # tokens per second per GPU; NaN if the row has none

    def __len__(self) -> int:
        return len(self.rows)


def compile_table(rows: Sequence[PublishedRow]) -> Table:
    """Return the columns of all rows."""
    lora = np.array([bool(row.lora) for row in rows])
    cluster = stack_clusters(
        [row.cluster for row in rows],
        [row.precision for row in rows],
        [row.cluster.nodes for row in rows],
    )
    bandwidth = np.array([row.memory_bytes_per_second for row in rows])
    return Table(
        rows=tuple(rows),
        model=stack_models([describe_model(row.shape) for row in rows]),
        layout=stack_layouts([row.layout for row in rows], [row.expert_tensor for row in rows]),
        cluster=replace(cluster, memory_bytes_per_second=bandwidth),
        options=TrainingOptions(
            narrow=np.array([float(row.precision in NARROW_PRECISIONS) for row in rows]),
            flash=np.array([float(row.flash) for row in rows]),
            older_attention=np.array([float(row.older_attention) for row in rows]),
            overlapped=np.array([float(row.overlapped) for row in rows]),
            eager=np.array([row.eager_share for row in rows]),
            sequence_parallel=np.array([float(row.sequence_parallel) for row in rows]),
            trained_share=np.where(lora, 0.02, 1.0),
            gradient_bytes=np.full(len(rows), 4.0),
            parameter_bytes=np.full(len(rows), 2.0),
        ),
        effect_keys=tuple(
            effect_keys(gpus().get(row.gpu), row.precision, row.variant) for row in rows
        ),
        measured=np.array([row.tokens_per_second_per_gpu() or np.nan for row in rows], dtype=float),
    )


def predict_table(
    table: Table, constants: LargeConstants, effects: Mapping[str, float]
) -> tuple[Floats, StepColumns]:
    """Return tokens per second per GPU and the parts of the step."""
    with_effect = apply_effects(constants, effects, table.effect_keys)
    step = compute_step(table.model, table.layout, table.cluster, table.options, with_effect)
    tokens = table.layout.global_batch * table.model.sequence
    return tokens / step.total / table.layout.gpus, step


def state_bytes(rows: Sequence[PublishedRow]) -> StateBytes:
    """Return the bytes per parameter of each row's training states."""
    return stack_states([describe_row_states(row) for row in rows])


def describe_row_states(row: PublishedRow) -> StateBytes:
    """Return the bytes per parameter that the row's software keeps."""
    how = {
        "narrow": float(row.precision in NARROW_PRECISIONS),
        "flash": float(row.flash),
        "sequence_parallel": float(row.sequence_parallel),
        "eager": float(row.eager),
    }
    if row.lora:
        weights = 0.56 if row.lora == "qlora" else 2.0
        return StateBytes(weights, 2.0, 4.0, trained_share=0.004, **how)
    if row.pure:
        return StateBytes(2.0, 2.0, 4.0, **how)
    if row.lean:  # 8-bit moments, and gradients that backward uses at once
        return StateBytes(2.0, 0.5, 2.0, **how)
    if row.deepspeed:  # 16-bit weights and gradients, and an fp32 copy among the states
        return StateBytes(2.0, 2.0, 12.0, **how)
    if row.layout.family == "pytorch":  # the weights are the fp32 copy
        return StateBytes(4.0, 4.0, 8.0, **how)
    return StateBytes(2.0, 4.0, 12.0, **how)


def stack_states(states: Sequence[StateBytes]) -> StateBytes:
    """Return one row per set of states."""
    return StateBytes(
        *(np.array([getattr(s, f.name) for s in states], dtype=float) for f in fields(StateBytes))
    )


def published_bytes(row: PublishedRow) -> float:
    """Return the published memory of the fullest GPU in bytes; NaN: it ran out of memory."""
    scale = row.metric.scale
    if scale is None:  # no GPU has a TiB, nor a million MiB
        scale = 2.0**30 if row.value < 1e3 else 2.0**20 if row.value < 1e6 else 1.0
    return row.value * scale
