"""Read traces of jobs: one reader per format, chosen by name or by the file's columns."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.files import read_bytes
from gpuyard.jobs.simulate.trace import Trace
from gpuyard.jobs.simulate.traces.csv_rows import MAX_BYTES
from gpuyard.jobs.simulate.traces.gpuyard_csv import REQUIRED, read_gpuyard_csv
from gpuyard.jobs.simulate.traces.history import PHILLY, SACCT, read_philly, read_sacct
from gpuyard.jobs.simulate.traces.pollux import COLUMNS as POLLUX
from gpuyard.jobs.simulate.traces.pollux import BatchChoice, read_pollux
from gpuyard.specs import Cluster

TraceFormat = Literal["gpuyard", "pollux", "philly", "sacct"]
_COLUMNS: dict[TraceFormat, tuple[str, ...]] = {
    "gpuyard": REQUIRED,
    "pollux": POLLUX,
    "philly": PHILLY,
    "sacct": SACCT,
}
_READERS: dict[TraceFormat, Callable[[Path], Trace]] = {
    "philly": read_philly,
    "sacct": read_sacct,
}


def read_trace(
    path: Path,
    format: str | None = None,
    traces: Path | None = None,
    batch: BatchChoice = "user",
    cluster: Cluster | None = None,
) -> Trace:
    """Read a trace of jobs; without a format, the file's columns decide.

    `traces` and `batch` are for Pollux traces. Curves that name a workload are predicted on the `cluster`.
    """
    chosen = _parse_format(format) if format else _detect_format(path)
    if chosen == "pollux":
        trace = read_pollux(path, traces or path.parent, batch)
    elif traces is not None or batch != "user":
        raise UserMistake("--traces and --batch are only for --format pollux")
    elif chosen == "gpuyard":
        trace = read_gpuyard_csv(path, cluster)
    else:
        trace = _READERS[chosen](path)
    if not trace.jobs:
        raise UserMistake(f"{path}: no job found in the file")
    return trace


def _parse_format(text: str) -> TraceFormat:
    for name in get_args(TraceFormat):
        if name == text:
            return name  # type: ignore[no-any-return]
    raise UnknownName("format", text, get_args(TraceFormat))


def _detect_format(path: Path) -> TraceFormat:
    head = read_bytes(path, max_bytes=MAX_BYTES).partition(b"\n")[0][:10_000]
    line = head.decode("utf-8-sig", "replace").strip().lower()
    columns = set(line.split("|" if "|" in line else ","))
    for name, required in _COLUMNS.items():
        if columns >= set(required):
            return name
    formats = "; ".join(f"{name}: {', '.join(required)}" for name, required in _COLUMNS.items())
    raise UserMistake(f"{path}:1: expected the column names of one of these formats: {formats}")


__all__ = ["BatchChoice", "TraceFormat", "read_trace"]
