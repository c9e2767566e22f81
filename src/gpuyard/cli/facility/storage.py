"""`gpuyard facility storage`: what a workload asks of storage, and what would give it."""

from typing import Annotated

import typer

from gpuyard.cli.options import PrecisionOption, parse_precision, trained_in_asked
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
        str | None, typer.Option(help="Size of a checkpoint; by default 12 bytes per parameter.")
    ] = None,
    checkpoint_time: Annotated[
        str, typer.Option(help="How long writing a checkpoint may take.")
    ] = "60 s",
    checkpoint_every: Annotated[
        str, typer.Option(help="How long training runs between checkpoints.")
    ] = "30 min",
    checkpoints_kept: Annotated[
        int, typer.Option(min=0, help="Number of checkpoints to keep.")
    ] = 3,
    json_output: JsonOption = False,
) -> None:
    """Say what bandwidth and capacity a workload needs, and compare ways to provide them.

    Example: gpuyard facility storage resnet50 --on dgx-h100 --batch 400
    """
    from gpuyard import units
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.facility.storage import size_storage
    from gpuyard.hardware.clusters import machine_of, read_cluster
    from gpuyard.planner.storage_need import CheckpointPlan, published_need, storage_request
    from gpuyard.predict.compute import precision_on
    from gpuyard.report.answers.facility.storage_sizing import storage_answer
    from gpuyard.workloads import profile_of

    if precision is not None:
        parse_precision(precision)
    spec, cluster = read_workload(workload), read_cluster(on)
    profile = profile_of(spec)
    spec = trained_in_asked(spec, profile, precision)
    checkpoint = CheckpointPlan(
        size_bytes=units.parse_bytes(checkpoint_size) if checkpoint_size else None,
        seconds=units.parse_seconds(checkpoint_time),
        every_seconds=units.parse_seconds(checkpoint_every),
        kept=checkpoints_kept,
    )
    request = storage_request(spec, profile, cluster, checkpoint, batch=batch)
    sizing, published = size_storage(request), published_need(spec, cluster)
    used = precision_on(machine_of(cluster)[0], spec, profile)
    show(storage_answer(sizing, spec, cluster, published, used), json_output=json_output)
