"""`gpuyard watch`: is a training as fast as it should be?"""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import PredictedStrategy
from gpuyard.cli.output import JsonOption, show


def watch(
    handle: Annotated[
        str | None, typer.Argument(metavar="HANDLE", help="Handle or number of the job.")
    ] = None,
    *,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Log or report file with the lines of gpuyard.step(), instead of a job.",
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="WORKLOAD",
            help="Workload file or catalog model to predict.",
            show_default="the job's",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="CLUSTER", help="Machines of the training, to compare with the prediction."
        ),
    ] = None,
    strategy: Annotated[
        PredictedStrategy | None,
        typer.Option(
            help="ddp, dataparallel, horovod, or parameter-server; for a large model ddp, fsdp, megatron, or auto.",
            show_default="ddp",
        ),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(
            metavar="PRICE",
            help="Price of all machines, like '$98/h'.",
            show_default="the cheapest in the catalog",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Judge a running training: its speed, slow ranks, starved input, slow links, drift, and cost.

    Example: gpuyard watch 17 --on 2x4xrtx-3090@10G
    """
    from gpuyard.api.watch import watch as judge

    result = judge(
        handle,
        log=log,
        workload=workload,
        on=on,
        strategy=strategy,
        price=price,
    )
    show(result.answer, json_output=json_output)
