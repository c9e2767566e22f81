"""The time of one training step of a large model, part by part and for many layouts at once.

Sources: Narayanan et al. 2021 (arXiv 2104.04473) for pipelines and tensor parallelism, Korthikanti et al. 2022
(arXiv 2205.05198) for sequence parallelism and recomputation, Rajbhandari et al. 2020 (arXiv 1910.02054) for ZeRO.
"""

from dataclasses import dataclass

import numpy as np

from gpuyard.predictor.large.cluster import ClusterColumns
from gpuyard.predictor.large.constants import LargeConstants, blend
from gpuyard.predictor.large.layout import LayoutColumns
from gpuyard.predictor.large.model import ModelColumns
from gpuyard.predictor.table import Floats

Column = Floats | float
_WIDTH = 2.0  # bytes of a 16-bit number


@dataclass(frozen=True)
class TrainingOptions:
    """What is trained, apart from shape and layout; one value or one per row."""

    narrow: Column = 0.0  # 1: matrices in 8 or 4 bits
    flash: Column = 1.0  # 1: attention in one fused kernel
    trained_share: Column = 1.0  # of the parameters; less with LoRA
    gradient_bytes: Column = 4.0  # per parameter, as exchanged
    parameter_bytes: Column = 2.0  # per parameter, as gathered


@dataclass(frozen=True)
class StepColumns:
    """Seconds of one step by what the GPUs do or wait for."""

    compute: Floats
    recompute: Floats
    bubble: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    pipeline: Floats
    data: Floats
    optimizer: Floats
    straggler: Floats

    @property
    def total(self) -> Floats:
        total: Floats = sum(vars(self).values(), np.float64(0.0))
        return total


