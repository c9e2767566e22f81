"""How one table of the catalog is shown: all rows or those that are asked for, in which order; one row whole, or JSON."""

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
    typer.Option(
        "--gpu", metavar="ID", help="Rows of this GPU, or of all whose name contains this."
    ),
]
CloudFilter = Annotated[str | None, typer.Option("--cloud", help="Rows of this cloud.")]
SortOption = Annotated[
    str | None, typer.Option("--sort", metavar="COLUMN", help="Sort by a column, smallest first.")
]
DescendingOption = Annotated[
    bool, typer.Option("--descending", help="Sort the other way round: largest first.")
]
_NUMBER = re.compile(r"-?[\d,]*\.?\d+")
Columns = dict[str, Callable[[Any], object]]
NameArgument = Annotated[str | None, typer.Argument(help="Show this row with all its columns.")]


def _gigabytes(given: str) -> float:
    """ "80", "80 GB" or "80 GiB": of memory they are called the same."""
    found = _MEMORY.fullmatch(given.strip())
    if found is None:
        raise typer.BadParameter(f"expected GB of memory, like 80 or '80 GB', got {given!r}")
    return float(found[1])


MemoryFilter = Annotated[
    float | None,
    typer.Option(
        "--min-memory",
        metavar="GB",
        parser=_gigabytes,
        help="Rows of GPUs with at least this much memory.",
    ),
]


@dataclass(frozen=True)
class RowChoice:
    """What was asked for on the command line; a table without such a column is a mistake."""

    gpu: str | None = None
    cloud: str | None = None
    min_memory_gb: float | None = None
    sort: str | None = None
    descending: bool = False

    def of(self, view: "View") -> list[Any]:
        """The rows of a view that are wanted, in order."""
        rows = list(view.table)
        if self.gpu is not None:
            wanted = gpus_named(self.gpu)
            read = _reader(view.gpu, "--gpu", "GPU", view)
            rows = [row for row in rows if read(row) in wanted]
        if self.cloud is not None:
            read = _reader(view.cloud, "--cloud", "cloud", view)
            clouds = {name for row in rows if (name := read(row))}
            if self.cloud not in clouds:
                raise UnknownName(f"cloud in {view.called}", self.cloud, clouds)
            rows = [row for row in rows if read(row) == self.cloud]
        if self.min_memory_gb is not None:
            read = _reader(view.gpu, "--min-memory", "GPU", view)
            rows = [row for row in rows if _memory_gb(read(row)) >= self.min_memory_gb]
        return rows if self.sort is None else self._sorted(rows, view)

    def sorted_by(self, view: "View") -> str | None:
        """The column's name as it is shown."""
        if self.sort is None:
            return None
        head = {_plain(name): name for name in view.columns}.get(_plain(self.sort))
        if head is None:
            raise UnknownName(f"column of {view.called}", self.sort, view.columns)
        return head

    def _sorted(self, rows: Sequence[Any], view: "View") -> list[Any]:
        cell = view.columns[self.sorted_by(view) or ""]
        known = [row for row in rows if str(_or_empty(cell(row)))]
        empty = [row for row in rows if not str(_or_empty(cell(row)))]
        return [
            *sorted(known, key=lambda row: _order(cell(row)), reverse=self.descending),
            *empty,
        ]


def gpus_named(part: str) -> frozenset[str]:
    """The catalog's GPUs whose id has this in it; at least one."""
    from gpuyard.catalog import gpus

    found = frozenset(name for name in gpus().ids() if part.lower() in name)
    if not found:
        raise UnknownName("GPU", part, gpus().ids())
    return found


def _reader(
    read: Callable[[Any], str | None] | None, option: str, what: str, view: "View"
) -> Callable[[Any], str | None]:
    if read is None:
        raise UserMistake(f"{option}: {view.called} has no column of {what}s to choose by")
    return read


def _memory_gb(gpu: str | None) -> float:
    from gpuyard.catalog import gpus

    return gpus().get(gpu).memory_gb if gpu is not None and gpu in gpus() else 0.0


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9/%$]", "", name.lower())


def _or_empty(cell: object) -> object:
    return "" if cell is None else cell


def _order(cell: object) -> tuple[int, float, list[tuple[int, float, str]]]:
    """Numbers by their value, then words, in which numbers count as such."""
    text = str(_or_empty(cell))
    if _NUMBER.fullmatch(text):
        return 0, float(text.replace(",", "")), []
    parts = re.split(r"(\d+(?:\.\d+)?)", text.lower())
    return 1, 0.0, [(1, float(p), "") if p[:1].isdigit() else (0, 0.0, p) for p in parts]


@dataclass(frozen=True)
class View:
    """A table with what its columns say of a row; where the terminal is narrow, the `least` go first."""

    title: str
    table: "FactTable[Any]"
    columns: Columns
    least: Sequence[str] = ()
    more: Callable[[Any], dict[str, object]] = lambda _: {}
    """What is known of a row besides its own facts."""
    gpu: Callable[[Any], str | None] | None = None
    """A row's GPU, where the table is about GPUs."""
    cloud: Callable[[Any], str | None] | None = None

    @property
    def called(self) -> str:
        """In a sentence: "the link table"."""
        return f"the {self.table.kind} table"

    def answer(self, name: str | None, choice: RowChoice) -> "Answer":
        """All rows that are wanted, or the row of this name."""
        from gpuyard.report.answer import Answer, Column, Table
        from gpuyard.table import ALWAYS

        if name is not None:
            document = self._document(self.table.get(name))
            return Answer(_whole(document), document)
        drop = {column: len(self.least) - i for i, column in enumerate(self.least)}
        facts = choice.of(self)
        if (sorted_by := choice.sorted_by(self)) is not None:
            drop[sorted_by] = ALWAYS  # in whose order the rows are is always seen
        rows = [
            ["" if (cell := read(fact)) is None else str(cell) for read in self.columns.values()]
            for fact in facts
        ]
        shown = Table(
            f"{self.title}: {len(rows)}", [Column(c, drop.get(c, 0)) for c in self.columns], rows
        )
        return Answer([shown], [self._document(fact) for fact in facts])

    def _document(self, fact: Any) -> dict[str, Any]:
        document: dict[str, Any] = fact.model_dump(mode="json")
        return document | self.more(fact)


def _whole(document: dict[str, Any]) -> "list[Part]":
    """Everything that is known of one row; what has rows of its own is a table below it."""
    from gpuyard.report.answer import DefinitionList, Part, Table

    known = {key: value for key, value in document.items() if value not in (None, "")}
    below = {k: v for k, v in known.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
    parts: list[Part] = [
        DefinitionList([(key, _shown(value)) for key, value in known.items() if key not in below])
    ]
    for key, rows in below.items():
        cells = [[_shown(value) for value in row.values()] for row in rows]
        parts.append(Table(key, list(rows[0]), cells))
    return parts


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 10_000 else f"{value:.6g}"
    # a year has no comma
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
