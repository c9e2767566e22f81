"""The bytes that one GPU sends in one micro-batch or step, by kind of parallelism and for many layouts at once.

Sources: Narayanan et al. 2021 (arXiv 2104.04473) for tensor and pipeline parallelism, Rajbhandari et al. 2020
(arXiv 1910.02054) for ZeRO, which FSDP follows.
"""

from dataclasses import dataclass

import numpy as np

from gpuyard.predictor.large.layout import LayoutColumns
from gpuyard.predictor.large.model import ModelColumns
from gpuyard.predictor.table import Floats

Column = Floats | float
_FULL = 2  # of layout.recompute


@dataclass(frozen=True)
class Traffic:
    """A transfer; `width` is the bytes of one activation, a weight as gathered, and a gradient as exchanged."""

    model: ModelColumns
    layout: LayoutColumns
    activation_bytes: Column = 2.0
    parameter_bytes: Column = 2.0
    gradient_bytes: Column = 4.0
    trained_share: Column = 1.0

    @property
    def tokens(self) -> Column:
        """Tokens of one micro-batch on one GPU."""
        return self.layout.micro_batch * self.model.sequence / self.layout.context

    @property
    def moe_share(self) -> Floats:
        has_experts = np.asarray(self.model.experts) > 0
        return np.where(has_experts, self.model.moe_layers / self.model.layers, 0.0)

    @property
    def tensor(self) -> Floats:
        """Per micro-batch: two all-reduces per layer and direction, or the same with sequence parallelism."""
        tensor = self.layout.tensor
        calls = np.where(np.asarray(self.layout.recompute) == _FULL, 6.0, 4.0)
        inside_experts = np.minimum(self.layout.expert_tensor - 1, 1)
        calls = calls * (1 - self.moe_share / 2 * (1 - inside_experts))
        volume = self.activation_bytes * self.tokens * self.model.hidden
        layers = self.layout.stage_layers(self.model.layers)
        return np.asarray(layers * calls * 2 * (tensor - 1) / tensor * volume)

    @property
    def boundary(self) -> Floats:
        """Per micro-batch and direction: the activations that one stage passes on, of each of its chunks."""
        volume = self.activation_bytes * self.tokens * self.model.hidden / self.layout.tensor
        sent = volume * self.layout.virtual_pipeline
        return np.where(np.asarray(self.layout.pipeline) > 1, sent, 0.0)

    @property
    def stage_share(self) -> Floats:
        """The share of all layers that the fullest stage holds."""
        return self.layout.stage_layers(self.model.layers) / self.model.layers

    @property
    def local_experts(self) -> Column:
        """Routed parameters of one GPU."""
        groups = self.layout.expert * self.layout.expert_tensor
        return self.model.routed_parameters / groups * self.stage_share

    @property
    def local_dense(self) -> Column:
        """All other parameters of one GPU; embedding and output layer are on different stages."""
        model, layout = self.model, self.layout
        ends = model.embedding_parameters + model.output_parameters
        ends = ends / (layout.tensor * np.minimum(layout.pipeline, 2))
        return model.layer_parameters / layout.tensor * self.stage_share + ends

    @property
    def shard(self) -> Floats:
        """Per micro-batch: FSDP gathers weights in forward and backward and scatters gradients."""
        group = np.maximum(self.layout.shard, 1.0)
        moved = (self.local_dense + self.local_experts) * (group - 1) / group
        width = 2 * self.parameter_bytes + self.trained_share * self.gradient_bytes
        return np.asarray(moved * width)

    @property
    def copy(self) -> Floats:
        """Per micro-batch: hybrid sharding reduces its share of the gradients among the groups that hold a copy."""
        copies, group = self.layout.copies, np.maximum(self.layout.shard, 1.0)
        share = (self.local_dense + self.local_experts) / group
        moved = 2 * (copies - 1) / copies * share
        return np.asarray(moved * self.trained_share * self.gradient_bytes)
