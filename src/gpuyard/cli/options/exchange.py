"""The options about the exchange of gradients, as the spec that predictions and measurements take."""

from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from gpuyard.errors import UnknownName, UserMistake

if TYPE_CHECKING:
    from gpuyard.specs import ExchangeOptions, StrategyName

CompressOption = Annotated[
    str | None,
    typer.Option(help="Send gradients as fp16, bf16 or powersgd:RANK.", metavar="HOW"),
]
AccumulateOption = Annotated[
    int,
    typer.Option(help="Backward passes per exchange (gradient accumulation).", metavar="N"),
]
BucketOption = Annotated[
    float | None, typer.Option(help="Size of ddp's buckets or Horovod's fusion buffer in MiB.")
]
LocalSgdOption = Annotated[
    int,
    typer.Option(help="Local updates between two averagings.", metavar="N"),
]
HierarchicalOption = Annotated[
    bool,
    typer.Option("--hierarchical", help="All-reduce inside each machine first, where faster."),
]


def parse_exchange(
    compress: str | None,
    accumulate: int,
    bucket_mb: float | None,
    local_sgd: int,
    hierarchical: bool = False,
) -> "ExchangeOptions":
    """All of them as one value; raises what can't be done, or not together."""
    from pydantic import ValidationError

    from gpuyard.specs import ExchangeOptions
    from gpuyard.specs.loading import expected_and_got

    try:
        return ExchangeOptions(
            compress=compress,
            accumulate=accumulate,
            bucket_mb=bucket_mb,
            local_sgd=local_sgd,
            hierarchical=hierarchical,
        )
    except ValidationError as invalid:
        mistake = invalid.errors()[0]
        if not mistake["loc"]:
            raise UserMistake(mistake["msg"].removeprefix("Value error, ")) from None
        option = f"--{str(mistake['loc'][0]).replace('_', '-')}"
        if option == "--compress":
            raise UserMistake(
                f"{option}: expected fp16, bf16 or powersgd:RANK such as powersgd:2, got {compress!r}"
            ) from None
        raise UserMistake(f"{option}: {expected_and_got(mistake)}") from None


def parse_strategy(name: str) -> "StrategyName":
    """The strategy of this name."""
    from gpuyard.specs import StrategyName

    if name not in get_args(StrategyName):
        raise UnknownName("strategy", name, get_args(StrategyName))
    return cast("StrategyName", name)
