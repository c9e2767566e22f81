"""`gpuyard validate`: predictions against every published table that ships."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show, writable
from gpuyard.errors import UserMistake


def validate(
    *,
    table: Annotated[
        str | None, typer.Option(help="Only this published table.", metavar="NAME")
    ] = None,
    points: Annotated[
        str | None,
        typer.Option(
            help="Also show what this many measured multi-GPU figures are worth, e.g. 0,1,2.",
            metavar="LIST",
        ),
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

    Example: gpuyard validate --table pollux_t4 --points 0,1,2
    """
    from gpuyard.predict.validation import report
    from gpuyard.report.answers.validation import validation_answer

    found = report(table, _counts(points) if points else ())
    show(validation_answer(found), json_output=json_output, html=html)


def _counts(text: str) -> list[int]:
    """Whole numbers from 0 to 9."""
    counts = text.split(",")
    if not all(count.strip().isdecimal() and len(count.strip()) == 1 for count in counts):
        raise UserMistake(f"--points takes whole numbers from 0 to 9, e.g. 0,1,2; got {text!r}")
    return [int(count) for count in counts]
