"""The shape of a transformer: the numbers from which its parameters, FLOPs, and memory follow."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpuyard.specs.base import Spec

_Size = Annotated[int, Field(gt=0, le=10_000_000)]
_Number = Annotated[int, Field(ge=0, le=100_000)]
MAX_DENSE_PARAMETERS, MAX_PARAMETERS = 1e12, 5e12
"""The second is for models with experts, which exist with a trillion parameters."""


class TransformerShape(Spec):
    """A transformer, dense or with experts.

    With `encoder_layers`, it is an encoder and a decoder whose `layers` also attend to the encoder's output.
    """

    layers: Annotated[
        int,
        Field(
            gt=0, le=10_000, description="number of layers; of the decoder, if there is an encoder"
        ),
    ]
    hidden: Annotated[_Size, Field(description="width of the hidden state")]
    heads: Annotated[int, Field(gt=0, le=10_000, description="attention heads")]
    kv_heads: Annotated[
        int | None, Field(gt=0, le=10_000, description="key and value heads; default: `heads`")
    ] = None
    head_size: Annotated[
        int | None,
        Field(gt=0, le=100_000, description="size of a head; default: `hidden` / `heads`"),
    ] = None
    ffn: Annotated[_Size, Field(description="width of the feed-forward layer")]
    gated: Annotated[
        bool, Field(description="whether the feed-forward layer has a gate (SwiGLU, GeGLU)")
    ] = True
    vocabulary: Annotated[int, Field(gt=0, le=10_000_000, description="number of tokens")]
    tied_embeddings: Annotated[
        bool, Field(description="whether the output layer shares the embedding's weights")
    ] = False
    sequence: Annotated[int, Field(gt=0, le=100_000_000, description="tokens per sample")] = 2048
    positions: Annotated[
        int, Field(ge=0, le=100_000_000, description="learned position embeddings")
    ] = 0
    causal: Annotated[bool, Field(description="whether a token attends only to earlier tokens")] = (
        True
    )
    attention: Annotated[
        Literal["full", "sliding-window", "mla"],
        Field(description="attention"),
    ] = "full"
    window: Annotated[
        int | None, Field(gt=0, le=100_000_000, description="tokens that a sliding window covers")
    ] = None
    full_attention_every: Annotated[
        int | None,
        Field(gt=0, le=1000, description="every n-th layer has full attention instead of a window"),
    ] = None
    query_rank: Annotated[
        _Number, Field(description="`mla`: rank of the queries; 0 is full rank")
    ] = 0
    kv_rank: Annotated[_Number, Field(description="`mla`: rank of keys and values")] = 0
    rope_head_size: Annotated[_Number, Field(description="`mla`: rotary part of a head")] = 0
    value_head_size: Annotated[_Number, Field(description="`mla`: size of a value head")] = 0
    experts: Annotated[
        _Number, Field(description="routed experts per layer; 0 is a dense model")
    ] = 0
    active_experts: Annotated[_Number, Field(description="routed experts that a token uses")] = 0
    shared_experts: Annotated[_Number, Field(description="experts that every token uses")] = 0
    expert_ffn: Annotated[
        _Size | None, Field(description="width of one expert; default: `ffn`")
    ] = None
    dense_layers: Annotated[_Number, Field(description="first layers without experts")] = 0
    encoder_layers: Annotated[_Number, Field(description="layers of the encoder")] = 0
    other_parameters: Annotated[
        int, Field(ge=0, le=10**12, description="parameters outside layers and embeddings")
    ] = 0

    @model_validator(mode="after")
    def _check(self) -> "TransformerShape":
        if self.head_size is None and self.hidden % self.heads:
            raise ValueError(
                f"hidden {self.hidden} is not a multiple of {self.heads} heads; give 'head_size'"
            )
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly")
        if self.attention == "mla" and not (self.kv_rank and self.value_head_size):
            raise ValueError(
                "attention: mla needs 'kv_rank', 'rope_head_size', and 'value_head_size'"
            )
        if self.attention == "sliding-window" and self.window is None:
            raise ValueError("attention: sliding-window needs 'window'")
        if self.experts and not 0 < self.active_experts <= self.experts:
            raise ValueError(f"active_experts must be 1 to {self.experts}, the number of experts")
        if not self.experts and (self.active_experts or self.shared_experts or self.expert_ffn):
            raise ValueError("a model with active or shared experts needs 'experts'")
        if self.dense_layers > self.layers:
            raise ValueError(f"dense_layers must be at most {self.layers}, the number of layers")
        return self

    @property
    def size_of_head(self) -> int:
        return self.head_size or self.hidden // self.heads
