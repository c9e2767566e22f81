"""`gpuyard bench storage`: find how many GPUs the storage keeps busy."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.completion import complete_gpus, complete_models
from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.options import DryRunOption, TimePerPointOption
from gpuyard.cli.output import JsonOption


def storage(
    path: Annotated[Path, typer.Argument(help="A directory on the storage to be measured.")],
    *,
    model: Annotated[
        str,
        typer.Option(
            metavar="WORKLOAD",
            autocompletion=complete_models,
            help="Model to train: a catalog model, unet3d, or cosmoflow.",
        ),
    ] = "resnet50",
    gpu: Annotated[
        str,
        typer.Option(metavar="ID", autocompletion=complete_gpus, help="Catalog GPU to emulate."),
    ] = "h100-sxm5-80gb",
    gpus: Annotated[int, typer.Option(help="Number of GPUs.", min=1)] = 8,
    batch: Annotated[
        int | None, typer.Option(help="Batch size per GPU (default: MLPerf's).", min=1)
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Existing dataset to read, instead of a temporary one."),
    ] = None,
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="Size of the temporary dataset.")
    ] = "1 GB",
    time_per_point: TimePerPointOption = 10.0,
    readers: Annotated[int, typer.Option(help="Reader threads per GPU.", min=1)] = 4,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Find how many GPUs this storage keeps busy, by MLPerf Storage's method.

    Reads are real; compute is replaced by a sleep of the same length. Utilization is compute time over total time,
    and 90% passes. If the page cache cannot be bypassed, there is no verdict.

    Example: gpuyard bench storage . --model resnet50 --gpu h100-sxm5-80gb --gpus 8
    """
    from gpuyard.api.hardware_bench import storage as measure_storage

    run = partial(
        measure_storage,
        path,
        model=model,
        gpu=gpu,
        gpus=gpus,
        batch=batch,
        dataset=dataset,
        size=size,
        time_per_point=time_per_point,
        readers=readers,
    )
    run_bench(run, dry_run=dry_run, json_output=json_output)
