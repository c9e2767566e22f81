"""The division of a large model among GPUs: the keys under `parallel:` and the options of the same names."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpuyard.choices import LargePrecision
from gpuyard.specs.base import MAX_LISTED, Count, GpuName, Line, Spec

LargeStrategy = Literal["ddp", "fsdp", "megatron", "auto"]
LARGE_STRATEGIES: tuple[LargeStrategy, ...] = ("ddp", "fsdp", "megatron", "auto")
LargeOptimizer = Literal["adamw", "adam", "adam-8bit", "momentum", "sgd"]
Recompute = Literal["none", "selective", "full"]
Offload = Literal["optimizer", "parameters"]
_Degree = Annotated[int, Field(gt=0, le=100_000)]


class ParallelDegrees(Spec):
    """The sizes of the groups of a layout; what is left out is chosen."""

    tp: Annotated[_Degree | None, Field(description="tensor parallelism; default: chosen")] = None
    pp: Annotated[_Degree | None, Field(description="pipeline stages; default: chosen")] = None
    vp: Annotated[
        _Degree | None, Field(description="chunks of layers per stage; default: chosen")
    ] = None
    cp: Annotated[_Degree | None, Field(description="context parallelism; default: chosen")] = None
    ep: Annotated[_Degree | None, Field(description="expert parallelism; default: chosen")] = None
    zero: Annotated[
        int | None,
        Field(ge=0, le=3, description="ZeRO stage, 0 to 3; FSDP is 2 or 3; default: chosen"),
    ] = None
    shard: Annotated[
        _Degree | None,
        Field(description="GPUs that share one copy of what ZeRO divides; default: all replicas"),
    ] = None
    zb: Annotated[
        int | None,
        Field(ge=0, le=1, description="1: a zero-bubble pipeline schedule; default: 0"),
    ] = None
    micro_batch: Annotated[
        Count | None, Field(description="samples per forward pass and replica; default: chosen")
    ] = None


class MeasuredTokens(ParallelDegrees):
    """Throughput that you measured at a layout; it corrects the predictions for the same GPU."""

    gpu: Annotated[GpuName, Field(description="GPU of the measurement")]
    gpus: Annotated[Count, Field(description="number of GPUs")]
    tokens_per_second: Annotated[
        float, Field(gt=0, le=1e15, description="tokens per second of all GPUs together")
    ]
    global_batch: Annotated[
        Count | None, Field(description="samples per optimizer step; default: the workload's")
    ] = None
    recompute: Annotated[
        Recompute, Field(description="activations that backward computed again")
    ] = "none"
    source: Annotated[Line | None, Field(description="source of the measurement")] = None


class Parallel(ParallelDegrees):
    """The parallel training of a large model."""

    strategy: Annotated[LargeStrategy, Field(description="strategy")] = "auto"
    global_batch: Annotated[
        Count | None,
        Field(description="samples per optimizer step; default: about a million tokens"),
    ] = None
    sequence: Annotated[
        int | None,
        Field(gt=0, le=100_000_000, description="tokens per sample; default: the model's"),
    ] = None
    recompute: Annotated[
        Recompute | None,
        Field(description="activations that backward computes again; default: chosen"),
    ] = None
    precision: Annotated[
        LargePrecision | None,
        Field(description="precision of matrices; default: the workload's, or `bf16`"),
    ] = None
    optimizer: Annotated[
        LargeOptimizer | None,
        Field(description="optimizer; default: the workload's, or `adamw`"),
    ] = None
    offload: Annotated[Offload | None, Field(description="states in host memory")] = None
    lora: Annotated[Count | None, Field(description="rank of LoRA adapters")] = None
    qlora: Annotated[Count | None, Field(description="rank of LoRA adapters on 4-bit weights")] = (
        None
    )
    measured: Annotated[
        tuple[MeasuredTokens, ...],
        Field(
            max_length=MAX_LISTED,
            description="list of throughputs that you measured, which correct the predictions",
        ),
    ] = ()

    @model_validator(mode="after")
    def _check_adapters(self) -> "Parallel":
        if self.lora and self.qlora:
            raise ValueError("give either 'lora' or 'qlora'")
        return self
