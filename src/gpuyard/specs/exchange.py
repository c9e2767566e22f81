"""How gradients are exchanged: by which strategy, how often, how many bits of them, and in which packs."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from gpuyard.specs.base import Bytes, Spec

StrategyName = Literal["ddp", "dataparallel", "horovod", "parameter-server"]
DEFAULT_STRATEGY: StrategyName = "ddp"
_MEBIBYTE = 2.0**20
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class ExchangeOptions(Spec):
    """What a training script may choose about its exchange; the defaults are the frameworks'."""

    compress: Annotated[
        str | None,
        Field(
            pattern=r"^(fp16|bf16|powersgd:[1-9][0-9]{0,5})$",
            description="what is sent instead of fp32 gradients: fp16, bf16 or powersgd:RANK",
            examples=["powersgd:2"],
        ),
    ] = None
    accumulate: Annotated[_Count, Field(description="backward passes for one exchange")] = 1
    bucket_mb: Annotated[
        float | None,
        Field(
            gt=0, le=1e6, description="ddp's bucket_cap_mb or Horovod's fusion threshold, in MiB"
        ),
    ] = None
    local_sgd: Annotated[
        _Count, Field(description="updates by each worker alone between two averagings")
    ] = 1
    hierarchical: Annotated[
        bool, Field(description="inside each machine first, then between the machines")
    ] = False
    bucket: Annotated[
        Bytes | None,
        Field(gt=0, exclude=True, description="bucket_mb as a size with its unit, like 25 MiB"),
    ] = None

    @model_validator(mode="after")
    def _one_size(self) -> "ExchangeOptions":
        """However its size was written, a bucket is kept as `bucket_mb`."""
        if self.bucket is not None:
            if self.bucket_mb is not None:
                raise ValueError("'bucket' and 'bucket_mb' say the same: leave out one of the two")
            self.__dict__.update(bucket_mb=self.bucket / _MEBIBYTE, bucket=None)
        return self

    @model_validator(mode="after")
    def _go_together(self) -> "ExchangeOptions":
        if self.local_sgd > 1 and self.bucket_mb is not None:
            raise ValueError("local SGD has no buckets: leave out one of the two")
        if self.local_sgd > 1 and self.powersgd_rank is not None:
            raise ValueError(
                "PowerSGD compresses gradients, and local SGD averages parameters: "
                "take fp16 or bf16 with it"
            )
        return self

    @model_serializer(mode="wrap")
    def _as_stored(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # records of runs never had it, and an older gpuyard must read them
        return {
            name: value for name, value in usual(self).items() if name != "hierarchical" or value
        }

    @property
    def bucket_bytes(self) -> float | None:
        """None: the framework's own."""
        return None if self.bucket_mb is None else self.bucket_mb * _MEBIBYTE

    @property
    def chosen(self) -> frozenset[str]:
        """The keys that are not as usual."""
        return frozenset(name for name, value in self if value != getattr(DEFAULT_EXCHANGE, name))

    @property
    def plain(self) -> bool:
        """Nothing is chosen."""
        return self == DEFAULT_EXCHANGE

    @property
    def period(self) -> int:
        """Batches from one exchange to the next."""
        return self.accumulate * self.local_sgd

    @property
    def powersgd_rank(self) -> int | None:
        kind, _, rank = (self.compress or "").partition(":")
        return int(rank) if kind == "powersgd" else None

    @property
    def half(self) -> Literal["fp16", "bf16"] | None:
        """The 16-bit format that is sent, if one is."""
        match self.compress:
            case "fp16" | "bf16" as half:
                return half
        return None

    @property
    def words(self) -> tuple[str, ...]:
        """What is not as usual, for titles."""
        said = (
            (self.accumulate > 1, f"exchange every {self.accumulate} passes"),
            (self.local_sgd > 1, f"local SGD of {self.local_sgd}"),
            (self.compress is not None, str(self.compress)),
            (self.bucket_mb is not None, f"buckets of {self.bucket_mb or 0:g} MiB"),
            (self.hierarchical, "hierarchical"),
        )
        return tuple(words for chosen, words in said if chosen)

    @property
    def label(self) -> str:
        """For tables: "plain", or what is done."""
        parts = [
            self.compress or "",
            f"accumulate {self.accumulate}" if self.accumulate > 1 else "",
            f"bucket {self.bucket_mb:g} MiB" if self.bucket_mb is not None else "",
            f"local SGD {self.local_sgd}" if self.local_sgd > 1 else "",
            "hierarchical" if self.hierarchical else "",
        ]
        return " + ".join(part for part in parts if part) or "plain"


DEFAULT_EXCHANGE = ExchangeOptions()
