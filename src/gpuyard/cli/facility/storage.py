"""`gpuyard facility storage`: size the storage for a workload, and compare storage options."""

from typing import Annotated

import typer

from gpuyard.api.inputs import apply_precision, parse_precision
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
        str | None, typer.Option(help="Size of a checkpoint; 12 bytes per parameter by default.")
    ] = None,
    checkpoint_time: Annotated[
        str, typer.Option(help="Time in which a checkpoint must be written.")
    ] = "60 s",
    checkpoint_every: Annotated[
        str, typer.Option(help="Training time between checkpoints.")
    ] = "30 min",
    checkpoints_kept: Annotated[
        int, typer.Option(min=0, help="Number of checkpoints to keep.")
    ] = 3,
    json_output: JsonOption = False,
) -> None:
    """Calculate the bandwidth and capacity that a workload needs, and compare storage options.

    Example: gpuyard facility storage resnet50 --on dgx-h100 --batch 400
    """
    from gpuyard import units
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.facilities.storage import size_storage
    from gpuyard.hardware.clusters import read_cluster, resolve_machine
    from gpuyard.planner.storage_need import (
        CheckpointPlan,
        create_storage_request,
        find_published_need,
    )
    from gpuyard.predictor.compute import resolve_precision
    from gpuyard.report.answers.facility.storage_sizing import storage_answer
    from gpuyard.workloads import profile_model

    if precision is not None:
        parse_precision(precision)
    spec, cluster = read_workload(workload), read_cluster(on)
    profile = profile_model(spec)
    spec = apply_precision(spec, profile, precision)
    checkpoint = CheckpointPlan(
        size_bytes=units.parse_bytes(checkpoint_size) if checkpoint_size else None,
        seconds=units.parse_seconds(checkpoint_time),
        every_seconds=units.parse_seconds(checkpoint_every),
        kept=checkpoints_kept,
    )
    request = create_storage_request(spec, profile, cluster, checkpoint, batch=batch)
    sizing, published = size_storage(request), find_published_need(spec, cluster)
    used = resolve_precision(resolve_machine(cluster)[0], spec, profile)
    show(storage_answer(sizing, spec, cluster, published, used), json_output=json_output)
