"""The spec of a workload: the model, its data, and throughput that was measured before."""

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

from gpuyard.choices import Precision
from gpuyard.specs.base import (
    MAX_LISTED,
    Bytes,
    BytesPerSecond,
    Count,
    GpuName,
    Line,
    ModelName,
    Name,
    Share,
    ShortDuration,
    Spec,
    Tokens,
)
from gpuyard.specs.cluster import get_reference_tag
from gpuyard.specs.parallel import Parallel
from gpuyard.specs.transformer import TransformerShape

GradientDtype = Literal["fp32", "fp16", "bf16"]
Optimizer = Literal["sgd", "momentum", "adam", "adamw", "adam-8bit"]
# keys that are left out of a dump at their defaults
_OPTIONAL = (
    "optimizer",
    "gradient_dtype",
    "parallel",
    "tokens",
    "channels_last",
    "compile",
    "fused_attention",
)
_MAX_SAMPLE_NUMBERS = 1_000_000_000  # 4 GB


def _normalize_framework(framework: str) -> str:
    """`PyTorch DDP` → `pytorch-ddp`, `tf_distribute` → `tf-distribute`."""
    return "-".join(framework.lower().replace("_", " ").split())


def _check_sample_size(shape: tuple[int, ...]) -> tuple[int, ...]:
    if math.prod(shape) > _MAX_SAMPLE_NUMBERS:
        raise ValueError(f"one sample has more than {_MAX_SAMPLE_NUMBERS:,} numbers")
    return shape


Shape = Annotated[tuple[Count, ...], Field(max_length=16), AfterValidator(_check_sample_size)]


class Dataset(Spec):
    """The samples of one epoch."""

    samples: Annotated[int, Field(gt=0, le=10**15, description="number of samples in one epoch")]
    bytes_per_sample: Annotated[
        Bytes | None,
        Field(
            description="bytes read from storage per sample; default: the size of the model's input"
        ),
    ] = None
    preprocess: Annotated[
        ShortDuration | None,
        Field(
            ge=0,
            description="time in which one CPU core decodes and transforms one sample, like `8 ms`; default: no"
            " time",
        ),
    ] = None
    input_workers: Annotated[
        int | None,
        Field(
            gt=0,
            le=4096,
            description="number of processes that prepare samples, per GPU; default: one per core; 4 if "
            "`machine.cores` is not set",
        ),
    ] = None
    variation: Annotated[
        Share | None,
        Field(
            ge=0,
            description="standard deviation of a batch's compute time, if samples differ in size, like `15%`; "
            "default: the fitted value",
        ),
    ] = None
    source: Annotated[
        Line,
        Field(
            description="source of the samples: `synthetic`, `spoken-digits`, a `module:factory` that returns a"
            " torch Dataset, or the path of an image folder or webdataset archive"
        ),
    ] = "synthetic"


