"""Show a catalog table: filtered and sorted rows, one row with all columns, or JSON."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuyard.errors import UnknownName

if TYPE_CHECKING:
    from gpuyard.catalog import FactTable
    from gpuyard.report.answer import Answer, Part


_NUMBER = re.compile(r"-?[\d,]*\.?\d+")
Columns = dict[str, Callable[[Any], object]]


@dataclass(frozen=True)
class RowFilter:
    """The filter and order from the command line; a filter applies to tables with its column."""

    gpu: str | None = None
    cloud: str | None = None
    min_memory: float | None = None  # GB
    sort: str | None = None
    descending: bool = False

    def select_rows(self, view: "View") -> list[Any]:
        """Return the matching rows of a view in order."""
        rows = list(view.table)
        if self.gpu is not None and view.gpu is not None:
            from gpuyard.api.gpu_ranking import find_gpus

            gpus = find_gpus(self.gpu)
            rows = [row for row in rows if view.gpu(row) in gpus]
        if self.cloud is not None and view.cloud is not None:
            clouds = {name for row in rows if (name := view.cloud(row))}
            if self.cloud not in clouds:
                raise UnknownName(f"cloud in {view.label}", self.cloud, clouds)
            rows = [row for row in rows if view.cloud(row) == self.cloud]
        if self.min_memory is not None and view.gpu is not None:
            rows = [row for row in rows if _get_memory_gb(view.gpu(row)) >= self.min_memory]
        return rows if self.sort is None else self._sort(rows, view)

    def find_sort_column(self, view: "View") -> str | None:
        """Return the heading of the column to sort by."""
        if self.sort is None:
            return None
        headings = {_normalize_heading(name): name for name in view.columns}
        heading = headings.get(_normalize_heading(self.sort))
        if heading is None:
            raise UnknownName(f"column of {view.label}", self.sort, view.columns)
        return heading

    def _sort(self, rows: Sequence[Any], view: "View") -> list[Any]:
        get_cell = view.columns[self.find_sort_column(view) or ""]
        filled = [row for row in rows if _format_cell(get_cell(row))]
        empty = [row for row in rows if not _format_cell(get_cell(row))]
        return [
            *sorted(filled, key=lambda row: _get_sort_key(get_cell(row)), reverse=self.descending),
            *empty,
        ]


def _get_memory_gb(gpu: str | None) -> float:
    from gpuyard.catalog import gpus

    return gpus().get(gpu).memory_gb if gpu is not None and gpu in gpus() else 0.0


def _normalize_heading(name: str) -> str:
    return re.sub(r"[^a-z0-9/%$]", "", name.lower())


def _format_cell(cell: object) -> str:
    return "" if cell is None else str(cell)


def _get_sort_key(cell: object) -> tuple[int, float, list[tuple[int, float, str]]]:
    """Sort numbers by value, and then texts, in which numbers also sort by value."""
    text = _format_cell(cell)
    if _NUMBER.fullmatch(text):
        return 0, float(text.replace(",", "")), []
    parts = re.split(r"(\d+(?:\.\d+)?)", text.lower())
    return 1, 0.0, [(1, float(p), "") if p[:1].isdigit() else (0, 0.0, p) for p in parts]


@dataclass(frozen=True)
class View:
    """A catalog table and its columns; in a narrow terminal, the columns in `drop_first` are left out in order."""

    title: str
    table: "FactTable[Any]"
    columns: Columns
    drop_first: Sequence[str] = ()
    more: Callable[[Any], dict[str, object]] = lambda _: {}
    """Returns additional JSON keys of a row."""
    gpu: Callable[[Any], str | None] | None = None
    """Returns the GPU of a row, if the table has GPUs."""
    cloud: Callable[[Any], str | None] | None = None
    """Returns the cloud of a row, if the table has clouds."""

    @property
    def label(self) -> str:
        """The table's name in a sentence: "the link table"."""
        return f"the {self.table.kind} table"

    def answer(self, name: str | None, row_filter: RowFilter) -> "Answer":
        """Return the row with this name, or all rows that match the filter."""
        from gpuyard.report.answer import Answer, Column, Table
        from gpuyard.table import ALWAYS

        if name is not None:
            document = self._build_document(self.table.get(name))
            return Answer(_format_row(document), document)
        drop = {column: len(self.drop_first) - i for i, column in enumerate(self.drop_first)}
        facts = row_filter.select_rows(self)
        if (sort_column := row_filter.find_sort_column(self)) is not None:
            drop[sort_column] = ALWAYS
        rows = [
            [_format_cell(get_cell(fact)) for get_cell in self.columns.values()] for fact in facts
        ]
        columns = [Column(name, drop.get(name, 0)) for name in self.columns]
        table = Table(f"{self.title}: {len(rows)}", columns, rows)
        return Answer([table], [self._build_document(fact) for fact in facts])

    def _build_document(self, fact: Any) -> dict[str, Any]:
        document: dict[str, Any] = fact.document()
        return document | self.more(fact)


def _format_row(document: dict[str, Any]) -> "list[Part]":
    """List all facts of a row; a fact with its own rows becomes a table below the list."""
    from gpuyard.report.answer import DefinitionList, Part, Table

    facts = {key: value for key, value in document.items() if value not in (None, "")}
    tables = {
        k: v for k, v in facts.items() if isinstance(v, list) and v and isinstance(v[0], dict)
    }
    parts: list[Part] = [
        DefinitionList(
            [(key, _format_value(value)) for key, value in facts.items() if key not in tables]
        )
    ]
    for key, rows in tables.items():
        cells = [[_format_value(value) for value in row.values()] for row in rows]
        parts.append(Table(key, list(rows[0]), cells))
    return parts


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(
            f"{key} {_format_value(item)}" for key, item in value.items() if item is not None
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 10_000 else f"{value:.6g}"
    # a year has no comma
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
