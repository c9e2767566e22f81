"""The memory of the fullest GPU, part by part and for many layouts at once.

Sources: Korthikanti et al. 2022 (arXiv 2205.05198) for activations, Rajbhandari et al. 2020 (arXiv 1910.02054) for the
states that ZeRO divides.
"""

from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predictor.large.layout import LayoutColumns
from gpuyard.predictor.large.model import ModelColumns
from gpuyard.predictor.table import Floats

Column = Floats | float
_UNDIVIDED_BYTES = 10.0  # per token and hidden unit (arXiv 2205.05198, section 4.2)
_FROZEN_SHARE = 0.5  # below this share of trained parameters, most matrices are frozen


@dataclass(frozen=True)
class StateBytes:
    """Bytes per parameter before sharding; one value or one per row."""

    weights: Column = 2.0
    gradients: Column = 4.0
    optimizer: Column = 12.0  # with the fp32 copy of the weights, if there is one
    trained_share: Column = 1.0
    narrow: Column = 0.0  # 1: matrix inputs are kept in 8 bits
    flash: Column = 1.0
    sequence_parallel: Column = 1.0  # 1: tensor groups divide norms and residuals too
    eager: Column = (
        0.0  # 1: layers of separate PyTorch operations, 0: fused layers as in Megatron-LM
    )
    activation_bytes: Column = 2.0  # per element, of activations and of gathered weights


@dataclass(frozen=True)
class MemoryConstants:
    """The fitted constants; the values here are where a fit starts."""

    activation_factor: float = 0.9  # of the counted bytes; above 1, temporary tensors
    eager_activation_factor: float = 1.4  # the same with separate PyTorch operations
    selective_factor: float = 1.0  # of the counted bytes that FSDP's selective recomputation keeps
    logit_bytes: float = 4.0  # per token and vocabulary entry, with Megatron-LM's fused loss
    pytorch_logit_bytes: float = (
        14.0  # the same with PyTorch's loss: logits, fp32 copy, softmax, gradients
    )
    gathered_layers: float = 2.0  # layers whose whole weights FSDP holds at once
    framework_bytes: float = 0.8e9  # CUDA context, NCCL, workspaces
    fragmentation: float = 0.05  # of everything else


@dataclass(frozen=True)
class MemoryColumns:
    """Bytes on the fullest GPU by part."""

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    communication: Floats
    other: Floats

    @property
    def total(self) -> Floats:
        return np.asarray(sum(vars(self).values()), dtype=float)


