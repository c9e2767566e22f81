"""How one table of the catalog is shown: all rows, one row whole, or JSON."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.catalog.rows import RowChoice

if TYPE_CHECKING:
    from gpuyard.catalog import FactTable
    from gpuyard.report.answer import Answer, Part

Columns = dict[str, Callable[[Any], object]]
NameArgument = Annotated[str | None, typer.Argument(help="Show this row with all its columns.")]


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
