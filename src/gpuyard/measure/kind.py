"""A kind of results: how its records are listed, shown and exported."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from gpuyard.measure.record import Cause, Record
from gpuyard.printable import csv_text, printable_json
from gpuyard.table import Table

AnyRecord = TypeVar("AnyRecord", bound=Record)


Shown = Sequence[Table | str]
"""Tables and sentences, in the order in which they are read."""


class CourseMoment(NamedTuple):
    """How a training went until then, since the moment before."""

    step: int
    """Of the whole run."""
    seconds: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class FlatRows(Generic[AnyRecord]):
    """How a record is written as CSV: what its rows are about, and a column's value for each."""

    of: Callable[[AnyRecord], Iterable[tuple[Any, ...]]]
    columns: Mapping[str, Callable[..., object]]


def columns_of(names: str, *, at: str = "", about: int = 0) -> dict[str, Callable[..., object]]:
    """Columns that are called as the attributes are, of which part of what a row is about."""

    def reader(name: str) -> Callable[..., object]:
        read = attrgetter(f"{at}.{name}" if at else name)
        return lambda *row: read(row[about])

    return {name: reader(name) for name in names.split()}


@dataclass(frozen=True)
class ResultKind(Generic[AnyRecord]):
    """One kind of results: all that `gpuyard results` has to know about it."""

    name: str
    record: type[AnyRecord]
    made_by: str
    """The command that makes one."""
    listing: Callable[[Sequence[AnyRecord]], Table]
    show: Callable[[AnyRecord], Shown]
    flat: FlatRows[AnyRecord] | None = None
    course: Callable[[AnyRecord], Iterable[CourseMoment]] | None = None
    """How it went, for what draws training runs."""
    of_workloads: bool = False

    def to_csv(self, records: Iterable[AnyRecord]) -> str:
        """A header and its rows; what is not there is empty."""
        if self.flat is None:
            raise ValueError(f"{self.name} has no flat rows")
        rows = (
            [read(*about) for read in self.flat.columns.values()]
            for record in records
            for about in self.flat.of(record)
        )
        return csv_text(self.flat.columns, rows)


def to_json_lines(records: Iterable[Record]) -> str:
    """One JSON object a line, which `read_results` reads back."""
    return "".join(printable_json(record.model_dump_json()) + "\n" for record in records)


def cause_sentences(causes: Iterable[Cause]) -> Iterable[str]:
    """Each with what to try."""
    return (f"- {cause.why}; try: {cause.next_step}" for cause in causes)
