"""How one table of the catalog is shown: all rows, one row whole, or JSON."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.options import console, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.catalog import Table
    from gpuyard.catalog.tables import Fact

NameArgument = Annotated[str | None, typer.Argument(help="Show one row, whole.")]
Columns = dict[str, Callable[[Any], object]]


def show(
    table: "Table[Any]", name: str | None, columns: Columns, json_output: bool, title: str
) -> None:
    """Print the table, or the row of this name."""
    facts: Sequence[Fact] = [table.get(name)] if name else list(table)
    if json_output:
        rows = [fact.model_dump(mode="json") for fact in facts]
        print_json(rows[0] if name else rows)
    elif name:
        _show_one(facts[0])
    else:
        cells = [
            ["" if (v := read(f)) is None else str(v) for read in columns.values()] for f in facts
        ]
        print_table(f"{title}: {len(facts)}", list(columns), cells)


def _show_one(fact: "Fact") -> None:
    from rich.markup import escape

    out = console()
    for key, value in fact.model_dump(mode="json").items():
        if value is None or value == "":
            continue
        if isinstance(value, list):
            out.print(f"[bold]{key}[/]")
            for item in value:
                out.print(f"  {escape(_shown(item))}", highlight=False)
        else:
            out.print(f"[bold]{key}[/]  {escape(_shown(value))}", highlight=False)


def _shown(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{k} {v:,}" if isinstance(v, int) else str(v) for k, v in value.items())
