"""The time of one training step of a large model, part by part and for many layouts at once.

Sources: Narayanan et al. 2021 (arXiv 2104.04473) for pipelines and tensor parallelism, Korthikanti et al. 2022
(arXiv 2205.05198) for sequence parallelism and recomputation, Rajbhandari et al. 2020 (arXiv 1910.02054) for ZeRO.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpuyard.predictor.large.cluster import ClusterColumns
from gpuyard.predictor.large.compute import Compute, TrainingOptions
from gpuyard.predictor.large.constants import LargeConstants, blend
from gpuyard.predictor.large.layout import LayoutColumns
from gpuyard.predictor.large.model import ModelColumns
from gpuyard.predictor.table import Booleans, Floats

Column = Floats | float
_BACKWARD_SHARE = 0.6  # of compute that can hide the reduction of gradients


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

    def slow_compute(self, speed: Column) -> "StepColumns":
        """Return the steps of GPUs with this share of their computing speed; exchanges take as long as before."""
        added = (self.compute + self.recompute) * (1 / speed - 1)
        stage = self.compute + self.recompute + self.tensor + self.context + self.expert
        slowed = replace(
            self,
            compute=self.compute / speed,
            recompute=self.recompute / speed,
            bubble=self.bubble * (1 + added / stage),
        )
        busy, busy_before = (step.total - self.straggler for step in (slowed, self))
        return replace(slowed, straggler=self.straggler * busy / busy_before)


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


class _Step(Compute):
    """The exchanges beside the compute; times are of one micro-batch on one stage unless their name says otherwise."""

    @cached_property
    def sharded(self) -> Booleans:
        return np.asarray(self.layout.zero) >= 3

    @cached_property
    def tensor_wait(self) -> Floats:
        """The exchange of activations inside tensor groups."""
        rate = self.cluster.group_rate(self.layout.tensor, 1.0)
        c = self.constants
        hidden = np.where(np.asarray(self.options.overlapped) > 0, c.tensor_overlap, 0.0)
        wait = c.tensor_exposed * (1 - hidden) * self.traffic.tensor / rate
        return np.where(np.asarray(self.layout.tensor) > 1, wait, 0.0)

    @cached_property
    def context_wait(self) -> Floats:
        """Keys and values pass around the ring, behind attention as far as it lasts."""
        context = self.layout.context
        ring = self.width * self.tokens * self.model.kv_width / self.layout.tensor * (context - 1)
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
        sent = self.width * self.tokens * model.hidden / layout.expert_tensor
        sent = sent * np.where(leaves, reached, here)
        inside = cluster.group_rate(layout.expert, layout.expert_tensor)
        rate = np.where(leaves, cluster.between_bytes_per_second, inside)
        wait = self.constants.expert_exposed * 4 * self.layers * self.moe_share * sent / rate
        has_experts = np.asarray(model.experts) > 0
        return np.where((np.asarray(layout.expert) > 1) & has_experts, wait, 0.0)

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
        latency = cluster.hop_seconds + self.constants.pipeline_seconds
        hops = 2 * (self.traffic.boundary / rate + layout.virtual_pipeline * latency)
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
        """FSDP gathers weights in forward and backward and scatters gradients, for every micro-batch.

        Hybrid sharding then reduces the gradients between its groups.
        """
        group = np.maximum(self.layout.shard, 1.0)
        leaves = np.asarray(group * self.layout.tensor) > np.asarray(self.cluster.domain)
        steps = np.where(leaves, 3 * self.layers * (group - 1), 0.0)  # of rings, for every layer
        # beside compute, a collective has few processors and shares the memory
        slowest = self.constants.shard_memory_share * self.memory_rate
        rate = 1 / (1 / self.cluster.group_rate(group, self.layout.tensor) + 1 / slowest)
        exchange = self.traffic.shard / rate + steps * self.constants.ring_step_seconds
        between = self.cluster.group_rate(self.layout.copies, self.layout.tensor * group)
        exchange = exchange + self.traffic.copy * (1 / between + 1 / slowest)
        wait = blend(self.stage, exchange, self.constants.shard_exposed) - self.stage
        replicas = np.asarray(self.layout.data * self.layout.context)
        return np.where(self.sharded & (replicas > 1), wait, 0.0)

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
        """Idle time while the pipeline fills and drains, as long as all other stages together; chunks shorten it.

        Zero-bubble schedules fill two thirds of it with gradients of weights: ZB-H1 of Qi et al. 2023 (arXiv 2401.10241)
        leaves forward + gradients of inputs − gradients of weights, which are about equally long.
        """
        idle = (self.model.layers / self.layers - 1) / self.layout.virtual_pipeline
        idle = idle * np.where(np.asarray(self.layout.zero_bubble) > 0, 1 / 3, 1.0)
        return np.asarray(idle * (self.stage + self.shard_wait))
