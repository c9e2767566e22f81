"""States in host memory: what leaves the GPU, and the transfers that bring it back.

Sources: Ren et al. 2021 (arXiv 2101.06840) for optimizer states; PyTorch's FSDP2, whose `CPUOffloadPolicy` copies each
layer's weights to the GPU for forward and for backward and its gradients back, in every micro-batch.
"""

from dataclasses import replace

import numpy as np

from gpuyard.predictor.large.constants import blend, load_fit
from gpuyard.predictor.large.layout import LayoutColumns
from gpuyard.predictor.large.memory import MemoryColumns, StateBytes
from gpuyard.predictor.large.model import ModelColumns
from gpuyard.predictor.large.step import StepColumns
from gpuyard.predictor.large.traffic import Traffic
from gpuyard.predictor.table import Floats
from gpuyard.specs.parallel import Offload

_HOST_LINK_BYTES_PER_SECOND = 25e9  # PCIe 4 x16
_OPTIMIZER_BYTES = 6.0  # per parameter and step: fp32 gradients to the host, 16-bit weights back


def remove_offloaded(
    memory: MemoryColumns,
    offload: Offload | None,
    model: ModelColumns,
    layouts: LayoutColumns,
    states: StateBytes,
) -> MemoryColumns:
    """Return the memory without what the host holds; offloaded parameters leave buffers for a few layers."""
    if offload is None:
        return memory
    nothing = np.zeros_like(memory.optimizer)
    if offload == "optimizer":
        return replace(memory, optimizer=nothing)
    buffered = load_fit().memory.gathered_layers / layouts.stage_layers(model.layers)
    embedding = np.asarray(states.weights * model.embedding_parameters / layouts.tensor)
    # sharded weights have such buffers already: those of gathered layers
    weights = np.where(
        np.asarray(layouts.zero) >= 3, 0.0, np.maximum(buffered * memory.weights, embedding)
    )
    return replace(
        memory,
        optimizer=nothing,
        weights=np.minimum(weights, memory.weights),
        gradients=np.minimum(buffered, 1.0) * memory.gradients,
    )


def add_transfers(
    step: StepColumns,
    offload: Offload | None,
    model: ModelColumns,
    layouts: LayoutColumns,
    states: StateBytes,
) -> StepColumns:
    """Add the transfers between host and GPU: once per step for the optimizer, in each micro-batch for parameters."""
    if offload is None:
        return step
    traffic = Traffic(model, layouts)
    divided = np.where(np.asarray(layouts.zero) >= 1, np.maximum(layouts.shard, 1.0), 1.0)
    local = (traffic.local_dense + traffic.local_experts) / divided
    if offload == "optimizer":
        moved = states.trained_share * _OPTIMIZER_BYTES * local
        return replace(step, optimizer=step.optimizer + moved / _HOST_LINK_BYTES_PER_SECOND)
    held = np.where(np.asarray(layouts.zero) >= 3, local, local * divided)
    moved = 2 * states.weights * held + states.trained_share * states.gradients * held
    transfer = layouts.micro_batches * moved / _HOST_LINK_BYTES_PER_SECOND
    computing = step.compute + step.recompute
    wait: Floats = blend(computing, transfer, load_fit().constants.shard_exposed) - computing
    return replace(step, data=step.data + wait)
