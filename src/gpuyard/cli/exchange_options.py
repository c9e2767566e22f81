"""The options about the exchange of gradients, as the spec that predictions take."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.specs import GradientExchange

_COMPRESSED = re.compile(r"fp16|bf16|powersgd:[1-9][0-9]*")

AccumulateOption = Annotated[
    int, typer.Option(min=1, help="Backward passes for one exchange (gradient accumulation).")
]
LocalSgdOption = Annotated[
    int, typer.Option(min=1, help="Updates of each worker alone between two averagings.")
]
CompressOption = Annotated[
    str | None, typer.Option(help="Send gradients as fp16, bf16 or powersgd:RANK.")
]
BucketOption = Annotated[
    float | None,
    typer.Option(help="Size of ddp's buckets or Horovod's fusion buffer in MiB."),
]
HierarchicalOption = Annotated[
    bool,
    typer.Option("--hierarchical", help="All-reduce inside each machine first, where faster."),
]


def exchange_of(
    accumulate: int,
    local_sgd: int,
    compress: str | None,
    bucket_mb: float | None,
    hierarchical: bool,
) -> "GradientExchange":
    """Checked one by one, so that a mistake names its option."""
    from gpuyard.specs import GradientExchange

    if compress is not None and not _COMPRESSED.fullmatch(compress):
        raise UserMistake(
            f"--compress is fp16, bf16 or powersgd:RANK such as powersgd:2, not {compress!r}"
        )
    if bucket_mb is not None and not 0 < bucket_mb <= 1e6:
        raise UserMistake(f"--bucket-mb must be above 0 and at most 1,000,000, not {bucket_mb:g}")
    return GradientExchange(
        accumulate=accumulate,
        local_sgd=local_sgd,
        compress=compress,
        bucket=None if bucket_mb is None else bucket_mb * 2.0**20,
        hierarchical=hierarchical,
    )
