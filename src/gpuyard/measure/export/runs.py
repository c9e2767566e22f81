"""Represents a measurement the way experiment trackers do: parameters, metrics, and their history."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuyard.errors import UserMistake
from gpuyard.measure.kind import AnyRecord, HistoryPoint, ResultKind
from gpuyard.printable import make_printable
from gpuyard.units import format_count

_NUMERIC_PARAMETERS = {"gpus", "nodes", "workers", "batch_per_worker", "threads_per_worker"}
_OMITTED_COLUMNS = {"id", "created_at", "key"}


@dataclass(frozen=True)
class ExportedRun:
    """A measurement in the terms of an experiment tracker."""

    id: str
    kind: str
    workload: str
    started: float
    """Start of the run in seconds since 1970."""
    ended: float
    """End of the run in seconds since 1970."""
    parameters: Mapping[str, str | int]
    """The configuration: CSV columns that hold text or a count such as the number of GPUs."""
    metrics: Mapping[str, float]
    """The results: all other numeric CSV columns."""
    history: tuple[HistoryPoint, ...]

    @property
    def name(self) -> str:
        workers = int(self.parameters.get("workers", 1))
        batch = self.parameters.get("batch_per_worker", "?")
        return f"{self.workload}, {format_count(workers, 'worker')}, batch {batch}"


def build_exported_runs(
    kind: ResultKind[AnyRecord], records: Sequence[AnyRecord]
) -> list[ExportedRun]:
    """Convert records in their order; raise UserMistake if records of this kind are not training runs."""
    if kind.csv_layout is None or kind.list_history is None:
        raise UserMistake(
            f"results of kind {kind.name!r} are not training runs; export them with --as json or csv"
        )
    return [_build_exported_run(kind, record) for record in records]


def _build_exported_run(kind: ResultKind[AnyRecord], record: AnyRecord) -> ExportedRun:
    assert kind.csv_layout is not None  # noqa: S101
    assert kind.list_history is not None  # noqa: S101
    parameters: dict[str, str | int] = {}
    metrics: dict[str, float] = {}
    row = next(iter(kind.csv_layout.list_rows(record)))
    for name, read in kind.csv_layout.columns.items():
        value = read(*row)
        if name in _OMITTED_COLUMNS or value is None:
            continue
        if isinstance(value, str):
            if value:
                parameters[name] = make_printable(value)
        elif name in _NUMERIC_PARAMETERS and isinstance(value, int):
            parameters[name] = value
        elif isinstance(value, int | float) and math.isfinite(value):
            metrics[name] = float(value)
    ended = datetime.fromisoformat(record.created_at).timestamp()
    history = tuple(kind.list_history(record))
    return ExportedRun(
        id=record.id,
        kind=kind.name,
        workload=make_printable(record.workload_name),
        started=ended - sum(moment.seconds for moment in history),
        ended=ended,
        parameters=parameters,
        metrics=metrics,
        history=history,
    )
