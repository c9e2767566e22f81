"""Show a catalog table: filtered and sorted rows, one row with all columns, or JSON."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.errors import UnknownName, UserMistake

if TYPE_CHECKING:
    from gpuyard.catalog import FactTable
    from gpuyard.report.answer import Answer, Part


_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(?:Gi?B?)?", re.IGNORECASE)
GpuFilter = Annotated[
    str | None,
    typer.Option("--gpu", metavar="ID", help="GPU of the rows, or a part of its name."),
]
CloudFilter = Annotated[str | None, typer.Option("--cloud", help="Cloud of the rows.")]
SortOption = Annotated[
    str | None, typer.Option("--sort", metavar="COLUMN", help="Column to sort by, smallest first.")
]
DescendingOption = Annotated[
    bool, typer.Option("--descending", help="Sort in reverse: largest first.")
]
_NUMBER = re.compile(r"-?[\d,]*\.?\d+")
Columns = dict[str, Callable[[Any], object]]
NameArgument = Annotated[str | None, typer.Argument(help="Row to show with all columns.")]


def _parse_gigabytes(text: str) -> float:
    """Parse "80", "80 GB", or "80 GiB", which mean the same for GPU memory."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"expected GB of memory, like 80 or '80 GB', got {text!r}")
    return float(match[1])


MemoryFilter = Annotated[
    float | None,
    typer.Option(
        "--min-memory",
        metavar="GB",
        parser=_parse_gigabytes,
        help="Minimum memory of the rows' GPUs.",
    ),
]


@dataclass(frozen=True)
class RowFilter:
    """The filter and order from the command line; a table that lacks the column is a user's mistake."""

    gpu: str | None = None
    cloud: str | None = None
    min_memory_gb: float | None = None
    sort: str | None = None
    descending: bool = False

    def select_rows(self, view: "View") -> list[Any]:
        """Return the matching rows of a view in order."""
        rows = list(view.table)
        if self.gpu is not None:
            gpus = find_gpus(self.gpu)
            get_gpu = _require_column(view.gpu, "--gpu", "GPU", view)
            rows = [row for row in rows if get_gpu(row) in gpus]
        if self.cloud is not None:
            get_cloud = _require_column(view.cloud, "--cloud", "cloud", view)
            clouds = {name for row in rows if (name := get_cloud(row))}
            if self.cloud not in clouds:
                raise UnknownName(f"cloud in {view.label}", self.cloud, clouds)
            rows = [row for row in rows if get_cloud(row) == self.cloud]
        if self.min_memory_gb is not None:
            get_gpu = _require_column(view.gpu, "--min-memory", "GPU", view)
            rows = [row for row in rows if _get_memory_gb(get_gpu(row)) >= self.min_memory_gb]
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


def find_gpus(part: str) -> frozenset[str]:
    """Return the ids of the catalog's GPUs that contain this text; there must be at least one."""
    from gpuyard.catalog import gpus

    matches = frozenset(name for name in gpus().ids() if part.lower() in name)
    if not matches:
        raise UnknownName("GPU", part, gpus().ids())
    return matches


def _require_column(
    get_value: Callable[[Any], str | None] | None, option: str, name: str, view: "View"
) -> Callable[[Any], str | None]:
    if get_value is None:
        raise UserMistake(f"{option}: {view.label} has no {name} column")
    return get_value


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
