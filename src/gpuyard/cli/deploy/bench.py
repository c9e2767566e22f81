"""`gpuyard deploy bench`: runs the founding paper's training sweep on a deployment."""

from functools import partial
from typing import Annotated, Literal

import typer

from gpuyard.cli.completion import complete_gpus, complete_list
from gpuyard.cli.deploy.options import FileArgument
from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.options import CalibrationOption, DryRunOption, FreshOption, TimePerPointOption
from gpuyard.cli.output import JsonOption, PageOption


def bench(
    file: FileArgument,
    *,
    workload: Annotated[
        str,
        typer.Option(
            metavar="WORKLOAD", help="Workload to train: a catalog model, or a workload file."
        ),
    ] = "resnet50",
    batch: Annotated[
        str | None, typer.Option(help="Batch sizes per GPU (default: 32,64,96).", metavar="N,N,…")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Numbers of machines (default: 1 to all).", metavar="N,N,…")
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(
            help="Measure only these shapes, like 1x10,10x1: one machine with ten GPUs, and ten with one.",
            metavar="MACHINESxGPUS,…",
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="Strategies: ddp, horovod (in a lab), or both.",
            metavar="NAME,…",
            autocompletion=complete_list(Literal["ddp", "horovod"]),
        ),
    ] = "ddp",
    link: Annotated[
        str | None,
        typer.Option(
            help="Link rates, if the target can set them, like '1 Gbit/s,100 Mbit/s'.",
            metavar="RATE,…",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Images in the shared storage, or 'none' (default: gpuyard generates images there).",
            metavar="PATH",
        ),
    ] = None,
    images: Annotated[
        int, typer.Option(help="Number of images to generate, 115 kB each.", metavar="N", min=1)
    ] = 2048,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="Catalog GPU to emulate; a lab emulates its cluster's.",
            metavar="ID",
            autocompletion=complete_gpus,
        ),
    ] = None,
    time_per_point: TimePerPointOption = 8.0,
    fresh: FreshOption = False,
    calibration: CalibrationOption = None,
    dry_run: DryRunOption = False,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Measure how training scales on its machines, and show it next to the prediction.

    It uses one GPU of each machine, several GPUs of one machine, and all GPUs, at each batch size and link rate.
    If it is killed, it continues where it stopped.

    Example: gpuyard deploy bench examples/pair.deployment.yaml --shapes 1x2,2x1 --dry-run
    """
    from gpuyard.api.deploy_bench import bench_deployment
    from gpuyard.errors import GpuyardError

    run = partial(
        bench_deployment,
        file,
        workload=workload,
        batch=batch,
        nodes=nodes,
        shapes=shapes,
        strategy=strategy,
        link=link,
        dataset=dataset,
        images=images,
        gpu=gpu,
        time_per_point=time_per_point,
        fresh=fresh,
        calibration=calibration,
    )
    result = run_bench(
        run,
        dry_run=dry_run,
        json_output=json_output,
        html=html,
        document=lambda measurement: {"measurements": [measurement]},
    )
    if result is not None and result.rejected:
        raise GpuyardError(
            f"{result.rejected} of {result.rejected + len(result.rows)} runs are not valid; see "
            "`gpuyard results list --kind rejected`, and run it again when the machines are quiet"
        )
