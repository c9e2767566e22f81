"""`gpuyard facility plugs`: what plugs look like, what they carry and what they fit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import JsonOption, print_json, print_table, write_or_print
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.catalog.facility import Plug


def plugs(
    name: Annotated[str | None, typer.Argument(help="One plug or socket.")] = None,
    *,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the drawings as SVG.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with the drawings.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show plugs and sockets with a drawing of each face, their ratings, and what fits what.

    Example: gpuyard facility plugs --svg plugs.svg
    """
    if (svg is not None) + (html is not None) + json_output > 1:
        raise UserMistake("give one of --svg, --html and --json, not several")
    from gpuyard.catalog.facility import plugs as table
    from gpuyard.draw.plugs import plug_svg, plug_terminal, plugs_svg

    rows = [table().get(name)] if name else list(table())
    if json_output:
        documents = [row.model_dump(mode="json") | {"svg": plug_svg(row)} for row in rows]
        print_json(documents[0] if name else documents)
    elif svg is not None:
        write_or_print(plug_svg(rows[0]) if name else plugs_svg(rows), svg)
    elif html is not None:
        from gpuyard.report.facility_page import render_plugs

        write_or_print(render_plugs(rows), html)
    else:
        cells = [["\n".join(plug_terminal(row)), *_cells(row)] for row in rows]
        columns = ["face", "name", "id", "ratings", "use", "fits"]
        print_table(f"Plugs and sockets, seen from the front: {len(rows)}", columns, cells)


def _cells(row: "Plug") -> list[str]:
    amps = [
        f"{value:g} A {where}"
        for value, where in ((row.amps_iec, "IEC"), (row.amps_north_america, "North America"))
        if value
    ]
    ratings = "\n".join([row.poles, f"{row.volts:g} V", *amps])
    return [row.name, row.id, ratings, row.use, "\n".join(row.mates)]
