"""How often gradients are exchanged, how many bits of them, and in which packs."""

from typing import Annotated

from pydantic import Field

from gpuyard.specs.base import Bytes, Spec

Count = Annotated[int, Field(gt=0)]


class GradientExchange(Spec):
    """What a training script may choose about its exchange; the defaults are the frameworks'."""

    accumulate: Annotated[Count, Field(description="backward passes for one exchange")] = 1
    local_sgd: Annotated[
        Count, Field(description="updates by each worker alone between two averagings")
    ] = 1
    compress: Annotated[
        str | None,
        Field(
            pattern=r"^(fp16|bf16|powersgd:[1-9][0-9]*)$",
            description="fp16, bf16 or powersgd:RANK",
        ),
    ] = None
    bucket: Annotated[
        Bytes | None,
        Field(gt=0, description="ddp's bucket_cap_mb or Horovod's fusion threshold"),
    ] = None
    hierarchical: Annotated[
        bool, Field(description="inside each machine first, then between the machines")
    ] = False

    @property
    def words(self) -> tuple[str, ...]:
        """What is not as usual, for titles."""
        said = (
            (self.accumulate > 1, f"exchange every {self.accumulate} passes"),
            (self.local_sgd > 1, f"local SGD of {self.local_sgd}"),
            (self.compress is not None, str(self.compress)),
            (self.bucket is not None, f"buckets of {(self.bucket or 0) / 2**20:g} MiB"),
            (self.hierarchical, "hierarchical"),
        )
        return tuple(words for chosen, words in said if chosen)

    @property
    def powersgd_rank(self) -> int | None:
        kind, _, rank = (self.compress or "").partition(":")
        return int(rank) if kind == "powersgd" else None


DEFAULT_EXCHANGE = GradientExchange()
