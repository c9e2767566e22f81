"""`gpuyard facility plugs`: show plugs and sockets, their ratings, and what they fit."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.completion import complete_plugs
from gpuyard.cli.options import write_or_print
from gpuyard.cli.output import JsonOption, check_output_or_stdout, show
from gpuyard.errors import UserMistake


def plugs(
    name: Annotated[
        str | None,
        typer.Argument(help="Id of a plug or socket.", autocompletion=complete_plugs),
    ] = None,
    *,
    svg: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="SVG file for the drawings.", callback=check_output_or_stdout
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Page with the drawings.", callback=check_output_or_stdout
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show plugs and sockets with a drawing of each face, their ratings, and what fits what.

    Example: gpuyard facility plugs --svg plugs.svg
    """
    if (svg is not None) + (html is not None) + json_output > 1:
        raise UserMistake("use only one of --svg, --html, and --json")
    from gpuyard.api.plugs import plugs as describe_plugs

    result = describe_plugs(name)
    if svg is not None:
        write_or_print(result.svg(), svg)
    elif html is not None:
        from gpuyard.report.html import render_page

        write_or_print(render_page(result.answer), html)
    else:
        show(result.answer, json_output=json_output)
