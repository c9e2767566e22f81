"""A measurement as trackers of experiments see one: what was set, what came out, and how it went."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuyard.errors import UserMistake
from gpuyard.measure.kind import AnyRecord, CourseMoment, ResultKind
from gpuyard.printable import printable
from gpuyard.units import counted

_CONFIGURATION = {"gpus", "nodes", "workers", "batch_per_worker", "threads_per_worker"}
_LEFT_OUT = {"id", "created_at", "key"}


@dataclass(frozen=True)
class ExportedRun:
    """One measurement."""

    id: str
    kind: str
    workload: str
    started: float
    """This and the next in seconds since 1970."""
    ended: float
    facts: Mapping[str, str | int]
    """What was set, and where: the columns of CSV that are text or part of the configuration."""
    figures: Mapping[str, float]
    """What came out: those that are numbers."""
    moments: tuple[CourseMoment, ...]

    @property
    def name(self) -> str:
        workers = int(self.facts.get("workers", 1))
        batch = self.facts.get("batch_per_worker", "?")
        return f"{self.workload}, {counted(workers, 'worker')}, batch {batch}"


def exported_runs(kind: ResultKind[AnyRecord], records: Sequence[AnyRecord]) -> list[ExportedRun]:
    """In the order of the records; raises UserMistake where there is nothing to draw of such a kind."""
    if kind.flat is None or kind.course is None:
        raise UserMistake(
            f"results of kind {kind.name!r} are no training runs: export them as json or csv"
        )
    return [_exported(kind, record) for record in records]


def _exported(kind: ResultKind[AnyRecord], record: AnyRecord) -> ExportedRun:
    assert kind.flat is not None  # noqa: S101
    assert kind.course is not None  # noqa: S101
    facts: dict[str, str | int] = {}
    figures: dict[str, float] = {}
    about = next(iter(kind.flat.of(record)))
    for name, read in kind.flat.columns.items():
        value = read(*about)
        if name in _LEFT_OUT or value is None:
            continue
        if isinstance(value, str):
            if value:
                facts[name] = printable(value)
        elif name in _CONFIGURATION and isinstance(value, int):
            facts[name] = value
        elif isinstance(value, int | float) and math.isfinite(value):
            figures[name] = float(value)
    ended = datetime.fromisoformat(record.created_at).timestamp()
    moments = tuple(kind.course(record))
    started = ended - sum(moment.seconds for moment in moments)
    return ExportedRun(
        record.id,
        kind.name,
        printable(record.workload_name),
        started,
        ended,
        facts,
        figures,
        moments,
    )
