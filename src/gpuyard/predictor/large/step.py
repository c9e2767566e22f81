"""The time of one training step of a large model, part by part and for many layouts at once.

Sources: Narayanan et al. 2021 (arXiv 2104.04473) for pipelines and tensor parallelism, Korthikanti et al. 2022
(arXiv 2205.05198) for sequence parallelism and recomputation, Rajbhandari et al. 2020 (arXiv 1910.02054) for ZeRO.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuyard.predictor.large.cluster import ClusterColumns
from gpuyard.predictor.large.constants import LargeConstants, blend
from gpuyard.predictor.large.layout import LayoutColumns
from gpuyard.predictor.large.model import ModelColumns
from gpuyard.predictor.large.traffic import Traffic
from gpuyard.predictor.table import Booleans, Floats

Column = Floats | float
_WIDTH = 2.0  # bytes of a 16-bit number
_SELECTIVE, _FULL = 1, 2  # of layout.recompute
_FLOOR_SHARE = 0.1  # of the shorter of GPU work and host work that the longer one does not hide
_UNEVEN_SHARE = 0.3  # of the output layer that frameworks cannot balance over the stages
_BACKWARD_SHARE = 0.6  # of compute that can hide the reduction of gradients


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
        return np.asarray(sum(vars(self).values()), dtype=float)


def compute_step(
    model: ModelColumns,
    layout: LayoutColumns,
    cluster: ClusterColumns,
    options: TrainingOptions,
    constants: LargeConstants,
) -> StepColumns:
    """Return the parts of one step."""
    step = _Step(model, layout, cluster, options, constants)
    count = layout.micro_batches
    parts = {
        "compute": count * step.stage_compute,
        "recompute": count * step.stage_recompute,
        "bubble": step.bubble,
        "tensor": count * step.tensor_wait,
        "context": count * step.context_wait,
        "expert": count * step.expert_wait,
        "pipeline": count * step.stage_wait,
        "data": step.data_wait,
        "optimizer": step.optimizer,
    }
    arrays = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in parts.values()))
    machines = np.maximum(layout.gpus / cluster.domain, 1.0)
    straggler = constants.straggling * np.log2(machines) * sum(arrays[1:], arrays[0])
    return StepColumns(**dict(zip(parts, arrays, strict=True)), straggler=straggler)


class _Step:
    """The formulas; times are of one micro-batch on one stage unless their name says otherwise."""

    def __init__(
        self,
        model: ModelColumns,
        layout: LayoutColumns,
        cluster: ClusterColumns,
        options: TrainingOptions,
        constants: LargeConstants,
    ) -> None:
        self.model, self.layout, self.cluster = model, layout, cluster
        self.options, self.constants = options, constants
        self.memory_rate = cluster.memory_bytes_per_second * constants.memory_share
        self.matrix_rate = cluster.gemm_flops_per_second * constants.gemm_share
        self.layers = model.layers / layout.pipeline
        self.fused: Booleans = np.asarray(options.flash) > 0
        self.pytorch: Booleans = np.asarray(layout.pytorch) > 0
        self.sharded: Booleans = np.asarray(layout.zero) >= 3
        self.has_experts: Booleans = np.asarray(model.experts) > 0
        self.traffic = Traffic(
            model, layout, _WIDTH, options.parameter_bytes, options.gradient_bytes,
            options.trained_share,
        )  # fmt: skip
        self.moe_share, self.tokens = self.traffic.moe_share, self.traffic.tokens

    def _multiply(self, parameters: Column, width: Column, rows: Column, weights: Column) -> Floats:
        """Return the time of matrices: FLOPs, and bytes of weights and of activations of a total width."""
        moved = _WIDTH * (weights + rows * width)
        return np.asarray(2 * rows * parameters / self.matrix_rate + moved / self.memory_rate)

    @cached_property
    def layer_matrices(self) -> Floats:
        """Forward matrices of one layer."""
        model, tensor = self.model, self.layout.tensor
        own = model.attention_parameters / tensor
        heads = (model.query_width + 2 * model.value_width + model.kv_width) / tensor
        attention = self._multiply(own, 2 * model.hidden + heads, self.tokens, own)
        dense = model.mlp_parameters / tensor
        width = 2 * model.hidden + (model.gates + 1) * model.ffn / tensor
        mlp = self._multiply(dense, width, self.tokens, dense)
        return attention + (1 - self.moe_share) * mlp + self.moe_share * self._experts()

    def _experts(self) -> Floats:
        """Forward matrices of routed and shared experts in one layer; few tokens per expert are slow."""
        model, layout = self.model, self.layout
        routed = self.tokens * model.active_experts * layout.expert_tensor
        width = 2 * model.hidden + model.gates * model.expert_ffn / layout.expert_tensor
        each = model.expert_parameters / layout.expert_tensor
        local = model.experts / layout.expert * each
        arriving = self.tokens * model.active_experts * layout.expert
        per_expert = np.maximum(arriving / np.maximum(model.experts, 1.0), 1.0)
        crowding = 1 + self.constants.expert_tokens / per_expert
        shared = model.shared_experts * model.expert_parameters / layout.tensor
        shared_width = model.shared_experts * (
            2 * model.hidden + model.gates * model.expert_ffn / layout.tensor
        )
        always = self._multiply(shared + model.router_parameters, shared_width, self.tokens, shared)
        return crowding * self._multiply(each, width, routed, local) + always

    @cached_property
    def scores(self) -> Floats:
        """Forward attention of one layer; without a fused kernel, scores travel through memory."""
        model, tensor = self.model, self.layout.tensor
        c = self.constants
        share = np.where(self.pytorch, c.pytorch_attention_share, c.attention_share)
        fused_rate = self.cluster.attention_flops_per_second * share
        rate = np.where(self.fused, fused_rate, self.matrix_rate)
        width = (model.query_width + model.value_width) / tensor
        passes = np.where(self.fused, 0.0, self.constants.score_passes)
        moved = passes * _WIDTH * self.tokens * model.sequence * model.heads / tensor
        return np.asarray(
            2 * self.tokens * model.attended * width / rate + moved / self.memory_rate
        )

    @cached_property
    def elementwise(self) -> Floats:
        """Norms, residuals, and activation functions of one layer, both directions."""
        model, c = self.model, self.constants
        active = model.active_experts + model.shared_experts
        inner = (1 - self.moe_share) * model.ffn + self.moe_share * active * model.expert_ffn
        passes = np.where(self.pytorch, c.pytorch_quantize_passes, c.quantize_passes)
        quantized = passes * np.asarray(self.options.narrow)
        permuted = c.permute_passes * self.moe_share * model.active_experts
        width = (c.elementwise_passes + quantized + permuted) * model.hidden
        width = width + 3 * model.gates * inner
        return np.asarray(_WIDTH * self.tokens * width / self.layout.tensor / self.memory_rate)

    @cached_property
    def directions(self) -> Column:
        """Forward, gradients of inputs, and gradients of the trained weights."""
        return 2 + np.asarray(self.options.trained_share)

    @cached_property
    def stage_compute(self) -> Floats:
        """Layers of one stage and its part of the output layer; kernel launches set a floor."""
        c, layout = self.constants, self.layout
        work = self.directions * self.layer_matrices + 3.5 * self.scores + self.elementwise
        launches = np.where(self.fused, c.layer_seconds, c.unfused_seconds)
        layer = blend(work, 2 * (launches + self.moe_share * c.expert_seconds), _FLOOR_SHARE)
        share = 1 / layout.pipeline + _UNEVEN_SHARE * (1 - 1 / layout.pipeline)
        return np.asarray(self.layers * layer + share * self._output())

    def _output(self) -> Floats:
        """The output layer and the loss, both directions."""
        own = self.model.hidden * self.model.vocabulary / self.layout.tensor
        entries = self.tokens * self.model.vocabulary / self.layout.tensor
        width = self.model.hidden + self.model.vocabulary / self.layout.tensor
        matrices = self.directions * self._multiply(own, width, self.tokens, own)
        return np.asarray(matrices + 6 * 2 * _WIDTH * entries / self.memory_rate)

    @cached_property
    def stage_recompute(self) -> Floats:
        c = self.constants
        whole = c.full_share * (self.layer_matrices + self.scores + self.elementwise / 3)
        attention = np.where(self.fused, 0.0, self.scores)
        some = c.selective_share * self.layer_matrices + attention + self.elementwise / 6
        chosen = np.asarray(self.layout.recompute)
        return np.asarray(
            self.layers * np.select([chosen == _FULL, chosen == _SELECTIVE], [whole, some], 0.0)
        )

    @cached_property
    def tensor_wait(self) -> Floats:
        """The exchange of activations inside tensor groups."""
        rate = self.cluster.group_rate(self.layout.tensor, 1.0)
        wait = self.constants.tensor_exposed * self.traffic.tensor / rate
        return np.where(np.asarray(self.layout.tensor) > 1, wait, 0.0)

    @cached_property
    def context_wait(self) -> Floats:
        """Keys and values pass around the ring, behind attention as far as it lasts."""
        context = self.layout.context
        ring = _WIDTH * self.tokens * self.model.kv_width / self.layout.tensor * (context - 1)
        passing = ring / self.cluster.group_rate(context, self.layout.tensor)
        exposed = np.maximum(passing - 0.5 * self.scores, self.constants.context_exposed * passing)
        return np.where(np.asarray(context) > 1, 3 * self.layers * exposed, 0.0)

    @cached_property
    def expert_wait(self) -> Floats:
        """Tokens travel to their experts and back, in both directions; once to each machine that has one."""
        model, layout, cluster = self.model, self.layout, self.cluster
        extent = layout.expert * layout.expert_tensor
        leaves = np.asarray(extent) > np.asarray(cluster.domain)
        spread = np.maximum(extent / cluster.domain, 1.0)
        reached = spread * (1 - (1 - 1 / spread) ** model.active_experts) * (1 - 1 / spread)
        here = model.active_experts * (layout.expert - 1) / layout.expert
        sent = _WIDTH * self.tokens * model.hidden / layout.expert_tensor
        sent = sent * np.where(leaves, reached, here)
        inside = cluster.group_rate(layout.expert, layout.expert_tensor)
        rate = np.where(leaves, cluster.between_bytes_per_second, inside)
        wait = self.constants.expert_exposed * 4 * self.layers * self.moe_share * sent / rate
        return np.where((np.asarray(layout.expert) > 1) & self.has_experts, wait, 0.0)

    @cached_property
    def stage_wait(self) -> Floats:
        """Activations between stages, once per chunk and direction."""
        layout, cluster = self.layout, self.cluster
        distance = layout.tensor * layout.context * layout.data
        # the GPUs of one stage that face the next machine share its ports
        facing = np.minimum(distance, cluster.domain)
        outside = cluster.between_bytes_per_second * cluster.domain / facing
        leaves = np.asarray(distance * layout.pipeline) > np.asarray(cluster.domain)
        rate = np.where(leaves, outside, cluster.group_rate(2.0, 1.0))
        hops = 2 * (self.traffic.boundary / rate + layout.virtual_pipeline * cluster.hop_seconds)
        return np.where(
            np.asarray(layout.pipeline) > 1, self.constants.pipeline_exposed * hops, 0.0
        )

    @cached_property
    def stage(self) -> Floats:
        return (
            self.stage_compute + self.stage_recompute
            + self.tensor_wait + self.context_wait + self.expert_wait
        )  # fmt: skip

    @cached_property
    def shard_wait(self) -> Floats:
        """FSDP gathers weights in forward and backward and scatters gradients, for every micro-batch."""
        group = np.maximum(self.layout.shard, 1.0)
        latency = 3 * self.layers * self.cluster.hop_seconds * np.minimum(group - 1, 64.0)
        exchange = self.traffic.shard / self.cluster.group_rate(group, self.layout.tensor) + latency
        wait = blend(self.stage, exchange, self.constants.shard_exposed) - self.stage
        return np.where(self.sharded & (np.asarray(group) > 1), wait, 0.0)

    @cached_property
    def expert_replicas(self) -> Floats:
        layout = self.layout
        groups = layout.expert * layout.expert_tensor
        return np.maximum(layout.data * layout.context * layout.tensor / groups, 1.0)

    @cached_property
    def data_wait(self) -> Floats:
        """The exchange between replicas in one step: FSDP's, or one reduction of all gradients."""
        layout, options, c = self.layout, self.options, self.constants
        replicas = layout.data * layout.context
        dense = self.traffic.local_dense * (replicas - 1) / replicas
        dense = dense / self.cluster.group_rate(replicas, layout.tensor)
        copies = self.expert_replicas
        groups = layout.expert * layout.expert_tensor
        experts = self.traffic.local_experts * (copies - 1) / copies
        experts = experts / self.cluster.group_rate(copies, groups)
        back = np.where(
            np.asarray(layout.zero) >= 1, options.parameter_bytes, options.gradient_bytes
        )
        width = (options.gradient_bytes + back) * options.trained_share
        exchange = width * (dense + experts)
        hiding = np.minimum(layout.micro_batches, layout.pipeline + 1) * self.stage_compute
        hidden = (1 - c.data_exposed) * exchange - _BACKWARD_SHARE * hiding
        once = c.data_exposed * exchange + np.maximum(0.0, hidden)
        return np.where(self.sharded, self.shard_wait * layout.micro_batches, once)

    @cached_property
    def optimizer(self) -> Floats:
        divided = np.asarray(self.layout.zero) >= 1
        dense = self.traffic.local_dense / np.where(
            divided, np.maximum(self.layout.shard, 1.0), 1.0
        )
        experts = self.traffic.local_experts / np.where(divided, self.expert_replicas, 1.0)
        moved = self.constants.optimizer_passes * self.options.trained_share * (dense + experts)
        return np.asarray(moved / self.memory_rate)

    @property
    def bubble(self) -> Floats:
        """Idle time while the pipeline fills and drains; chunks shorten it.

        Zero-bubble schedules fill two thirds of it with gradients of weights: ZB-H1 of Qi et al. 2023 (arXiv 2401.10241)
        leaves forward + gradients of inputs − gradients of weights, which are about equally long.
        """
        idle = (self.layout.pipeline - 1) / self.layout.virtual_pipeline
        idle = idle * np.where(np.asarray(self.layout.zero_bubble) > 0, 1 / 3, 1.0)
        return np.asarray(idle * (self.stage + self.shard_wait))
