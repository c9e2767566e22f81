"""`gpuyard facility storage`: size the storage for a workload, and compare storage options."""

from typing import Annotated

import typer

from gpuyard.cli.options import PrecisionOption
from gpuyard.cli.output import JsonOption, show


def storage(
    workload: Annotated[str, typer.Argument(help="A *.workload.yaml, or a catalog model.")],
    *,
    on: Annotated[
        str,
        typer.Option(
            help="A *.cluster.yaml, a catalog machine, or e.g. 2x4xrtx-3090@10G.", metavar="CLUSTER"
        ),
    ],
    batch: Annotated[int | None, typer.Option(min=1, help="Batch size per GPU.")] = None,
    precision: PrecisionOption = None,
    checkpoint_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Size of a checkpoint; 12 bytes per parameter by default."
        ),
    ] = None,
    checkpoint_time: Annotated[
        str, typer.Option(metavar="TIME", help="Time in which a checkpoint must be written.")
    ] = "60 s",
    checkpoint_every: Annotated[
        str, typer.Option(metavar="TIME", help="Training time between checkpoints.")
    ] = "30 min",
    checkpoints_kept: Annotated[
        int, typer.Option(min=0, help="Number of checkpoints to keep.")
    ] = 3,
    json_output: JsonOption = False,
) -> None:
    """Calculate the bandwidth and capacity that a workload needs, and compare storage options.

    Example: gpuyard facility storage resnet50 --on dgx-h100 --batch 400
    """
    from gpuyard.api.storage import storage as size_storage

    result = size_storage(
        workload,
        on=on,
        batch=batch,
        precision=precision,
        checkpoint_size=checkpoint_size,
        checkpoint_time=checkpoint_time,
        checkpoint_every=checkpoint_every,
        checkpoints_kept=checkpoints_kept,
    )
    show(result.answer, json_output=json_output)
