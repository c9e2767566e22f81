"""Tables of storage benches."""

from collections.abc import Sequence

from gpuyard.measure.kind import Content, ResultKind
from gpuyard.measure.storage.records import StorageBench
from gpuyard.table import Column, Table
from gpuyard.units import (
    format_byte_rate,
    format_bytes,
    format_count,
    format_number,
    format_seconds,
    format_share,
)

_CACHE_DESCRIPTIONS = {
    "direct": "page cache bypassed (O_DIRECT)",
    "dropped": "page cache dropped before each read (posix_fadvise)",
    "outgrown": "dataset at least 5 × memory",
    "none": "page cache not bypassed",
}


def _build_benches_table(benches: Sequence[StorageBench]) -> Table:
    columns = (
        "id",
        Column("created (UTC)", 2),
        "path",
        Column("file system", 3),
        Column("model", 1),
        "GPU",
        "requested",
    )
    return Table(
        "Storage benches",
        [*columns, "maximum", "verdict"],
        [
            [
                bench.id,
                bench.created_minute,
                bench.path,
                bench.filesystem,
                bench.model,
                bench.gpu,
                str(bench.requested_gpus),
                "" if bench.max_gpus is None else str(bench.max_gpus),
                bench.verdict,
            ]
            for bench in benches
        ],
    )


def _build_details(bench: StorageBench) -> Content:
    trials = Table(
        f"{bench.model} on {bench.gpu}, {bench.batch} samples of "
        f"{format_bytes(bench.record_bytes)} in {format_seconds(bench.compute_seconds)}",
        ["GPUs", "utilization", "samples/s", "read", ""],
        [
            [
                str(trial.gpus),
                format_share(trial.utilization),
                format_number(trial.samples_per_second),
                format_byte_rate(trial.bytes_per_second),
                "passes" if trial.passed else "starves",
            ]
            for trial in bench.trials
        ],
    )
    origin = "written for this bench and removed again" if bench.own_dataset else "not changed"
    return [
        *([trials] if bench.trials else []),
        f"{bench.filesystem}, a dataset of {format_bytes(bench.dataset_bytes)}, {origin}; "
        f"{_CACHE_DESCRIPTIONS[bench.cache]}.",
        _describe_verdict(bench),
    ]


def _describe_verdict(bench: StorageBench) -> str:
    if bench.verdict == "refused":
        return f"No verdict: {bench.reason}."
    keeps = "keeps" if bench.verdict == "passes" else "does not keep"
    return (
        f"This storage {keeps} {format_count(bench.requested_gpus, 'GPU')} busy; the maximum that passed "
        f"is {bench.max_gpus}."
    )


STORAGE = ResultKind(
    "storage",
    StorageBench,
    command="gpuyard bench storage .",
    build_table=_build_benches_table,
    build_details=_build_details,
)