def compute_step(
    model: ModelColumns,
    layout: LayoutColumns,
    cluster: ClusterColumns,
    options: TrainingOptions,
    constants: LargeConstants,
) -> StepColumns:
    """Return the parts of one step."""
    c = constants
    tensor, context, expert = layout.tensor, layout.context, layout.expert
    tokens = layout.micro_batch * model.sequence / context  # per GPU and micro-batch
    memory = cluster.memory_bytes_per_second * c.memory_share
    gemm_rate = cluster.gemm_flops_per_second * c.gemm_share
    attention_rate = cluster.attention_flops_per_second * c.attention_share
    attention_rate = np.where(np.asarray(options.flash) > 0, attention_rate, gemm_rate)

    # forward matrix work of one layer: FLOPs, and bytes of weights and activations
    def matrices(parameters: Column, width: Column, rows: Column, weights: Column) -> Floats:
        flops = 2 * rows * parameters
        moved = _WIDTH * (weights + rows * width)
        return np.asarray(flops / gemm_rate + moved / memory)

    h, moe = model.hidden, np.asarray(model.experts) > 0
    attention_width = 2 * h + (model.query_width + 2 * model.value_width + model.kv_width) / tensor
    attention = matrices(
        model.attention_parameters / tensor, attention_width, tokens,
        model.attention_parameters / tensor,
    )  # fmt: skip
    mlp = matrices(
        model.mlp_parameters / tensor, 2 * h + (model.gates + 1) * model.ffn / tensor, tokens,
        model.mlp_parameters / tensor,
    )  # fmt: skip
    scores = (
        2 * tokens * model.attended * (model.query_width + model.value_width) / tensor
    ) / attention_rate
    # without a fused kernel, scores are written and read several times (softmax, mask, dropout)
    scores = scores + (1 - np.asarray(options.flash)) * (
        c.score_passes * _WIDTH * tokens * model.sequence * model.heads / tensor / memory
    )
    routed = tokens * model.active_experts
    width = np.maximum(model.gates * model.expert_ffn / layout.expert_tensor, 1.0)
    per_expert = routed * expert / np.maximum(model.experts, 1.0)
    local = model.experts / expert * model.expert_parameters / layout.expert_tensor
    crowding = 1 + c.expert_tokens / np.maximum(per_expert, 1.0)
    experts = crowding * matrices(
        model.expert_parameters / layout.expert_tensor, 2 * h + width, routed * layout.expert_tensor, local
    ) + matrices(
        model.shared_experts * model.expert_parameters / tensor + model.router_parameters,
        model.shared_experts * (2 * h + model.gates * model.expert_ffn / tensor), tokens,
        model.shared_experts * model.expert_parameters / tensor,
    )  # fmt: skip
    moe_share = np.where(moe, model.moe_layers / model.layers, 0.0)
    layer_matrices = attention + (1 - moe_share) * mlp + np.where(moe, moe_share * experts, 0.0)

    # elementwise passes of both directions; sequence parallelism divides them as well
    passes = c.elementwise_passes * h + 3 * (
        (1 - moe_share) * model.gates * model.ffn
        + moe_share * (model.active_experts + model.shared_experts) * model.gates * model.expert_ffn
    )
    passes = passes + c.quantize_passes * np.asarray(options.narrow) * h
    elementwise = _WIDTH * tokens * passes / tensor / memory

    # backward computes gradients of inputs and, where they are trained, of weights
    backward = 1 + np.asarray(options.trained_share)
    launches = np.where(np.asarray(options.flash) > 0, c.layer_seconds, c.unfused_seconds)
    floor = 2 * (launches + moe_share * c.expert_seconds)  # both directions
    layer_work = (1 + backward) * layer_matrices + 3.5 * scores + elementwise
    layer = np.maximum(layer_work, floor) + 0.1 * np.minimum(layer_work, floor)
    repeated = np.select(
        [np.asarray(layout.recompute) == 2, np.asarray(layout.recompute) == 1],
        [c.full_share * (layer_matrices + scores + elementwise / 3) * np.ones_like(layer),
         c.selective_share * layer_matrices + np.where(np.asarray(options.flash) > 0, 0.0, scores)
         + elementwise / 6],
        0.0,
    )  # fmt: skip

    # the output layer and the loss, on the last stage
    output = (1 + backward) * matrices(
        h * model.vocabulary / tensor, h + model.vocabulary / tensor, tokens,
        h * model.vocabulary / tensor,
    ) + 6 * 2 * _WIDTH * tokens * model.vocabulary / tensor / memory  # fmt: skip

    layers = model.layers / layout.pipeline
    even = (
        layers * layer + output / layout.pipeline
    )  # frameworks balance the output layer if they can
    uneven = np.where(np.asarray(layout.pipeline) > 1, output * (1 - 1 / layout.pipeline), 0.0)
    compute = even + 0.3 * uneven
    again = layers * repeated

    # communication of one micro-batch on one stage
    tensor_rate = cluster.group_rate(tensor, 1.0)
    ratio = (tensor - 1) / tensor
    volume = _WIDTH * tokens * h
    # two all-reduces per layer and direction; a ring moves twice the volume
    calls = np.where(np.asarray(layout.recompute) == 2, 6.0, 4.0)
    dense_calls = calls * (1 - moe_share) + calls / 2 * moe_share * (
        1 + np.minimum(layout.expert_tensor - 1, 1)
    )
    tensor_wait = c.tensor_exposed * layers * dense_calls * 2 * ratio * volume / tensor_rate
    tensor_wait = np.where(ratio > 0, tensor_wait, 0.0)

    context_rate = cluster.group_rate(context, tensor)
    ring = _WIDTH * tokens * model.kv_width / tensor * (context - 1)
    context_wait = np.where(
        np.asarray(context) > 1,
        3
        * layers
        * np.maximum(ring / context_rate - 0.5 * scores, c.context_exposed * ring / context_rate),
        0.0,
    )

    # tokens travel to their experts and back, in both directions of training
    extent = expert * layout.expert_tensor
    expert_rate = cluster.group_rate(expert, layout.expert_tensor)
    # a token is sent once to each machine that has one of its experts
    spread = np.maximum(extent / cluster.domain, 1.0)
    reached = spread * (1 - (1 - 1 / spread) ** model.active_experts) * (1 - 1 / spread)
    copies = np.where(
        extent > np.asarray(cluster.domain), reached, model.active_experts * (expert - 1) / expert
    )
    sent = _WIDTH * tokens * h / layout.expert_tensor * copies
    all_to_all_rate = np.where(
        extent > np.asarray(cluster.domain), cluster.between_bytes_per_second, expert_rate
    )
    expert_wait = np.where(
        (np.asarray(expert) > 1) & moe,
        c.expert_exposed * 4 * layers * moe_share * sent / all_to_all_rate,
        0.0,
    )

    # activations between stages: sent once per chunk and direction
    neighbor = tensor * context * layout.data  # stages are this far apart
    hop_rate = np.where(
        neighbor >= np.asarray(cluster.domain), cluster.between_bytes_per_second,
        cluster.group_rate(2.0, 1.0),
    )  # fmt: skip
    stage_hops = np.where(
        np.asarray(layout.pipeline) > 1,
        2 * layout.virtual_pipeline * (volume / tensor / hop_rate + cluster.hop_seconds),
        0.0,
    )
    pipeline_wait = c.pipeline_exposed * stage_hops

    # weights of one GPU
    local_experts = model.routed_parameters / (expert * layout.expert_tensor) / layout.pipeline
    local_dense = model.layer_parameters / (tensor * layout.pipeline) + (
        model.embedding_parameters + model.output_parameters
    ) / (tensor * np.minimum(layout.pipeline, 2))
    count = layout.micro_batches
    stage = compute + again + tensor_wait + context_wait + expert_wait

    # FSDP gathers weights in forward and backward and scatters gradients, for every micro-batch
    group = np.maximum(layout.shard, 1.0)
    shard_rate = cluster.group_rate(group, tensor)
    gathered = (local_dense + local_experts) * (group - 1) / group
    trained = options.trained_share
    gathers = np.where(np.asarray(layout.zero) >= 3, 2.0, 0.0)
    scatters = np.where(np.asarray(layout.zero) >= 2, 1.0, 0.0)
    shard_bytes = gathered * (
        gathers * options.parameter_bytes + scatters * trained * options.gradient_bytes
    )
    shard_latency = 3 * layers * cluster.hop_seconds * np.minimum(group - 1, 64.0)
    shard_time = np.where(shard_bytes > 0, shard_bytes / shard_rate + shard_latency, 0.0)
    sharded = np.where(
        np.asarray(layout.zero) >= 3, blend(stage, shard_time, c.shard_exposed) - stage, 0.0
    )

    # otherwise, gradients are reduced (and with ZeRO 1 weights gathered) once per step
    replicas = layout.data * context
    data_rate = cluster.group_rate(replicas, tensor)
    dense_bytes = local_dense * (replicas - 1) / replicas
    expert_replicas = np.maximum(replicas * tensor / (expert * layout.expert_tensor), 1.0)
    expert_data_rate = cluster.group_rate(expert_replicas, expert * layout.expert_tensor)
    expert_bytes = local_experts * (expert_replicas - 1) / expert_replicas
    reduced = options.gradient_bytes * trained + np.where(
        np.asarray(layout.zero) >= 1, options.parameter_bytes * trained,
        options.gradient_bytes * trained,
    )  # fmt: skip
    exchange = reduced * (dense_bytes / data_rate + expert_bytes / expert_data_rate)
    per_micro_batch = sharded * count
    once = c.data_exposed * exchange + np.maximum(
        0.0,
        (1 - c.data_exposed) * exchange - 0.6 * np.minimum(count, layout.pipeline + 1) * compute,
    )
    data_wait = np.where(np.asarray(layout.zero) >= 3, per_micro_batch, once)

    optimizer = c.optimizer_passes * trained * (
        local_dense / np.where(np.asarray(layout.zero) >= 1, group, 1.0)
        + local_experts / np.where(np.asarray(layout.zero) >= 1, expert_replicas, 1.0)
    ) / memory  # fmt: skip

    bubbles = (layout.pipeline - 1) / layout.virtual_pipeline
    bubble = bubbles * (stage + sharded)
    machines = np.maximum(layout.gpus / cluster.domain, 1.0)
    parts = {
        "compute": count * compute,
        "recompute": count * again,
        "bubble": bubble,
        "tensor": count * tensor_wait,
        "context": count * context_wait,
        "expert": count * expert_wait,
        "pipeline": count * pipeline_wait,
        "data": data_wait,
        "optimizer": optimizer,
    }
    arrays = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in parts.values()))
    total = sum(arrays[1:], arrays[0])
    straggler = c.straggling * np.log2(machines) * total
    return StepColumns(**dict(zip(parts, arrays, strict=True)), straggler=straggler)