def compute_memory(
    model: ModelColumns, layout: LayoutColumns, states: StateBytes, constants: MemoryConstants
) -> MemoryColumns:
    """Return the bytes of the fullest GPU: with a pipeline, its first stage or its last."""
    c = constants
    tensor, pipeline = layout.tensor, layout.pipeline
    moe_share = np.where(np.asarray(model.moe_layers) > 0, model.moe_layers / model.layers, 0.0)
    layers = layout.stage_layers(model.layers)
    share = layers / model.layers
    experts = model.routed_parameters / (layout.expert * layout.expert_tensor) * share
    dense = model.layer_parameters / tensor * share
    embedding = model.embedding_parameters / tensor
    output = np.where(
        np.asarray(pipeline) > 1, 0.0, model.output_parameters / tensor
    )  # the first stage has the embedding, the last one the output layer
    local = dense + experts + embedding + output + model.other_parameters / pipeline
    shard = np.maximum(layout.shard, 1.0)

    def divided(stage: int) -> Floats:
        return np.where(np.asarray(layout.zero) >= stage, shard, 1.0)

    trained = states.trained_share
    # quantized weights are those of the layers; embedding and output layer stay in 16 bits
    ends = np.maximum(2.0 - np.asarray(states.weights), 0.0) * (embedding + output)
    weights = (states.weights * local + ends) / divided(3)
    gradients = states.gradients * trained * local / divided(2)
    expert_copies = np.maximum(shard * tensor / (layout.expert * layout.expert_tensor), 1.0)
    expert_states = np.where(np.asarray(layout.zero) >= 1, expert_copies, 1.0)
    optimizer = (
        states.optimizer * trained * ((local - experts) / divided(1) + experts / expert_states)
    )

    tokens = layout.micro_batch * model.sequence / layout.context
    # tensor groups without sequence parallelism keep whole inputs of layers, norms, and dropout
    copies = np.where(np.asarray(states.sequence_parallel) > 0, 0.0, 1 - 1 / tensor)
    wide = np.asarray(states.activation_bytes) / 2
    whole = copies * tokens * _UNDIVIDED_BYTES * model.hidden
    per_layer = tokens / tensor * _bytes_per_token(model, states, moe_share) + whole
    eager = np.asarray(states.eager) > 0
    factor = np.where(eager, c.eager_activation_factor, c.activation_factor)
    # Megatron-LM's selective recomputation drops only the scores, which fused attention never stores
    unscored = tokens / tensor * _bytes_per_token(model, replace(states, flash=1.0), moe_share)
    unscored = unscored + whole
    selected = tokens / tensor * _selected_bytes_per_token(model, moe_share)
    selective = np.where(
        np.asarray(layout.pytorch) > 0, c.selective_factor * selected, factor * unscored
    )
    kept = np.select(
        [np.asarray(layout.recompute) == 2, np.asarray(layout.recompute) == 1],
        [
            2 * tokens * model.hidden * (1 / tensor + copies) * np.ones_like(per_layer),
            selective,
        ],
        factor * per_layer,
    )
    kept = wide * kept
    working = np.where(np.asarray(layout.recompute) == 2, wide * factor * per_layer, 0.0)
    in_flight = layout.stages_in_flight
    entry = np.where(np.asarray(layout.pytorch) > 0, c.pytorch_logit_bytes, c.logit_bytes)
    logits = entry * tokens * model.vocabulary / tensor
    first = layers * kept * in_flight + working
    last = layers * kept + working + logits
    single = first + logits
    activations = np.where(np.asarray(pipeline) > 1, np.maximum(first, last), single)

    whole_layer = (dense + experts) / np.maximum(layers, 1.0)
    # with a pipeline, FSDP keeps whole weights and gradients of its stage until all micro-batches are done
    gathered = np.where(
        np.asarray(pipeline) > 1,
        (2 * wide + 4 * np.asarray(trained)) * local,
        c.gathered_layers * 2 * wide * np.maximum(whole_layer, embedding),
    )
    gathered = np.where(np.asarray(layout.zero) >= 3, gathered, 0.0)
    dispatched = np.where(
        np.asarray(layout.expert) > 1, 4 * wide * tokens * model.active_experts * model.hidden, 0.0
    )
    communication = gathered + dispatched
    parts = [weights, gradients, optimizer, activations, communication]
    weights, gradients, optimizer, activations, communication = np.broadcast_arrays(
        *(np.asarray(part, dtype=float) for part in parts)
    )
    counted = weights + gradients + optimizer + activations + communication
    other = c.framework_bytes + c.fragmentation * counted
    return MemoryColumns(weights, gradients, optimizer, activations, communication, other)


def _bytes_per_token(model: ModelColumns, states: StateBytes, moe_share: Floats) -> Floats:
    """Return the bytes that one layer keeps for backward per token, before tensor parallelism divides them."""
    # a gated activation keeps both inputs and its output; as separate operations also the activated gate
    widths = np.where(np.asarray(states.eager) > 0, 2 * model.gates, model.gates + 1)
    inner = (1 - moe_share) * widths * model.ffn + moe_share * (
        (model.active_experts + model.shared_experts) * widths * model.expert_ffn
        + 2 * model.active_experts * model.hidden
    )
    width = 4 * model.hidden + model.query_width + model.kv_width + model.value_width
    width = width + model.latent_width + inner
    # inputs of matrices: both norms, the attention's output, and the activation's
    inputs = 2 * model.hidden + model.value_width + inner / widths
    scores = np.where(np.asarray(states.flash) > 0, 0.0, 5 * model.heads * model.sequence)
    # frozen weights need no inputs for their gradients
    frozen = np.where(np.asarray(states.trained_share) < _FROZEN_SHARE, 2 * inputs, 0.0)
    saved = np.maximum(frozen, np.asarray(states.narrow) * inputs)
    return np.asarray(2 * width - saved + 4 * model.heads + scores)


def _selected_bytes_per_token(model: ModelColumns, moe_share: Floats) -> Floats:
    """Return what torchtitan's selective recomputation keeps: every second matrix product, and attention's output."""
    active = model.active_experts + model.shared_experts
    inner = (1 - moe_share) * model.ffn + moe_share * active * model.expert_ffn
    products = model.query_width + model.kv_width + 2 * model.hidden + model.gates * inner
    return np.asarray(2 * (model.hidden + model.value_width) + products + 4 * model.heads)
