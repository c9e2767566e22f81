"""`gpuyard validate`: compare predictions with every published table that ships with gpuyard."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.completion import complete_tables
from gpuyard.cli.output import JsonOption, check_output_file, show


def validate(
    *,
    table: Annotated[
        str | None,
        typer.Option(
            help="Only this published table.", metavar="NAME", autocompletion=complete_tables
        ),
    ] = None,
    points: Annotated[
        str | None,
        typer.Option(
            help="Also show what this many measured multi-GPU figures are worth, e.g. 0,1,2.",
            metavar="N,N,…",
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="CSV table of large-model runs to judge instead.",
            metavar="FILE",
        ),
    ] = None,
    memory: Annotated[
        Path | None,
        typer.Option(help="With --rows: CSV table of measured GPU memory.", metavar="FILE"),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Also write an HTML page with a scatter plot of each table.",
            callback=check_output_file,
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compare predictions with every published table that ships, and print the errors.

    Each row is predicted from the one-GPU figure of its own table.

    Example: gpuyard validate --table pollux_t4 --points 0,1,2

    Example: gpuyard validate --rows my-runs.csv --json
    """
    from gpuyard.api.validation import validate as compare

    result = compare(table, points or (), rows=rows, memory=memory)
    show(result.answer, json_output=json_output, html=html)
