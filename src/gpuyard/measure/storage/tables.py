"""Benches of storage as tables."""

from collections.abc import Sequence

from gpuyard.measure.kind import ResultKind, Shown
from gpuyard.measure.storage.records import StorageBench
from gpuyard.table import Column, Table
from gpuyard.units import (
    counted,
    format_byte_rate,
    format_bytes,
    format_number,
    format_seconds,
    format_share,
)

_CACHE_WORDS = {
    "direct": "page cache bypassed (O_DIRECT)",
    "dropped": "page cache dropped before each read (posix_fadvise)",
    "outgrown": "data set at least 5 × memory",
    "none": "page cache in the way",
}


def _listing(benches: Sequence[StorageBench]) -> Table:
    columns = (
        "id",
        Column("made (UTC)", 2),
        "path",
        Column("file system", 3),
        Column("model", 1),
        "GPU",
        "asked",
    )
    return Table(
        "Benches of storage",
        [*columns, "most", "verdict"],
        [
            [
                bench.id,
                bench.made,
                bench.path,
                bench.filesystem,
                bench.model,
                bench.gpu,
                str(bench.asked_gpus),
                "" if bench.most_gpus is None else str(bench.most_gpus),
                bench.verdict,
            ]
            for bench in benches
        ],
    )


def _show(bench: StorageBench) -> Shown:
    """Every trial, and the verdict."""
    trials = Table(
        f"{bench.model} on {bench.gpu}, {bench.batch} samples of "
        f"{format_bytes(bench.record_bytes)} in {format_seconds(bench.compute_seconds)}",
        ["GPUs", "utilization", "samples/s", "read", ""],
        [
            [
                str(trial.gpus),
                format_share(trial.utilisation),
                format_number(trial.samples_per_second),
                format_byte_rate(trial.bytes_per_second),
                "passes" if trial.passed else "starves",
            ]
            for trial in bench.trials
        ],
    )
    made = "written for this bench and removed again" if bench.own_dataset else "as found"
    return [
        *([trials] if bench.trials else []),
        f"{bench.filesystem}, a data set of {format_bytes(bench.dataset_bytes)}, {made}; "
        f"{_CACHE_WORDS[bench.cache]}.",
        _verdict(bench),
    ]


def _verdict(bench: StorageBench) -> str:
    if bench.verdict == "refused":
        return f"No verdict: {bench.reason}."
    does = "keeps" if bench.verdict == "passes" else "does not keep"
    return (
        f"This storage {does} {counted(bench.asked_gpus, 'GPU')} busy; the most that passed is "
        f"{bench.most_gpus}."
    )


STORAGE = ResultKind(
    "storage", StorageBench, made_by="gpuyard bench storage .", listing=_listing, show=_show
)