class Tensor(Spec):
    """The shape of one sample's tensor, without the batch dimension."""

    shape: Annotated[Shape, Field(description="shape without the batch dimension")]
    dtype: Annotated[
        Literal["float32", "int64"],
        Field(description="data type; default: `float32`; with `below`, `int64`"),
    ] = "float32"
    below: Annotated[
        Count | None,
        Field(description="upper limit of int64 values, which are drawn from 0 to below − 1"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _infer_dtype(cls, value: Any) -> Any:
        """Set int64 if `below` is there, which only int64 has."""
        if isinstance(value, dict) and "below" in value:
            return {"dtype": "int64", **value}
        return value


class TrainingTarget(Spec):
    """The target that the model predicts: a class, or a tensor."""

    classes: Annotated[
        int | None,
        Field(gt=1, le=100_000_000, description="number of classes; the loss is cross-entropy"),
    ] = None
    shape: Annotated[
        Shape | None, Field(description="shape of a tensor; the loss is mean squared error")
    ] = None

    @model_validator(mode="after")
    def _check_classes_or_shape(self) -> "TrainingTarget":
        if (self.classes is None) == (self.shape is None):
            raise ValueError("a target needs either 'classes' or 'shape'")
        return self


NextToken = Literal["next-token"]


class KnownThroughput(Spec):
    """The measured throughput of one GPU or several."""

    gpu: Annotated[GpuName, Field(description="catalog GPU")]
    gpus: Annotated[Count, Field(description="number of GPUs that trained together")] = 1
    nodes: Annotated[Count, Field(description="number of machines that the GPUs were in")] = 1
    batch_per_gpu: Annotated[Count, Field(description="batch size per GPU")]
    samples_per_second: Annotated[
        float, Field(gt=0, le=1e15, description="measured samples per second")
    ]
    precision: Annotated[
        Precision | None,
        Field(description="precision of the measurement; default: the workload's"),
    ] = None
    network: Annotated[
        BytesPerSecond | None,
        Field(
            description="rate of all network ports of one machine together, like `100 Gbit/s`; predictions for "
            "other networks ignore the figure; default: that of the predicted cluster; `plan` "
            "ignores figures of several machines without it"
        ),
    ] = None
    source: Annotated[Line | None, Field(description="source of the measurement")] = None

    @model_validator(mode="after")
    def _check_nodes(self) -> "KnownThroughput":
        if self.nodes > self.gpus:
            raise ValueError(f"{self.gpus} GPUs cannot be in {self.nodes} nodes")
        return self


class Workload(Spec):
    """A training workload."""

    name: Annotated[Name, Field(description="name in tables and reports")]
    model: Annotated[
        Annotated[ModelName, Tag("named")] | Annotated[TransformerShape, Tag("described")],
        Discriminator(get_reference_tag),
        Field(
            description="catalog model, any importable `module:factory`, the path of a Hugging Face "
            "`config.json`, or a transformer's shape as the next keys"
        ),
    ]
    precision: Annotated[
        Precision | None,
        Field(
            description="precision of training; default: PyTorch's: `tf32` for models of convolutions or RNNs "
            "on NVIDIA GPUs that have it, otherwise `fp32`"
        ),
    ] = None
    optimizer: Annotated[
        Optimizer | None,
        Field(
            description="optimizer, whose state needs memory; default: `adamw` for transformers, otherwise "
            "`momentum`"
        ),
    ] = None
    channels_last: Annotated[
        bool,
        Field(
            description="convolutions on tensors in `torch.channels_last`, which tensor cores need"
        ),
    ] = False
    compile: Annotated[bool, Field(description="the model is compiled with `torch.compile`")] = (
        False
    )
    fused_attention: Annotated[
        bool,
        Field(
            description="attention in one kernel: FlashAttention or `scaled_dot_product_attention`"
        ),
    ] = False
    batch_per_gpu: Annotated[Count, Field(description="samples per GPU in one step")] = 32
    dataset: Annotated[
        Dataset | None, Field(description="samples of one epoch; default: synthetic samples")
    ] = None
    epochs: Annotated[
        Count, Field(description="passes over the dataset; `predict` shows the time of all of them")
    ] = 1
    tokens: Annotated[
        Tokens | None,
        Field(le=1e18, description="tokens of a whole training run, instead of dataset and epochs"),
    ] = None
    framework: Annotated[
        Annotated[Line, AfterValidator(_normalize_framework)] | None,
        Field(
            description="library that exchanges gradients: `pytorch-ddp`, `horovod`, `tf-distribute`, `apex`, "
            "`paddle`, `oneflow`, `mindspore`, or `tf-cnn-benchmarks`; predictions then use its "
            "published results"
        ),
    ] = None
    gradient_dtype: Annotated[
        GradientDtype | None,
        Field(
            description="format of gradients on the network; default: `fp32`; the training precision for `fp16`"
            " or `bf16` with `framework` `apex`, `deepspeed`, or `tf-cnn-benchmarks`"
        ),
    ] = None
    input: Annotated[
        Tensor | None,
        Field(
            description="input tensor of one sample; required if the factory returns a bare torch module"
        ),
    ] = None
    target: Annotated[
        Annotated[
            Annotated[TrainingTarget, Tag("described")] | Annotated[NextToken, Tag("named")],
            Discriminator(get_reference_tag),
        ]
        | None,
        Field(
            description="target of the model: one of the next two keys, or `next-token`, the input's tokens one"
            " step later"
        ),
    ] = None
    measured: Annotated[
        tuple[KnownThroughput, ...],
        Field(
            max_length=MAX_LISTED,
            description="list of your measured figures, for one GPU or several",
        ),
    ] = ()
    parallel: Annotated[
        Parallel | None, Field(description="how a large transformer is divided among GPUs")
    ] = None

    # not a key, because a file must not choose the directory that its code is imported from
    _file: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check_next_token(self) -> "Workload":
        if self.target != "next-token" or self.input is None:
            return self
        if self.input.dtype != "int64" or self.input.below is None or len(self.input.shape) != 1:
            raise ValueError(
                "target: next-token needs tokens as input, like input: {shape: [1024], below: 50257}"
            )
        return self

    @model_serializer(mode="wrap")
    def _leave_out_default(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # the results store finds earlier runs by this text: an option at its default must not change it
        return {
            name: value
            for name, value in serialize(self).items()
            if name not in _OPTIONAL or value not in (None, False)
        }

    @property
    def model_name(self) -> str:
        """The name of the model; a model given by its shape has the workload's."""
        return self.model if isinstance(self.model, str) else self.name

    @property
    def single_gpu_measurements(self) -> tuple[KnownThroughput, ...]:
        """The measurements with one GPU."""
        return tuple(measured for measured in self.measured if measured.gpus == 1)

    @property
    def autocast(self) -> bool:
        """True if it trains in mixed precision: 16-bit numbers where possible, fp32 where necessary."""
        return self.precision in ("fp16", "bf16")

    @property
    def file(self) -> Path | None:
        """The file of the spec, or None if a program created it or it is a catalog model."""
        return self._file

    def copy_with_file(self, file: Path | None) -> "Workload":
        """Return a copy that knows its file."""
        copy = self.model_copy()
        copy._file = file
        return copy


def _pack(workload: Workload, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    # the receiver may have another working directory
    file = workload.file.absolute() if workload.file else None
    return {"spec": handler(workload), "file": str(file) if file else None}


def _unpack(packed: Any, handler: ValidatorFunctionWrapHandler) -> Workload:
    if isinstance(packed, Workload):
        return packed
    spec: Workload = handler(packed["spec"])
    return spec.copy_with_file(Path(packed["file"]) if packed["file"] else None)


PackedWorkload = Annotated[Workload, WrapValidator(_unpack), WrapSerializer(_pack)]
"""A workload in a message to another process, including its file."""
