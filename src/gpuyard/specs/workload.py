"""A workload: what is trained, on what data, and what is already known about its speed."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    Tag,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
    model_serializer,
    model_validator,
)

from gpuyard.specs.base import (
    MOST_LISTED,
    Bytes,
    BytesPerSecond,
    Count,
    GpuName,
    Line,
    ModelName,
    Moment,
    Name,
    Share,
    Spec,
)
from gpuyard.specs.cluster import named_or_described

Precision = Literal["fp32", "tf32", "fp16", "bf16"]
GradientDtype = Literal["fp32", "fp16", "bf16"]
Optimizer = Literal["sgd", "momentum", "adam", "adamw", "adam-8bit"]
_MOST_NUMBERS = 1_000_000_000  # of one sample: 4 GB


def _as_named(framework: str) -> str:
    """`PyTorch DDP` and `tf_distribute` as `pytorch-ddp` and `tf-distribute`."""
    return "-".join(framework.lower().replace("_", " ").split())


def _fits(shape: tuple[int, ...]) -> tuple[int, ...]:
    if math.prod(shape) > _MOST_NUMBERS:
        raise ValueError(f"one sample has more than {_MOST_NUMBERS:,} numbers")
    return shape


Shape = Annotated[tuple[Count, ...], Field(max_length=16), AfterValidator(_fits)]


class Dataset(Spec):
    """The samples that one epoch goes through."""

    samples: Annotated[int, Field(gt=0, le=10**15, description="samples in one epoch")]
    bytes_per_sample: Annotated[
        Bytes | None, Field(description="bytes read from storage for one sample")
    ] = None
    preprocess: Annotated[
        Moment | None,
        Field(ge=0, description="CPU time to decode and change one sample, of one core"),
    ] = None
    input_workers: Annotated[
        int | None, Field(gt=0, le=4096, description="processes that prepare samples, for each GPU")
    ] = None
    variation: Annotated[
        Share | None,
        Field(
            ge=0, description="one standard deviation of a batch's compute, where samples differ"
        ),
    ] = None
    source: Annotated[
        Line,
        Field(
            description="'synthetic', 'spoken-digits', an importable module:factory that returns a torch Dataset, "
            "or the path of an image folder or a webdataset archive"
        ),
    ] = "synthetic"


class Tensor(Spec):
    """The shape of one sample's tensor, without the batch dimension."""

    shape: Annotated[Shape, Field(description="without the batch")]
    dtype: Literal["float32", "int64"] = "float32"
    below: Annotated[
        Count | None, Field(description="int64 only: values are drawn from 0 to below-1")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _tokens_are_whole(cls, given: Any) -> Any:
        """Only int64 has a number of values: who gives it need not say the rest."""
        if isinstance(given, dict) and "below" in given:
            return {"dtype": "int64", **given}
        return given


class TrainingTarget(Spec):
    """What the model is asked for: a class, or a tensor."""

    classes: Annotated[int | None, Field(gt=1, le=100_000_000)] = None
    shape: Shape | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "TrainingTarget":
        if (self.classes is None) == (self.shape is None):
            raise ValueError("a target has either 'classes' or 'shape'")
        return self


NextToken = Literal["next-token"]


class KnownThroughput(Spec):
    """A figure of one GPU, or of several, that somebody measured before."""

    gpu: GpuName
    gpus: Annotated[Count, Field(description="that trained together")] = 1
    nodes: Annotated[Count, Field(description="machines that they were in")] = 1
    batch_per_gpu: Count
    samples_per_second: Annotated[float, Field(gt=0, le=1e15)]
    precision: Annotated[
        Precision | None, Field(description="that it was measured in; default: the workload's")
    ] = None
    network: Annotated[
        BytesPerSecond | None,
        Field(
            description="of each of several machines, all ports together; default: whatever a prediction is about, "
            "and for a plan, which compares networks, the figure then says nothing"
        ),
    ] = None
    source: Annotated[Line | None, Field(description="where the figure is from")] = None

    @model_validator(mode="after")
    def _a_gpu_in_every_node(self) -> "KnownThroughput":
        if self.nodes > self.gpus:
            raise ValueError(f"{self.gpus} GPUs can't be in {self.nodes} nodes")
        return self


class Workload(Spec):
    """What is trained."""

    name: Name
    model: Annotated[
        ModelName, Field(description="a catalog model, or any importable module:factory")
    ]
    precision: Annotated[
        Precision | None,
        Field(
            description="default: as PyTorch without a setting: a model of convolutions or RNNs in tf32 on NVIDIA "
            "GPUs that have it, all others in fp32"
        ),
    ] = None
    optimizer: Annotated[
        Optimizer,
        Field(description="what it keeps for each parameter takes memory; momentum: SGD with momentum"),
    ] = "momentum"  # fmt: skip
    batch_per_gpu: Count = 32
    dataset: Dataset | None = None
    epochs: Count = 1
    framework: Annotated[
        Annotated[Line, AfterValidator(_as_named)] | None,
        Field(
            description="what exchanges gradients: pytorch-ddp, horovod, tf-distribute, apex, paddle, oneflow, "
            "mindspore or tf-cnn-benchmarks; predictions then start from what was published of it"
        ),
    ] = None
    gradient_dtype: Annotated[
        GradientDtype | None,
        Field(
            description="in which gradients cross the network; default: fp32, but as it trains in mixed precision where "
            "the framework is apex, deepspeed or tf-cnn-benchmarks"
        ),
    ] = None
    input: Annotated[
        Tensor | None, Field(description="needed where the factory returns a bare torch module")
    ] = None
    target: Annotated[
        Annotated[
            Annotated[TrainingTarget, Tag("described")] | Annotated[NextToken, Tag("named")],
            Discriminator(named_or_described),
        ]
        | None,
        Field(description="a class, a tensor, or next-token: the input's tokens, one step later"),
    ] = None
    measured: Annotated[tuple[KnownThroughput, ...], Field(max_length=MOST_LISTED)] = ()

    # no key: a file must not say of itself where it lies
    _file: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _tokens_for_next_token(self) -> "Workload":
        if self.target != "next-token" or self.input is None:
            return self
        if self.input.dtype != "int64" or self.input.below is None or len(self.input.shape) != 1:
            raise ValueError(
                "target: next-token needs tokens as input, like input: {shape: [1024], below: 50257}"
            )
        return self

    @model_serializer(mode="wrap")
    def _as_stored(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # records of runs never had it, and an older gpuyard must read them
        return {
            name: value
            for name, value in usual(self).items()
            if name != "gradient_dtype" or value is not None
        }

    @property
    def measured_alone(self) -> tuple[KnownThroughput, ...]:
        """Figures of one GPU."""
        return tuple(known for known in self.measured if known.gpus == 1)

    @property
    def autocast(self) -> bool:
        """Whether it trains in mixed precision: 16-bit numbers where they do, fp32 where they must."""
        return self.precision in ("fp16", "bf16")

    @property
    def file(self) -> Path | None:
        """What it was read from; None: a program made it, or it is a model of the catalog."""
        return self._file

    def read_from(self, file: Path | None) -> "Workload":
        """The same, with where it comes from."""
        copied = self.model_copy()
        copied._file = file
        return copied


def _pack(workload: Workload, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    file = workload.file.absolute() if workload.file else None  # the other may be elsewhere
    return {"spec": handler(workload), "file": str(file) if file else None}


def _unpack(packed: Any, handler: ValidatorFunctionWrapHandler) -> Workload:
    if isinstance(packed, Workload):
        return packed
    spec: Workload = handler(packed["spec"])
    return spec.read_from(Path(packed["file"]) if packed["file"] else None)


PackedWorkload = Annotated[Workload, WrapValidator(_unpack), WrapSerializer(_pack)]
"""For messages to another process, which then knows where it was read from."""
