"""`gpuyard bench relief`: measure which remedies speed up a slow gradient exchange."""

from functools import partial
from typing import Annotated

import typer

from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.measure.places import (
    HostsOption,
    LabOption,
    LauncherOption,
    RanksPerNodeOption,
    SlurmOption,
)
from gpuyard.cli.options import DryRunOption, PrecisionOption
from gpuyard.cli.output import JsonOption


def relief(
    workload: Annotated[
        str, typer.Argument(help="A *.workload.yaml file, or the name of a catalog model.")
    ],
    *,
    lab: LabOption = None,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="RATE", help="Link rate of a temporary lab, like 1Gbit; replaces --lab."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Workers in total.", min=2)] = 2,
    hosts: HostsOption = None,
    slurm: SlurmOption = False,
    ranks_per_node: RanksPerNodeOption = None,
    launcher: LauncherOption = None,
    batch: Annotated[
        int | None, typer.Option(help="Batch size per worker (default: the workload's).", min=1)
    ] = None,
    precision: PrecisionOption = None,
    min_samples: Annotated[
        int, typer.Option(help="Minimum number of samples that each remedy trains on.", min=1)
    ] = 6000,
    tolerance: Annotated[
        str, typer.Option(metavar="SHARE", help="Maximum increase of the loss over plain DDP.")
    ] = "5%",
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure which remedies speed up a slow gradient exchange, and whether the model learns as much.

    First, one worker trains alone for two seconds, unless the results store has that run. From it and the link, the
    predictor selects the remedies that are worth trying. Then plain DDP and each remedy train on the same samples
    from the same weights. A remedy counts only if its final loss is about that of plain DDP.

    Example: gpuyard bench relief spoken-digits-linear --link 1Gbit --workers 2 --batch 50
    """
    from gpuyard.api.relief import relief as measure_relief

    run = partial(
        measure_relief,
        workload,
        lab=lab,
        link=link,
        workers=workers,
        hosts=hosts,
        slurm=slurm,
        ranks_per_node=ranks_per_node,
        launcher=launcher,
        batch=batch,
        precision=precision,
        min_samples=min_samples,
        tolerance=tolerance,
    )
    run_bench(run, dry_run=dry_run, json_output=json_output)
