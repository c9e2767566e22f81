"""What can be done about a choked exchange without buying anything: remedies, as a user names them."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpuyard.specs.base import Spec

Compression = Annotated[
    str,
    Field(
        pattern=r"^(fp16|bf16|powersgd:[1-9][0-9]{0,3})$",
        description="fp16, bf16, or powersgd:RANK",
        examples=["powersgd:2"],
    ),
]


class Remedy(Spec):
    """How gradients are exchanged where that differs from plain DistributedDataParallel."""

    compress: Annotated[
        Compression | None, Field(description="what is sent instead of fp32 gradients")
    ] = None
    accumulate: Annotated[
        int, Field(ge=1, le=10_000, description="exchange and update every so many batches")
    ] = 1
    bucket_mb: Annotated[
        float | None, Field(gt=0, le=100_000, description="bucket size of DDP in MiB")
    ] = None
    local_sgd: Annotated[
        int,
        Field(
            ge=1, le=10_000, description="every worker alone, parameters averaged every N updates"
        ),
    ] = 1

    @model_validator(mode="after")
    def _go_together(self) -> "Remedy":
        if self.local_sgd > 1 and self.bucket_mb is not None:
            raise ValueError("local SGD has no buckets: leave out 'bucket_mb' or 'local_sgd'")
        if self.local_sgd > 1 and self.powersgd_rank is not None:
            raise ValueError(
                "PowerSGD compresses gradients and local SGD averages parameters: "
                "take fp16 or bf16 with it"
            )
        return self

    @property
    def plain(self) -> bool:
        """Nothing is done."""
        return self == Remedy()

    @property
    def period(self) -> int:
        """Batches from one exchange to the next."""
        return self.accumulate * self.local_sgd

    @property
    def powersgd_rank(self) -> int | None:
        name, _, rank = (self.compress or "").partition(":")
        return int(rank) if name == "powersgd" else None

    @property
    def half(self) -> Literal["fp16", "bf16"] | None:
        """The 16-bit format that is sent, if one is."""
        match self.compress:
            case "fp16":
                return "fp16"
            case "bf16":
                return "bf16"
        return None

    @property
    def label(self) -> str:
        """For tables: "plain", or what is done."""
        parts = [
            self.compress or "",
            f"accumulate {self.accumulate}" if self.accumulate > 1 else "",
            f"bucket {self.bucket_mb:g} MiB" if self.bucket_mb is not None else "",
            f"local SGD {self.local_sgd}" if self.local_sgd > 1 else "",
        ]
        return " + ".join(part for part in parts if part) or "plain"
