"""`gpuyard validate`: compare predictions with every published table that ships with gpuyard."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, check_output_file, show
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
            help="Also write an HTML page with a scatter plot of each table.",
            callback=check_output_file,
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compare predictions with every published table that ships, and print the errors.

    Each row is predicted from the one-GPU figure of its own table.

    Example: gpuyard validate --table pollux_t4 --points 0,1,2
    """
    from gpuyard.predictor.validation import report
    from gpuyard.report.answers.validation import validation_answer

    comparison = report(table, _parse_points(points) if points else ())
    show(validation_answer(comparison), json_output=json_output, html=html)


def _parse_points(text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.strip().isdecimal() and len(count.strip()) == 1 for count in counts):
        raise UserMistake(f"--points must be whole numbers from 0 to 9, e.g. 0,1,2; got {text!r}")
    return [int(count) for count in counts]
