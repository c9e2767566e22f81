"""`gpuyard goodput`: the best checkpoint interval, and what interruptions cost."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.completion import complete_storage
from gpuyard.cli.large_options import AnyWorkloadArgument, TokensOption
from gpuyard.cli.output import JsonOption, PageOption, check_output_file, show
from gpuyard.files import write_text


def goodput(
    workload: AnyWorkloadArgument,
    *,
    on: Annotated[
        str,
        typer.Option(
            metavar="CLUSTER",
            help="A *.cluster.yaml, or hardware: 8xh100, 4xp5.48xlarge, 2x4xrtx-3090@10G.",
        ),
    ],
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of the job.", show_default="the whole cluster"),
    ] = None,
    tokens: TokensOption = None,
    days: Annotated[
        float | None, typer.Option(min=0.001, help="Days of training without losses.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_storage,
            help="Storage of checkpoints from the catalog, like lustre-nvme or 4xweka.",
            show_default="the cluster's, otherwise one lustre-nvme per 16 machines, or local-nvme for one without a network",
        ),
    ] = None,
    checkpoint_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size of a checkpoint.",
            show_default="weights and optimizer",
        ),
    ] = None,
    checkpoint_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time that training stops for a checkpoint.",
            show_default="from the storage",
        ),
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Training time between checkpoints.",
            show_default="the best",
        ),
    ] = None,
    restart_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time from an interruption to the first step, without reading the checkpoint.",
            show_default="10 min",
        ),
    ] = None,
    mean_gpu_hours: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            metavar="NUMBER",
            help="Mean hours between interruptions of one GPU.",
            show_default="published, by architecture",
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(help="SVG file for the curves.", callback=check_output_file),
    ] = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find the best checkpoint interval, and what failures and spot interruptions cost.

    Example: gpuyard goodput llama-3-70b --on 32xp5.48xlarge --tokens 1T
    """
    from gpuyard.api.goodput import goodput as estimate

    result = estimate(
        workload,
        on=on,
        gpus=gpus,
        tokens=tokens,
        days=days,
        storage=storage,
        checkpoint_size=checkpoint_size,
        checkpoint_time=checkpoint_time,
        checkpoint_every=checkpoint_every,
        restart=restart_time,
        mean_gpu_hours=mean_gpu_hours,
    )
    if svg:
        write_text(svg, result.svg())
    show(result.answer, json_output=json_output, html=html)
