"""The options of a gradient exchange: strategy, frequency, compression, and bucket size."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from gpuyard.specs.base import Bytes, Spec

StrategyName = Literal["ddp", "dataparallel", "horovod", "parameter-server"]
RecordedStrategy = Literal[
    "ddp", "dataparallel", "horovod", "parameter-server", "fsdp", "tensor", "pipeline"
]
DEFAULT_STRATEGY: StrategyName = "ddp"
_MEBIBYTE = 2.0**20
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class ExchangeOptions(Spec):
    """The options of a gradient exchange; the defaults are those of the frameworks."""

    compress: Annotated[
        str | None,
        Field(
            pattern=r"^(fp16|bf16|powersgd:[1-9][0-9]{0,5})$",
            description="format that replaces fp32 gradients: `fp16`, `bf16`, or `powersgd:RANK`; default: no "
            "compression",
            examples=["powersgd:2"],
        ),
    ] = None
    accumulate: Annotated[_Count, Field(description="number of backward passes per exchange")] = 1
    bucket_mb: Annotated[
        float | None,
        Field(gt=0, le=1e6, description="the same size as a number of MiB; default: 25, 64"),
    ] = None
    local_sgd: Annotated[
        _Count, Field(description="number of local updates by each worker between two averagings")
    ] = 1
    hierarchical: Annotated[
        bool, Field(description="whether to reduce inside each machine first, if faster")
    ] = False
    bucket: Annotated[
        Bytes | None,
        Field(
            gt=0,
            exclude=True,
            description="size of ddp's buckets or Horovod's fusion buffer, like `25 MiB`; default: 25 MiB, 64 "
            "MiB",
        ),
    ] = None

    @model_validator(mode="after")
    def _convert_bucket(self) -> "ExchangeOptions":
        """Keep the bucket size as `bucket_mb`, whichever key set it."""
        if self.bucket is not None:
            if self.bucket_mb is not None:
                raise ValueError(
                    "'bucket' and 'bucket_mb' set the same size: leave out one of them"
                )
            self.__dict__.update(bucket_mb=self.bucket / _MEBIBYTE, bucket=None)
        return self

    @model_validator(mode="after")
    def _check_combination(self) -> "ExchangeOptions":
        if self.local_sgd > 1 and self.bucket_mb is not None:
            raise ValueError("local SGD has no buckets: leave out one of them")
        if self.local_sgd > 1 and self.powersgd_rank is not None:
            raise ValueError(
                "PowerSGD compresses gradients, but local SGD averages parameters: "
                "use fp16 or bf16 with it"
            )
        return self

    @model_serializer(mode="wrap")
    def _leave_out_default(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # the results store finds earlier runs by this text: an option at its default must not change it
        return {
            name: value
            for name, value in serialize(self).items()
            if name != "hierarchical" or value
        }

    @property
    def bucket_bytes(self) -> float | None:
        """The bucket size, or None for the framework's default."""
        return None if self.bucket_mb is None else self.bucket_mb * _MEBIBYTE

    @property
    def non_default_keys(self) -> frozenset[str]:
        """The keys whose values differ from the defaults."""
        return frozenset(name for name, value in self if value != getattr(DEFAULT_EXCHANGE, name))

    @property
    def is_default(self) -> bool:
        """True if every option has its default value."""
        return self == DEFAULT_EXCHANGE

    @property
    def period(self) -> int:
        """The number of batches from one exchange to the next."""
        return self.accumulate * self.local_sgd

    @property
    def powersgd_rank(self) -> int | None:
        kind, _, rank = (self.compress or "").partition(":")
        return int(rank) if kind == "powersgd" else None

    @property
    def half_precision(self) -> Literal["fp16", "bf16"] | None:
        """The 16-bit format of the gradients on the network, if any."""
        match self.compress:
            case "fp16" | "bf16" as half:
                return half
        return None

    @property
    def descriptions(self) -> tuple[str, ...]:
        """Descriptions of the options that differ from the defaults, for titles."""
        options = (
            (self.accumulate > 1, f"exchange every {self.accumulate} passes"),
            (self.local_sgd > 1, f"local SGD of {self.local_sgd}"),
            (self.compress is not None, str(self.compress)),
            (self.bucket_mb is not None, f"buckets of {self.bucket_mb or 0:g} MiB"),
            (self.hierarchical, "hierarchical"),
        )
        return tuple(description for active, description in options if active)

    @property
    def label(self) -> str:
        """A short label for tables: "plain", or the options that differ from the defaults."""
        parts = [
            self.compress or "",
            f"accumulate {self.accumulate}" if self.accumulate > 1 else "",
            f"bucket {self.bucket_mb:g} MiB" if self.bucket_mb is not None else "",
            f"local SGD {self.local_sgd}" if self.local_sgd > 1 else "",
            "hierarchical" if self.hierarchical else "",
        ]
        return " + ".join(part for part in parts if part) or "plain"


DEFAULT_EXCHANGE = ExchangeOptions()
