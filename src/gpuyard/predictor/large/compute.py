"""The time that one GPU computes for one micro-batch: matrices, attention, elementwise passes, casts, and launches.

Sources: Dao 2023 (arXiv 2307.08691) and Shah et al. 2024 (arXiv 2407.08608) for attention kernels by GPU generation,
Korthikanti et al. 2022 (arXiv 2205.05198) for recomputation.
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
WIDTH = 2.0  # bytes of a 16-bit number
_SELECTIVE, _FULL = 1, 2  # of layout.recompute
_FLOOR_SHARE = 0.1  # of the shorter of GPU work and host work that the longer one does not hide
_UNEVEN_SHARE = 0.3  # of the output layer that frameworks cannot balance over the stages
_UNDIVIDED_SHARE = 0.5  # of a layer's casts that read what tensor groups have gathered


@dataclass(frozen=True)
class TrainingOptions:
    """The settings of a training and its kind of software, apart from shape and layout; one value or one per row."""

    narrow: Column = 0.0  # 1: matrices in 8 or 4 bits
    flash: Column = 1.0  # 1: attention in one fused kernel
    older_attention: Column = 0.0  # 1: that kernel was written for the previous GPU generation
    overlapped: Column = 0.0  # 1: tensor-parallel exchanges run beside the matrices
    eager: Column = 0.0  # share of separate PyTorch operations; 0: compiled or fused layers
    sequence_parallel: Column = 1.0  # 1: tensor groups divide norms and residuals too
    trained_share: Column = 1.0  # of the parameters; less with LoRA
    gradient_bytes: Column = 4.0  # per parameter, as exchanged
    parameter_bytes: Column = 2.0  # per parameter, as gathered
    activation_bytes: Column = WIDTH  # per element, of activations and of weights in products
    dequantized_bytes: Column = 0.0  # per parameter and pass, to write 4-bit weights in 16 bits


class Compute:
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
        self.width = options.activation_bytes
        self.memory_rate = cluster.memory_bytes_per_second * constants.memory_share
        self.matrix_rate = cluster.gemm_flops_per_second * constants.gemm_share
        self.layers = layout.stage_layers(model.layers)
        self.fused: Booleans = np.asarray(options.flash) > 0
        self.pytorch: Booleans = np.asarray(layout.pytorch) > 0
        self.traffic = Traffic(
            model, layout, self.width, options.parameter_bytes, options.gradient_bytes,
            options.trained_share,
        )  # fmt: skip
        self.moe_share, self.tokens = self.traffic.moe_share, self.traffic.tokens
        # forward, gradients of inputs, and gradients of the trained weights
        self.directions = 2 + np.asarray(options.trained_share)

    def _multiply(
        self, parameters: Column, depth: Column, width: Column, rows: Column, weights: Column
    ) -> Floats:
        """Return the time of matrices of a total depth (summed-over) and width (activations read and written).

        A tile waits for its first operands and for its results to be written, so memory adds to the products. A GPU computes tiles in waves of as many as it has processors, and its last wave is half empty on average:
        that costs as much as some more elements of each product, however large it is.
        """
        products = 2 * rows * parameters + 2 * self.constants.wave_elements * depth
        moved = self.width * (weights + rows * width)
        return np.asarray(products / self.matrix_rate + moved / self.memory_rate)

    @cached_property
    def layer_matrices(self) -> Floats:
        """Forward matrices of one layer."""
        model, tensor = self.model, self.layout.tensor
        own = model.attention_parameters / tensor
        heads = (model.query_width + 2 * model.value_width + model.kv_width) / tensor
        depth = model.hidden + model.value_width / tensor
        attention = self._multiply(own, depth, 2 * model.hidden + heads, self.tokens, own)
        dense = model.mlp_parameters / tensor
        width = 2 * model.hidden + (model.gates + 1) * model.ffn / tensor
        mlp = self._multiply(dense, model.hidden + model.ffn / tensor, width, self.tokens, dense)
        if not np.any(self.moe_share):
            return attention + mlp
        return attention + (1 - self.moe_share) * mlp + self.moe_share * self._experts()

    def _experts(self) -> Floats:
        """Forward matrices of routed and shared experts in one layer; few tokens per expert are slow."""
        model, layout = self.model, self.layout
        routed = self.tokens * model.active_experts * layout.expert_tensor
        inner = model.gates * model.expert_ffn / layout.expert_tensor
        each = model.expert_parameters / layout.expert_tensor
        local = model.experts / layout.expert * each
        arriving = self.tokens * model.active_experts * layout.expert
        per_expert = np.maximum(arriving / np.maximum(model.experts, 1.0), 1.0)
        crowding = 1 + self.constants.expert_tokens / per_expert
        shared = model.shared_experts * model.expert_parameters / layout.tensor
        shared_width = model.shared_experts * (
            2 * model.hidden + model.gates * model.expert_ffn / layout.tensor
        )
        always = self._multiply(
            shared + model.router_parameters, model.hidden, shared_width, self.tokens, shared
        )
        width = 2 * model.hidden + inner
        return crowding * self._multiply(each, model.hidden, width, routed, local) + always

    @cached_property
    def scores(self) -> Floats:
        """Forward attention of one layer; without a fused kernel, scores travel through memory."""
        model, tensor, c = self.model, self.layout.tensor, self.constants
        older = np.asarray(self.options.older_attention) > 0
        share = np.where(older, c.older_attention_share, c.attention_share)
        fused_rate = self.cluster.attention_flops_per_second * share
        rate = np.where(self.fused, fused_rate, self.matrix_rate)
        width = (model.query_width + model.value_width) / tensor
        # separate products do not skip what a causal mask hides
        attended = np.where(self.fused, model.attended, np.maximum(model.attended, model.sequence))
        passes = np.where(self.fused, 0.0, c.score_passes)
        moved = passes * self.width * self.tokens * model.sequence * model.heads / tensor
        return np.asarray(2 * self.tokens * attended * width / rate + moved / self.memory_rate)

    @cached_property
    def elementwise(self) -> Floats:
        """Norms, residuals, activation functions, and casts of one layer, both directions."""
        model, c, options = self.model, self.constants, self.options
        active = model.active_experts + model.shared_experts
        inner = (1 - self.moe_share) * model.ffn + self.moe_share * active * model.expert_ffn
        eager = np.asarray(options.eager)
        permuted = c.permute_passes * self.moe_share * model.active_experts
        tensor = self.layout.tensor
        norms = (c.elementwise_passes + c.eager_passes * eager + permuted) * model.hidden
        norms = norms / np.where(np.asarray(options.sequence_parallel) > 0, tensor, 1.0)
        inner = (3 + 3 * eager) * model.gates * inner / tensor
        moved = self.width * self.tokens * (norms + inner)
        return np.asarray((moved + self._cast_bytes()) / self.memory_rate)

    def _cast_bytes(self) -> Floats:
        """Conversion to 8 or 4 bits; PyTorch converts the weights again for every micro-batch."""
        model, c, tensor = self.model, self.constants, self.layout.tensor
        passes = np.where(self.pytorch, c.pytorch_quantize_passes, c.quantize_passes)
        divided = _UNDIVIDED_SHARE + (1 - _UNDIVIDED_SHARE) / tensor
        activations = passes * WIDTH * self.tokens * model.hidden * divided
        dense = model.attention_parameters + (1 - self.moe_share) * model.mlp_parameters
        weights = np.where(self.pytorch, c.cast_weight_bytes, 0.0) * dense / tensor
        return np.asarray(self.options.narrow * (activations + weights))

    @cached_property
    def dequantization(self) -> Floats:
        """Conversion of one layer's 4-bit weights, which forward and backward each repeat (arXiv 2305.14314)."""
        model, layout = self.model, self.layout
        groups = layout.expert * layout.expert_tensor
        weights = model.layer_parameters / layout.tensor + model.routed_parameters / groups
        moved = self.options.dequantized_bytes * weights / model.layers
        return np.asarray(moved / self.memory_rate)

    @cached_property
    def stage_compute(self) -> Floats:
        """Layers of one stage and its part of the output layer; kernel launches set a floor."""
        c, layout = self.constants, self.layout
        work = self.directions * self.layer_matrices + 3.5 * self.scores + self.elementwise
        work = work + 2 * self.dequantization
        separate = np.where(self.fused, self.options.eager, 1.0)
        launches = c.layer_seconds + separate * c.eager_seconds
        launches = launches + np.where(np.asarray(layout.tensor) > 1, c.tensor_seconds, 0.0)
        layer = blend(work, 2 * (launches + self.moe_share * c.expert_seconds), _FLOOR_SHARE)
        share = 1 / layout.pipeline + _UNEVEN_SHARE * (1 - 1 / layout.pipeline)
        # a last stage with fewer layers has time for the output layer
        missing = layout.pipeline * self.layers - self.model.layers
        output = np.maximum(self._output() - missing * layer, 0.0)
        return np.asarray(self.layers * layer + share * output)

    def _output(self) -> Floats:
        """The output layer and the loss, both directions."""
        model, tensor = self.model, self.layout.tensor
        own = model.hidden * model.vocabulary / tensor
        entries = self.tokens * model.vocabulary / tensor
        width = model.hidden + model.vocabulary / tensor
        matrices = self.directions * self._multiply(own, model.hidden, width, self.tokens, own)
        return np.asarray(matrices + 6 * 2 * self.width * entries / self.memory_rate)

    @cached_property
    def stage_recompute(self) -> Floats:
        """Forward work that backward repeats; PyTorch's selective kind keeps every second matrix product."""
        c = self.constants
        whole = self.layer_matrices + self.scores + self.elementwise / 3 + self.dequantization
        whole = c.full_share * whole
        attention = np.where(self.fused, 0.0, self.scores)
        repeated = np.where(self.pytorch, c.pytorch_selective_share, c.selective_share)
        some = repeated * self.layer_matrices + attention + self.elementwise / 6
        chosen = np.asarray(self.layout.recompute)
        return np.asarray(
            self.layers * np.select([chosen == _FULL, chosen == _SELECTIVE], [whole, some], 0.0)
        )
