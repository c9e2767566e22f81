"""Layouts, which divide a transformer among GPUs: the columns of a layout and the rules that a layout must obey."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

from gpuyard.predictor.table import Booleans, Floats, Integers
from gpuyard.specs.parallel import Recompute

Column = Floats | float
RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)
Family = Literal["megatron", "pytorch"]


@dataclass(frozen=True)
class LayoutColumns:
    """Layouts as columns: the sizes of all groups, batches, and what is sharded and recomputed.

    GPUs are numbered as Megatron-LM does: tensor groups are neighbors, then context, data, and pipeline.
    """

    tensor: Column
    pipeline: Column
    virtual_pipeline: Column  # chunks of layers per stage
    context: Column
    expert: Column
    data: Column
    zero: Column  # ZeRO stage: 1 optimizer, 2 also gradients, 3 also weights
    shard: Column  # GPUs that share one copy of what ZeRO divides
    micro_batch: Column
    global_batch: Column
    recompute: Column  # index into RECOMPUTE
    expert_tensor: Column  # tensor parallelism inside experts
    pytorch: Column  # 1: PyTorch's DDP or FSDP, 0: Megatron-LM
    zero_bubble: Column = 0.0  # 1: gradients of weights fill the pipeline's bubble

    @property
    def gpus(self) -> Column:
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def copies(self) -> Column:
        """Copies of what ZeRO divides: more than one if groups are smaller than all replicas (hybrid sharding)."""
        return np.maximum(self.data * self.context / np.maximum(self.shard, 1.0), 1.0)

    @property
    def micro_batches(self) -> Column:
        """Micro-batches of one step per pipeline."""
        return np.maximum(self.global_batch / (self.micro_batch * self.data), 1.0)

    @property
    def stages_in_flight(self) -> Column:
        """Micro-batches whose activations the first stage holds (1F1B, interleaved with chunks).

        Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", section 4.2.3.
        """
        chunked = self.pipeline * (
            1 + (self.pipeline - 1) / (self.pipeline * self.virtual_pipeline)
        )
        held = np.where(np.asarray(self.virtual_pipeline) > 1, chunked, self.pipeline)
        return np.minimum(held, np.maximum(self.micro_batches, 1.0))

    def stage_layers(self, layers: Column) -> Floats:
        """Return the layers of the fullest stage; if they don't divide evenly, other chunks hold one less."""
        chunks = self.pipeline * self.virtual_pipeline
        return np.asarray(self.virtual_pipeline * np.ceil(layers / chunks))

    def take(self, index: Integers | Booleans) -> "LayoutColumns":
        """Return the rows of an index or mask."""
        size = max(np.size(getattr(self, f.name)) for f in fields(self))
        return LayoutColumns(
            **{f.name: np.broadcast_to(getattr(self, f.name), (size,))[index] for f in fields(self)}
        )

    def __len__(self) -> int:
        return max(np.size(getattr(self, f.name)) for f in fields(self))


@dataclass(frozen=True)
class Layout:
    """One layout, with the names that answers and options use."""

    tensor: int = 1
    pipeline: int = 1
    virtual_pipeline: int = 1
    context: int = 1
    expert: int = 1
    data: int = 1
    zero: int = 1
    shard: int | None = None
    micro_batch: int = 1
    global_batch: int = 1
    recompute: Recompute = "none"
    family: Family = "megatron"
    zero_bubble: int = 0

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def strategy(self) -> Literal["ddp", "fsdp", "megatron"]:
        """The strategy that would be typed to get this layout."""
        if self.family == "megatron":
            return "megatron"
        divided = self.zero >= 2 or self.tensor > 1 or self.context > 1
        return "fsdp" if divided else "ddp"

    @property
    def method(self) -> str:
        """The strategy in words."""
        if self.family == "megatron":
            return "Megatron-style parallelism"
        names = ["FSDP"] if self.zero >= 2 else []
        names += ["tensor parallelism"] if self.tensor > 1 else []
        names += ["context parallelism"] if self.context > 1 else []
        if len(names) > 2:
            return f"{', '.join(names[:-1])}, and {names[-1]}"
        return " and ".join(names) or "DDP"

    @property
    def description(self) -> str:
        """The sizes of the groups, as in "tp 4, pp 2 × 5, dp 16" or "dp 8, zero 3"."""
        chunks = f" × {self.virtual_pipeline}" if self.virtual_pipeline > 1 else ""
        sizes = (
            (self.tensor, f"tp {self.tensor}"),
            (self.context, f"cp {self.context}"),
            (
                self.pipeline,
                f"pp {self.pipeline}{chunks}{' zero-bubble' if self.zero_bubble else ''}",
            ),
            (self.expert, f"ep {self.expert}"),
        )
        words = [text for size, text in sizes if size > 1]
        words.append(f"dp {self.data}")
        if self.zero:
            words.append(f"zero {self.zero}")
        if self.zero >= 2 and self.shard and self.shard < self.data * self.context:
            words.append(f"shard {self.shard}")
        return ", ".join(words)

    def as_json(self) -> dict[str, int]:
        return {
            "tensor": self.tensor,
            "pipeline": self.pipeline,
            "virtual_pipeline": self.virtual_pipeline,
            "context": self.context,
            "expert": self.expert,
            "data": self.data,
            "zero": self.zero,
        }


def stack_layouts(
    layouts: Sequence[Layout], expert_tensor: Sequence[int] | None = None
) -> LayoutColumns:
    """Return one row per layout."""

    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=float)

    return LayoutColumns(
        tensor=column([la.tensor for la in layouts]),
        pipeline=column([la.pipeline for la in layouts]),
        virtual_pipeline=column([la.virtual_pipeline for la in layouts]),
        context=column([la.context for la in layouts]),
        expert=column([la.expert for la in layouts]),
        data=column([la.data for la in layouts]),
        zero=column([la.zero for la in layouts]),
        shard=column([la.shard or la.data * la.context for la in layouts]),
        micro_batch=column([la.micro_batch for la in layouts]),
        global_batch=column([la.global_batch for la in layouts]),
        recompute=column([RECOMPUTE.index(la.recompute) for la in layouts]),
        expert_tensor=column(list(expert_tensor) if expert_tensor else [1 for _ in layouts]),
        pytorch=column([float(la.family == "pytorch") for la in layouts]),
        zero_bubble=column([la.zero_bubble for la in layouts]),
    )
