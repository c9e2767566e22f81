"""The costs of one token in a transformer: parameters, FLOPs, and widths of its layers, as columns.

All fields of `ModelColumns` are numbers or arrays of equal length, so that one formula serves a single model with many
layouts and many models with one layout each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from gpuyard import units
from gpuyard.errors import UserMistake
from gpuyard.predictor.table import Floats
from gpuyard.specs.transformer import MAX_DENSE_PARAMETERS, MAX_PARAMETERS, TransformerShape

Column = Floats | float


@dataclass(frozen=True)
class ModelColumns:
    """The quantities of a transformer that time and memory depend on; one value or one per row."""

    layers: Column
    moe_layers: Column  # layers with experts
    hidden: Column
    heads: Column
    sequence: Column
    attended: Column  # tokens that a token attends to, on average over layers and positions
    attention_parameters: Column  # projections of one layer
    query_width: Column  # heads × size of a query head
    value_width: Column  # heads × size of a value head
    kv_width: Column  # keys and values of one token, which a context-parallel ring passes on
    latent_width: Column  # outputs of low-rank projections (mla)
    ffn: Column  # width of a dense feed-forward layer
    gates: Column  # 2 with a gate, 1 without
    experts: Column
    active_experts: Column
    shared_experts: Column
    expert_ffn: Column
    vocabulary: Column
    output_parameters: Column  # 0 if tied to the embedding
    other_parameters: Column  # norms, positions, and the rest

    @property
    def embedding_parameters(self) -> Column:
        return self.vocabulary * self.hidden

    @property
    def mlp_parameters(self) -> Column:
        """The parameters of a dense feed-forward layer."""
        return (self.gates + 1) * self.ffn * self.hidden

    @property
    def expert_parameters(self) -> Column:
        """The parameters of one expert."""
        return (self.gates + 1) * self.expert_ffn * self.hidden

    @property
    def router_parameters(self) -> Column:
        return self.experts * self.hidden

    @property
    def dense_layers(self) -> Column:
        return self.layers - self.moe_layers

    @property
    def layer_parameters(self) -> Column:
        """All layers without their routed experts."""
        shared = self.shared_experts * self.expert_parameters + self.router_parameters
        return (
            self.layers * self.attention_parameters
            + self.dense_layers * self.mlp_parameters
            + self.moe_layers * shared
        )

    @property
    def routed_parameters(self) -> Column:
        """The routed experts of all layers."""
        return self.moe_layers * self.experts * self.expert_parameters

    @property
    def parameters(self) -> Column:
        return (
            self.layer_parameters
            + self.routed_parameters
            + self.embedding_parameters
            + self.output_parameters
            + self.other_parameters
        )

    @property
    def active_parameters(self) -> Column:
        """The parameters that one token multiplies with; an embedding is a lookup, an output layer is not."""
        active = self.moe_layers * self.active_experts * self.expert_parameters
        return self.layer_parameters + active + self.embedding_parameters

    @property
    def attention_flops(self) -> Column:
        """Forward FLOPs of scores and values per token, all layers."""
        return 2 * self.layers * self.attended * (self.query_width + self.value_width)

    @property
    def forward_flops(self) -> Column:
        """Forward FLOPs per token as papers count them: 2 per parameter used, and attention."""
        return 2 * self.active_parameters + self.attention_flops

    def training_flops(self, trained_share: Column) -> Column:
        """Return the FLOPs of a training step per token, without recomputation.

        The backward pass is twice the forward pass if all weights need gradients, and less with LoRA.
        """
        return 2 * self.active_parameters * (2 + trained_share) + 3 * self.attention_flops

    def select(self, index: Floats) -> "ModelColumns":
        return ModelColumns(
            **{f.name: np.broadcast_to(getattr(self, f.name), np.shape(getattr(self, f.name)) or (1,))[index]
               for f in fields(self)}
        )  # fmt: skip


def describe_model(shape: TransformerShape, sequence: int | None = None) -> ModelColumns:
    """Return the columns of one shape; `sequence` replaces the shape's own."""
    length = sequence or shape.sequence
    head, kv_heads = shape.size_of_head, shape.kv_heads or shape.heads
    query, value = shape.heads * head, shape.heads * head
    latent = 0.0
    if shape.attention == "mla":
        query = shape.heads * (head + shape.rope_head_size)
        value = shape.heads * shape.value_head_size
        kv_width = shape.kv_rank + shape.rope_head_size
        queries = (
            shape.query_rank * (shape.hidden + query) if shape.query_rank else shape.hidden * query
        )
        keys = shape.hidden * kv_width + shape.kv_rank * (shape.heads * head + value)
        attention = queries + keys + value * shape.hidden
        latent = float(shape.query_rank + kv_width + shape.heads * head)
        ring_width = float(query + value)
    else:
        kv_width = 2 * kv_heads * head
        attention = shape.hidden * (query + kv_width) + value * shape.hidden
        ring_width = float(kv_width)
    experts_layers = shape.layers - shape.dense_layers if shape.experts else 0
    encoder = shape.encoder_layers
    # a decoder layer with an encoder attends twice; it counts as that much more attention per layer
    cross = shape.layers / (shape.layers + encoder) if encoder else 0.0
    layers = shape.layers + encoder
    norms = 2 * layers * shape.hidden + shape.hidden
    columns = ModelColumns(
        layers=float(layers),
        moe_layers=float(experts_layers),
        hidden=float(shape.hidden),
        heads=float(shape.heads),
        sequence=float(length),
        attended=_attended(shape, length) * (1 + cross),
        attention_parameters=float(attention) * (1 + cross),
        query_width=float(query),
        value_width=float(value),
        kv_width=ring_width,
        latent_width=latent,
        ffn=float(shape.ffn),
        gates=2.0 if shape.gated else 1.0,
        experts=float(shape.experts),
        active_experts=float(shape.active_experts),
        shared_experts=float(shape.shared_experts),
        expert_ffn=float(shape.expert_ffn or shape.ffn) if shape.experts else 0.0,
        vocabulary=float(shape.vocabulary),
        output_parameters=0.0 if shape.tied_embeddings else float(shape.vocabulary * shape.hidden),
        other_parameters=float(norms + shape.positions * shape.hidden + shape.other_parameters),
    )
    most = MAX_PARAMETERS if shape.experts else MAX_DENSE_PARAMETERS
    if (count := float(columns.parameters)) >= most:
        raise UserMistake(
            f"the model has {units.format_tokens(count)} parameters; {'with' if shape.experts else 'without'} experts, "
            f"it must have less than {units.format_tokens(most)}"
        )
    return columns


def _attended(shape: TransformerShape, length: int) -> float:
    """Return how many tokens a token attends to, on average over positions and layers."""
    full = length / 2 if shape.causal else float(length)
    if shape.attention != "sliding-window" or shape.window is None or shape.window >= length:
        return full
    window = shape.window
    # the first `window` tokens see what precedes them, all others a whole window
    local = window * (1 - window / (2 * length)) if shape.causal else float(window)
    share = 1 / shape.full_attention_every if shape.full_attention_every else 0.0
    return share * full + (1 - share) * local


def stack_models(models: Sequence[ModelColumns]) -> ModelColumns:
    """Return one row per model."""
    return ModelColumns(
        **{f.name: np.array([getattr(m, f.name) for m in models], dtype=float)
           for f in fields(ModelColumns)}
    )  # fmt: skip
