"""The constants of the large-model formulas: shares of peaks and what overlaps, fitted to published runs."""

import functools
import json
from dataclasses import dataclass
from importlib import resources

import numpy as np

from gpuyard.predictor.large.memory import MemoryConstants
from gpuyard.predictor.table import Floats

Column = Floats | float


@dataclass(frozen=True)
class LargeConstants:
    """The fitted constants; the values here are where a fit starts.

    `scripts/fit_large.py` fits them to `published/large` with each publisher weighted alike, and writes `large.json`.
    """

    gemm_share: Column = 0.80  # of the peak, for large matrices
    wave_elements: float = 5e6  # elements of a product that half-empty waves of tiles cost
    attention_share: Column = 0.55  # of the 16-bit peak, by a kernel for this GPU generation
    older_attention_share: Column = 0.33  # the same by FlashAttention 1 on Ampere, or 2 on Hopper
    memory_share: float = 0.8  # of the memory bandwidth, for weights and elementwise passes
    elementwise_passes: float = (
        40.0  # reads and writes of 2 × hidden bytes per token and layer, both directions
    )
    eager_passes: float = 40.0  # further ones of separate PyTorch operations
    score_passes: float = 6.0  # reads and writes of the scores in forward, without a fused kernel
    quantize_passes: float = (
        6.0  # the same for conversion to 8 or 4 bits, fused by Transformer Engine
    )
    pytorch_quantize_passes: float = 16.0  # the same in PyTorch
    cast_weight_bytes: float = 8.0  # per parameter and micro-batch to convert weights in PyTorch
    permute_passes: float = (
        24.0  # reads and writes of a token for each of its experts, both directions
    )
    layer_seconds: float = (
        400e-6  # kernel launches and host work per layer, direction, and micro-batch
    )
    tensor_seconds: float = 400e-6  # the same for the exchanges of tensor groups
    eager_seconds: float = 1.2e-3  # further ones of separate operations, as in frameworks of 2022
    expert_seconds: float = 1e-3  # the same for routing in a layer with experts
    tensor_exposed: float = 0.8  # share of tensor-parallel communication that nothing hides
    tensor_overlap: float = 0.5  # share of that which Transformer Engine or asynchronous TP hides
    data_exposed: float = 0.4
    shard_exposed: float = (
        0.3  # FSDP: share of the shorter of compute and communication that is not hidden
    )
    shard_memory_share: float = 0.08  # of the memory's rate at which FSDP's collectives move data
    ring_step_seconds: float = 10e-6  # latency of one step of a ring between machines
    expert_exposed: float = 0.7
    context_exposed: float = 0.2
    pipeline_exposed: float = 0.5
    pipeline_seconds: float = 300e-6  # to hand over one micro-batch between stages
    selective_share: float = 0.05  # of forward matrix work that selective recomputation repeats
    pytorch_selective_share: float = 0.4  # the same by PyTorch, which keeps every second product
    full_share: float = 1.0  # of forward work that full recomputation repeats
    optimizer_passes: float = 30.0  # bytes per parameter that one optimizer step moves
    expert_tokens: float = (
        64.0  # tokens per expert at which grouped matrices reach half their speed
    )
    straggling: float = 0.01  # extra time per doubling of machines


@dataclass(frozen=True)
class LargeFit:
    """The fitted document: constants, effects of GPUs and precisions, and spreads of publishers left out."""

    constants: LargeConstants
    effects: dict[str, float]  # logarithms of factors on shares of peaks
    memory: MemoryConstants
    spread: dict[str, tuple[float, float]]  # 5% and 95% of measured over predicted, by kind
    spread_with_point: tuple[
        tuple[float, float], ...
    ]  # the same after a measured figure, by the number of parts in which its layout differs
    expert_evidence: frozenset[str]  # architectures on which models with experts were measured
    memory_margin: float  # factor above the prediction within which memory must fit
    memory_high: float  # upper end of the memory interval over the prediction


@functools.cache
def load_fit() -> LargeFit:
    """Return the fit that ships with the package; `scripts/fit_large.py` writes it."""
    text = resources.files("gpuyard.predictor").joinpath("data", "large.json").read_text("utf-8")
    document = json.loads(text)
    return LargeFit(
        constants=LargeConstants(**document["constants"]),
        effects=document["effects"],
        memory=MemoryConstants(**document["memory"]),
        spread={kind: (low, high) for kind, (low, high) in document["spread"].items()},
        spread_with_point=tuple((low, high) for low, high in document["spread_with_point"]),
        expert_evidence=frozenset(document["expert_evidence"]),
        memory_margin=document["memory_margin"],
        memory_high=document["memory_high"],
    )


def blend(low: Column, high: Column, share: Column) -> Floats:
    """Return the longer of two overlapping times plus the given share of the shorter one."""
    return np.maximum(low, high) + share * np.minimum(low, high)
