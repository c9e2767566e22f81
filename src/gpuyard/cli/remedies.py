"""The options that name a remedy for a choked exchange."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.specs import Remedy

CompressOption = Annotated[
    str | None,
    typer.Option(help="Send gradients as fp16, bf16 or powersgd:RANK.", metavar="HOW"),
]
AccumulateOption = Annotated[
    int, typer.Option(help="Exchange and update every so many batches.", metavar="N")
]
BucketOption = Annotated[
    float | None, typer.Option(help="Size of ddp's buckets or Horovod's fusion buffer in MiB.")
]
LocalSgdOption = Annotated[
    int,
    typer.Option(help="Every worker for itself, parameters averaged every N updates.", metavar="N"),
]


def parse_remedy(
    compress: str | None, accumulate: int, bucket_mb: float | None, local_sgd: int
) -> "Remedy":
    """All four as one remedy; raises what can't be done, or not together."""
    from pydantic import ValidationError

    from gpuyard.specs import Remedy

    try:
        return Remedy(
            compress=compress, accumulate=accumulate, bucket_mb=bucket_mb, local_sgd=local_sgd
        )
    except ValidationError as invalid:
        mistake = invalid.errors()[0]
        if mistake["loc"] == ("compress",):
            raise UserMistake(
                f"{compress!r} is no compression; take fp16, bf16 or powersgd:RANK, like powersgd:2"
            ) from None
        option = f"--{str(mistake['loc'][0]).replace('_', '-')}: " if mistake["loc"] else ""
        raise UserMistake(option + mistake["msg"].removeprefix("Value error, ")) from None
