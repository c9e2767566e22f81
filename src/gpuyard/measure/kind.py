"""A kind of result: how its records are listed, shown, and exported."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from gpuyard.measure.record import Cause, Record
from gpuyard.printable import format_csv, make_json_printable
from gpuyard.table import Table

AnyRecord = TypeVar("AnyRecord", bound=Record)

Content = Sequence[Table | str]
"""Tables and sentences, in reading order."""


class HistoryPoint(NamedTuple):
    """The metrics of a training run since the previous point."""

    step: int  # counted from the start of the run
    seconds: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class CsvLayout(Generic[AnyRecord]):
    """The CSV form of a record: the objects behind each of its rows, and a reader for each column."""

    list_rows: Callable[[AnyRecord], Iterable[tuple[Any, ...]]]
    columns: Mapping[str, Callable[..., object]]


def build_columns(
    names: str, *, parent: str = "", position: int = 0
) -> dict[str, Callable[..., object]]:
    """Build columns that are named like the attributes they read.

    `position` selects the object of a row, and `parent` an attribute of it that has the named attributes.
    """

    def build_reader(name: str) -> Callable[..., object]:
        read = attrgetter(f"{parent}.{name}" if parent else name)
        return lambda *row: read(row[position])

    return {name: build_reader(name) for name in names.split()}


@dataclass(frozen=True)
class ResultKind(Generic[AnyRecord]):
    """Everything that `gpuyard results` needs to know about one kind of result."""

    name: str
    record: type[AnyRecord]
    command: str
    """An example command that creates such a record."""
    build_table: Callable[[Sequence[AnyRecord]], Table]
    build_details: Callable[[AnyRecord], Content]
    csv_layout: CsvLayout[AnyRecord] | None = None
    list_history: Callable[[AnyRecord], Iterable[HistoryPoint]] | None = None
    """Lists a run's metrics over time, for experiment trackers."""
    has_workload: bool = False

    def to_csv(self, records: Iterable[AnyRecord]) -> str:
        """Format a header and the rows of all records; missing values are empty."""
        if self.csv_layout is None:
            raise ValueError(f"results of kind {self.name!r} cannot be written as CSV")
        rows = (
            [read(*row) for read in self.csv_layout.columns.values()]
            for record in records
            for row in self.csv_layout.list_rows(record)
        )
        return format_csv(self.csv_layout.columns, rows)


def to_json_lines(records: Iterable[Record]) -> str:
    """Format one JSON object per line, which `read_results` can read."""
    return "".join(make_json_printable(record.model_dump_json()) + "\n" for record in records)


def describe_causes(causes: Iterable[Cause]) -> Iterable[str]:
    """Describe each cause, with what to try."""
    return (f"- {cause.why}; try: {cause.next_step}" for cause in causes)
