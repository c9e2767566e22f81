"""Readers of traces, one file a kind, and which of them a file is for."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.files import read_bytes
from gpuyard.jobs.simulate.trace import Trace
from gpuyard.jobs.simulate.traces.history import PHILLY, SACCT, read_philly, read_sacct
from gpuyard.jobs.simulate.traces.own import NEEDED, read_own
from gpuyard.jobs.simulate.traces.pollux import COLUMNS as POLLUX
from gpuyard.jobs.simulate.traces.pollux import BatchChoice, read_pollux
from gpuyard.jobs.simulate.traces.rows import MOST_BYTES
from gpuyard.specs import Cluster

TraceFormat = Literal["gpuyard", "pollux", "philly", "sacct"]
_COLUMNS: dict[TraceFormat, tuple[str, ...]] = {
    "gpuyard": NEEDED,
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
    """A trace of jobs; without a format its columns tell. `traces` and `batch` are for those of Pollux; on the cluster
    curves of gpuyard's own are predicted."""
    chosen = _named(format) if format else _guessed(path)
    if chosen == "pollux":
        trace = read_pollux(path, traces or path.parent, batch)
    elif traces is not None or batch != "user":
        raise UserMistake("--traces and --batch are for the format pollux")
    elif chosen == "gpuyard":
        trace = read_own(path, cluster)
    else:
        trace = _READERS[chosen](path)
    if not trace.jobs:
        raise UserMistake(f"{path}: there is no job in it")
    return trace


def _named(text: str) -> TraceFormat:
    for known in get_args(TraceFormat):
        if known == text:
            return known  # type: ignore[no-any-return]
    raise UnknownName("format", text, get_args(TraceFormat))


def _guessed(path: Path) -> TraceFormat:
    head = read_bytes(path, most_bytes=MOST_BYTES).partition(b"\n")[0][:10_000]
    line = head.decode("utf-8-sig", "replace").strip().lower()
    columns = set(line.split("|" if "|" in line else ","))
    for known, needed in _COLUMNS.items():
        if columns >= set(needed):
            return known
    kinds = "; ".join(f"{known}: {', '.join(needed)}" for known, needed in _COLUMNS.items())
    raise UserMistake(
        f"{path}:1: expected the names of a trace's columns, of one of these kinds: {kinds}"
    )


__all__ = ["BatchChoice", "TraceFormat", "read_trace"]
