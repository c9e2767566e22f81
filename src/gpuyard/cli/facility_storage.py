"""`gpuyard facility storage`: what a workload asks of storage, and what would give it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.options import JsonOption, console, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.catalog.storage import StorageNeed
    from gpuyard.facility.storage import StorageFit, StorageSizing
    from gpuyard.specs import Cluster


def storage(
    workload: Annotated[str, typer.Argument(help="A *.workload.yaml, or a catalog model.")],
    *,
    on: Annotated[
        str, typer.Option(help="A *.cluster.yaml, or a catalog machine.", metavar="CLUSTER")
    ],
    batch: Annotated[int | None, typer.Option(min=1, help="Samples a GPU and step.")] = None,
    checkpoint_size: Annotated[
        str | None, typer.Option(help="Of one checkpoint; 12 bytes a parameter unless said.")
    ] = None,
    checkpoint_time: Annotated[
        str, typer.Option(help="How long writing a checkpoint may take.")
    ] = "60 s",
    checkpoint_every: Annotated[
        str, typer.Option(help="How long training runs between checkpoints.")
    ] = "30 min",
    checkpoints_kept: Annotated[int, typer.Option(min=0, help="Checkpoints to hold.")] = 3,
    json_output: JsonOption = False,
) -> None:
    """Say what bandwidth and capacity a workload needs, and compare ways to provide them.

    Example: gpuyard facility storage resnet50 --on dgx-h100 --batch 400
    """
    from gpuyard import units
    from gpuyard.catalog.specfiles import read_cluster, read_workload
    from gpuyard.facility.storage import size_storage
    from gpuyard.planner.storage_need import CheckpointPlan, published_need, storage_request
    from gpuyard.workloads import profile_of

    spec, cluster = read_workload(workload), read_cluster(on)
    checkpoint = CheckpointPlan(
        size_bytes=units.parse_bytes(checkpoint_size) if checkpoint_size else None,
        seconds=units.parse_seconds(checkpoint_time),
        every_seconds=units.parse_seconds(checkpoint_every),
        kept=checkpoints_kept,
    )
    request = storage_request(spec, profile_of(spec), cluster, checkpoint, batch=batch)
    sizing = size_storage(request)
    published = published_need(spec, cluster)
    if json_output:
        own = _own_document(sizing, cluster)
        named = {"workload": spec.name, "cluster": cluster.name}
        print_json(named | _document(sizing, published) | own)
        return
    _show(sizing, f"{spec.name} on {cluster.name}")
    read = cluster.storage.read if cluster.storage is not None else None
    if read is not None:
        fed = _fed(sizing, read)
        console().print(
            f"The cluster's own storage reads {units.format_byte_rate(read)}: enough for "
            f"{'any number of' if fed is None else f'{fed:,}'} GPUs.",
            highlight=False,
        )
    if spec.dataset is None or spec.dataset.bytes_per_sample is None:
        console().print(
            "The workload does not say how many bytes of storage a sample takes; the size of its "
            "tensor is assumed. Give 'dataset: bytes_per_sample'.",
            highlight=False,
        )
    if published is not None:
        console().print(
            f"MLPerf Storage has one {published.gpu} read "
            f"{units.format_byte_rate(published.read_bytes_per_second)} with {published.model} "
            f"({published.record_bytes / 1e3:.0f} kB a record, {published.date}).",
            highlight=False,
        )


def _show(sizing: "StorageSizing", title: str) -> None:
    from gpuyard.units import format_byte_rate, format_bytes, format_seconds, format_share

    need = sizing.request
    print_table(
        f"Storage for {title}, {need.gpus:,} GPUs",
        ["need", "amount", "from"],
        [
            ["reads", format_byte_rate(need.read_bytes_per_second),
             f"{need.samples_per_second:,.0f} samples/s × {format_bytes(need.bytes_per_sample)}"],
            ["reads of one GPU", format_byte_rate(need.read_bytes_per_second_per_gpu), ""],
            ["writes", format_byte_rate(need.write_bytes_per_second),
             f"a checkpoint of {format_bytes(need.checkpoint_bytes)} in "
             f"{format_seconds(need.checkpoint_seconds)}, "
             f"{format_share(need.checkpoint_share)} of the time"],
            ["capacity", format_bytes(need.capacity_bytes), need.held],
        ],
    )  # fmt: skip
    print_table(
        "Ways to build it",
        ["option", "licence", "units", "reads", "checkpoint", "feeds up to", "enough", "basis"],
        [_row(fit) for fit in sizing.fits],
    )
    console().print(sizing.verdict, highlight=False)


def _row(fit: "StorageFit") -> list[str]:
    from gpuyard.units import format_byte_rate, format_seconds

    feeds = (
        "any: each machine its own" if fit.largest_gpus is None else f"{fit.largest_gpus:,} GPUs"
    )
    if fit.option.kind == "local" and fit.largest_gpus is not None:
        feeds = f"{feeds} a machine"
    return [
        fit.option.id,
        fit.option.licence,
        f"{fit.units:,}" if fit.enough else f"{fit.units:,} of {fit.option.most_units}",
        format_byte_rate(fit.read_bytes_per_second),
        "" if fit.checkpoint_seconds is None else format_seconds(fit.checkpoint_seconds),
        feeds,
        "yes" if fit.enough else fit.missing,
        fit.option.basis,
    ]


def _fed(sizing: "StorageSizing", read_bytes_per_second: float) -> int | None:
    each = sizing.request.read_bytes_per_second_per_gpu
    return int(read_bytes_per_second // each) if each else None


def _own_document(sizing: "StorageSizing", cluster: "Cluster") -> dict[str, Any]:
    read = cluster.storage.read if cluster.storage is not None else None
    if read is None:
        return {"cluster_storage": None}
    return {
        "cluster_storage": {
            "read_bytes_per_second": read,
            "enough": read >= sizing.request.read_bytes_per_second,
            "largest_gpus": _fed(sizing, read),
        }
    }


def _document(sizing: "StorageSizing", published: "StorageNeed | None") -> dict[str, Any]:
    need = sizing.request
    return {
        "gpus": need.gpus,
        "need": {
            "samples_per_second": need.samples_per_second,
            "bytes_per_sample": need.bytes_per_sample,
            "read_bytes_per_second": need.read_bytes_per_second,
            "read_bytes_per_second_per_gpu": need.read_bytes_per_second_per_gpu,
            "write_bytes_per_second": need.write_bytes_per_second,
            "checkpoint_bytes": need.checkpoint_bytes,
            "checkpoint_share": need.checkpoint_share,
            "capacity_bytes": need.capacity_bytes,
        },
        "options": [
            {
                "option": fit.option.id,
                "name": fit.option.name,
                "licence": fit.option.licence,
                "basis": fit.option.basis,
                "units": fit.units,
                "unit": fit.option.unit,
                "enough": fit.enough,
                "limit": fit.limit,
                "missing": fit.missing,
                "read_bytes_per_second": fit.read_bytes_per_second,
                "checkpoint_seconds": fit.checkpoint_seconds,
                "largest_gpus": fit.largest_gpus,
            }
            for fit in sizing.fits
        ],
        "verdict": sizing.verdict,
        "published_read_bytes_per_second_per_gpu": (
            published.read_bytes_per_second if published else None
        ),
    }
