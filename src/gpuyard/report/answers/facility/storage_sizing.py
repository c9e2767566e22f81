"""What a workload asks of storage, and which ways to build one give it."""

from typing import Any

from gpuyard.catalog.fabric import StorageNeed
from gpuyard.facility.storage import StorageFit, StorageSizing
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table, Text, Words, picked
from gpuyard.specs import Cluster, Precision, Workload
from gpuyard.units import (
    format_byte_rate,
    format_bytes,
    format_number,
    format_seconds,
    format_share,
)


def storage_answer(
    sizing: StorageSizing,
    workload: Workload,
    cluster: Cluster,
    published: StorageNeed | None,
    precision: Precision,
) -> Answer:
    """The need, every way of the catalog against it, and the simplest that is enough."""
    columns = (
        *("option", Column("licence", 3), "units", "reads", Column("checkpoint", 2), "feeds up to"),
        *("enough", Column("basis", 1)),
    )
    parts: list[Part] = [
        _need(sizing, f"Storage for {workload.name} on {cluster.name}, {precision}"),
        Table("Ways to build it", columns, [_row(fit) for fit in sizing.fits]),
        Sentence(sizing.verdict),
    ]
    read = cluster.storage.read if cluster.storage is not None else None
    if read is not None:
        fed = _fed(sizing, read)
        parts.append(
            Sentence(
                f"The cluster's own storage reads {format_byte_rate(read)}: enough for"
                f" {'any number of' if fed is None else f'{fed:,}'} GPUs."
            )
        )
    if workload.dataset is None or workload.dataset.bytes_per_sample is None:
        parts.append(
            Sentence(
                "The workload does not say how many bytes of storage a sample takes; the size of its"
                " tensor is assumed. Give 'dataset: bytes_per_sample'.",
                "caution",
            )
        )
    if published is not None:
        parts.append(
            Sentence(
                f"MLPerf Storage has one {published.gpu} read"
                f" {format_byte_rate(published.read_bytes_per_second)} with {published.model}"
                f" ({published.record_bytes / 1e3:.0f} kB per record, {published.date})."
            )
        )
    named = {"workload": workload.name, "cluster": cluster.name, "precision": precision}
    own = {"cluster_storage": None if read is None else _own_document(sizing, read)}
    return Answer(parts, named | _document(sizing, published) | own)


def _need(sizing: StorageSizing, title: str) -> Table:
    need = sizing.request
    rows = [
        [
            "reads",
            format_byte_rate(need.read_bytes_per_second),
            f"{format_number(need.samples_per_second)} samples/s × {format_bytes(need.bytes_per_sample)}",
        ],
        ["reads of one GPU", format_byte_rate(need.read_bytes_per_second_per_gpu), ""],
        [
            "writes",
            format_byte_rate(need.write_bytes_per_second),
            f"a checkpoint of {format_bytes(need.checkpoint_bytes)} in"
            f" {format_seconds(need.checkpoint_seconds)}, {format_share(need.checkpoint_share)} of"
            " the time",
        ],
        ["capacity", format_bytes(need.capacity_bytes), need.held],
    ]
    return Table(f"{title}, {need.gpus:,} GPUs", ("need", "amount", "from"), rows)


def _row(fit: StorageFit) -> list[Words]:
    feeds = "any: each machine its own"
    if fit.largest_gpus is not None:
        machine = " per machine" if fit.option.kind == "local" else ""
        feeds = f"{fit.largest_gpus:,} GPUs{machine}"
    return [
        fit.option.id,
        fit.option.licence,
        f"{fit.units:,}" if fit.enough else f"{fit.units:,} (max {fit.option.most_units})",
        format_byte_rate(fit.read_bytes_per_second),
        "" if fit.checkpoint_seconds is None else format_seconds(fit.checkpoint_seconds),
        feeds,
        Text("yes", "good") if fit.enough else Text(fit.missing, "bad"),
        fit.option.basis,
    ]


def _fed(sizing: StorageSizing, read_bytes_per_second: float) -> int | None:
    each = sizing.request.read_bytes_per_second_per_gpu
    return int(read_bytes_per_second // each) if each else None


def _own_document(sizing: StorageSizing, read: float) -> dict[str, Any]:
    return {
        "read_bytes_per_second": read,
        "enough": read >= sizing.request.read_bytes_per_second,
        "largest_gpus": _fed(sizing, read),
    }


def _document(sizing: StorageSizing, published: StorageNeed | None) -> dict[str, Any]:
    need = sizing.request
    return {
        "gpus": need.gpus,
        "need": {
            **picked(need, "samples_per_second", "bytes_per_sample", "read_bytes_per_second"),
            **picked(need, "read_bytes_per_second_per_gpu", "write_bytes_per_second"),
            **picked(need, "checkpoint_bytes", "checkpoint_share", "capacity_bytes"),
        },
        "options": [
            {
                "option": fit.option.id,
                **picked(fit.option, "name", "licence", "basis", "unit"),
                **picked(fit, "units", "enough", "limit", "missing", "read_bytes_per_second"),
                **picked(fit, "checkpoint_seconds", "largest_gpus"),
            }
            for fit in sizing.fits
        ],
        "verdict": sizing.verdict,
        "published_read_bytes_per_second_per_gpu": (
            published.read_bytes_per_second if published else None
        ),
    }
