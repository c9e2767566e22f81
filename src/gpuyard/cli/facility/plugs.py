"""`gpuyard facility plugs`: what plugs look like, what they carry and what they fit."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.options import write_or_print
from gpuyard.cli.output import JsonOption, show, writable_or_printed
from gpuyard.errors import UserMistake


def plugs(
    name: Annotated[str | None, typer.Argument(help="One plug or socket.")] = None,
    *,
    svg: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the drawings as SVG.", callback=writable_or_printed
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page with the drawings.", callback=writable_or_printed
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show plugs and sockets with a drawing of each face, their ratings, and what fits what.

    Example: gpuyard facility plugs --svg plugs.svg
    """
    if (svg is not None) + (html is not None) + json_output > 1:
        raise UserMistake("give one of --svg, --html and --json, not several")
    from gpuyard.catalog.facility import plugs as table
    from gpuyard.report.answers.facility.plugs import plugs_answer

    rows = [table().get(name)] if name else list(table())
    if svg is not None:
        from gpuyard.draw.plugs import plug_svg, plugs_svg

        write_or_print(plug_svg(rows[0]) if name else plugs_svg(rows), svg)
        return
    answer = plugs_answer(rows, alone=name is not None)
    if html is not None:
        from gpuyard.report.html import render_page

        write_or_print(render_page(answer), html)
        return
    show(answer, json_output=json_output)
