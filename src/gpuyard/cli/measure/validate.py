"""`gpuyard validate`: predictions against every published table that ships."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show, writable


def validate(
    *,
    table: Annotated[
        str | None, typer.Option(help="Only this published table.", metavar="NAME")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Also write an HTML page with a scatter plot of each table.", callback=writable
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compare predictions with every published table that ships, and print the errors.

    Each row is predicted from the one-GPU figure of its own table.

    Example: gpuyard validate --table pollux_t4
    """
    from gpuyard.predict.validation import report
    from gpuyard.report.answers.validation import validation_answer

    found = report(table)
    show(validation_answer(found), json_output=json_output, html=html)
