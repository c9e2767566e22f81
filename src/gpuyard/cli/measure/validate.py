"""`gpuyard validate`: compare predictions with every published table that ships with gpuyard."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.completion import complete_tables
from gpuyard.cli.output import JsonOption, check_output_file, show
from gpuyard.errors import UserMistake


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
            help="CSV table of large-model runs to judge instead; docs/large-models.md lists its columns.",
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
    if rows is not None:
        from gpuyard.predictor.large.validation import judge_table
        from gpuyard.report.answers.large_validation import table_scores_answer

        counts = _parse_points(points) if points else [0]
        if counts not in ([0], [1]):
            raise UserMistake("--points with --rows must be 0 or 1")
        scores = judge_table(rows, memory, counts[0])
        show(table_scores_answer(scores, rows.name), json_output=json_output, html=html)
        return
    if memory is not None:
        raise UserMistake("--memory judges the memory of large models: add --rows FILE")
    from gpuyard.api.validation import validate as compare

    answer = compare(table, _parse_points(points) if points else ())
    show(answer, json_output=json_output, html=html)


def _parse_points(text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.strip().isdecimal() and len(count.strip()) == 1 for count in counts):
        raise UserMistake(f"--points must be whole numbers from 0 to 9, e.g. 0,1,2; got {text!r}")
    return [int(count) for count in counts]
