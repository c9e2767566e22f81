"""The answer for storage sizing: the needs of a workload, and the options in the catalog."""

from typing import Any

from gpuyard.catalog.fabric import StorageNeed
from gpuyard.facilities.storage import StorageFit, StorageSizing
from gpuyard.report.answer import (
    Answer,
    Column,
    Part,
    Sentence,
    StyledText,
    Table,
    Text,
    select_attrs,
)
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
    """Return the needs, every option in the catalog, and the simplest one that is enough."""
    columns = (
        *("option", Column("license", 3), "units", "reads", Column("checkpoint", 2), "feeds up to"),
        *("enough", Column("basis", 1)),
    )
    parts: list[Part] = [
        _need_table(sizing, f"Storage for {workload.name} on {cluster.name}, {precision}"),
        Table("Storage options", columns, [_format_fit(fit) for fit in sizing.fits]),
        Sentence(sizing.verdict),
    ]
    read = cluster.storage.read if cluster.storage is not None else None
    if read is not None:
        gpus = _count_fed_gpus(sizing, read)
        parts.append(
            Sentence(
                f"The cluster's own storage reads {format_byte_rate(read)}: enough for"
                f" {'any number of' if gpus is None else f'{gpus:,}'} GPUs."
            )
        )
    if workload.dataset is None or workload.dataset.bytes_per_sample is None:
        parts.append(
            Sentence(
                "The workload does not set the bytes per sample in storage, so the size of the tensor is"
                " assumed. Set 'dataset: bytes_per_sample'.",
                "caution",
            )
        )
    if published is not None:
        parts.append(
            Sentence(
                f"In MLPerf Storage, one {published.gpu} reads"
                f" {format_byte_rate(published.read_bytes_per_second)} with {published.model}"
                f" ({published.record_bytes / 1e3:.0f} kB per record, {published.date})."
            )
        )
    names = {"workload": workload.name, "cluster": cluster.name, "precision": precision}
    cluster_storage = None if read is None else _cluster_storage_document(sizing, read)
    document = names | _document(sizing, published) | {"cluster_storage": cluster_storage}
    return Answer(parts, document, rows="options")


def _need_table(sizing: StorageSizing, title: str) -> Table:
    need = sizing.request
    rows = [
        [
            "reads",
            format_byte_rate(need.read_bytes_per_second),
            f"{format_number(need.samples_per_second)} samples/s × {format_bytes(need.bytes_per_sample)}",
        ],
        ["reads per GPU", format_byte_rate(need.read_bytes_per_second_per_gpu), ""],
        [
            "writes",
            format_byte_rate(need.write_bytes_per_second),
            f"a checkpoint of {format_bytes(need.checkpoint_bytes)} in"
            f" {format_seconds(need.checkpoint_seconds)}, {format_share(need.checkpoint_share)} of"
            " the time",
        ],
        ["capacity", format_bytes(need.capacity_bytes), need.capacity_purpose],
    ]
    return Table(f"{title}, {need.gpus:,} GPUs", ("need", "amount", "from"), rows)


def _format_fit(fit: StorageFit) -> list[StyledText]:
    feeds = "any: each machine feeds its own"
    if fit.largest_gpus is not None:
        per_machine = " per machine" if fit.option.kind == "local" else ""
        feeds = f"{fit.largest_gpus:,} GPUs{per_machine}"
    return [
        fit.option.id,
        fit.option.license,
        f"{fit.units:,}" if fit.enough else f"{fit.units:,} (max {fit.option.max_units})",
        format_byte_rate(fit.read_bytes_per_second),
        "" if fit.checkpoint_seconds is None else format_seconds(fit.checkpoint_seconds),
        feeds,
        Text("yes", "good") if fit.enough else Text(fit.missing, "bad"),
        fit.option.basis,
    ]


def _count_fed_gpus(sizing: StorageSizing, read_bytes_per_second: float) -> int | None:
    per_gpu = sizing.request.read_bytes_per_second_per_gpu
    return int(read_bytes_per_second // per_gpu) if per_gpu else None


def _cluster_storage_document(sizing: StorageSizing, read: float) -> dict[str, Any]:
    return {
        "read_bytes_per_second": read,
        "enough": read >= sizing.request.read_bytes_per_second,
        "largest_gpus": _count_fed_gpus(sizing, read),
    }


def _document(sizing: StorageSizing, published: StorageNeed | None) -> dict[str, Any]:
    need = sizing.request
    return {
        "gpus": need.gpus,
        "need": {
            **select_attrs(need, "samples_per_second", "bytes_per_sample", "read_bytes_per_second"),
            **select_attrs(need, "read_bytes_per_second_per_gpu", "write_bytes_per_second"),
            **select_attrs(need, "checkpoint_bytes", "checkpoint_share", "capacity_bytes"),
        },
        "options": [
            {
                "option": fit.option.id,
                **select_attrs(fit.option, "name", "license", "basis", "unit"),
                **select_attrs(fit, "units", "enough", "limit", "missing", "read_bytes_per_second"),
                **select_attrs(fit, "checkpoint_seconds", "largest_gpus"),
            }
            for fit in sizing.fits
        ],
        "verdict": sizing.verdict,
        "published_read_bytes_per_second_per_gpu": (
            published.read_bytes_per_second if published else None
        ),
    }
