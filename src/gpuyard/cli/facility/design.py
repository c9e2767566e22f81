"""`gpuyard facility FILE`: design the room for a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import CountryOption, PowerCapOption, write_or_print
from gpuyard.cli.output import STDOUT, JsonOption, check_output_or_stdout, show, show_status
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    pass


def design(
    cluster: Annotated[
        str, typer.Argument(help="A *.cluster.yaml, a catalog machine, or e.g. 2x4xrtx-3090@10G.")
    ],
    *,
    site: Annotated[
        Path | None, typer.Option(help="Site file, *.site.yaml.", metavar="FILE")
    ] = None,
    country: CountryOption = None,
    power_cap: PowerCapOption = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Page with the whole design.", callback=check_output_or_stdout
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Drawing of the racks, front and rear.",
            callback=check_output_or_stdout,
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Bill of materials.", callback=check_output_or_stdout),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Design the room for a cluster: power, racks, cords, cooling, switches, cables, and parts.

    The exit status is 1 if the site lacks something; the output shows what, and how much.

    Example: gpuyard facility rack.cluster.yaml --site machine-room.site.yaml --html room.html
    """
    files = {"--html": html, "--svg": svg, "--csv": csv, "--json": STDOUT if json_output else None}
    outputs = {option: path for option, path in files.items() if path is not None}
    printed = [option for option, path in outputs.items() if path == STDOUT]
    if len(printed) > 1:
        raise UserMistake(
            f"only one of {' and '.join(printed)} can be printed; name a file, like --html room.html"
        )
    from gpuyard.api.facility import design_room

    with show_status("designing the room"):
        room = design_room(cluster, site=site, country=country, power_cap=power_cap)
    renderers = {"--svg": room.svg, "--csv": room.bill_csv, "--html": room.page}
    for option, path in outputs.items():
        if option in renderers:
            write_or_print(renderers[option](), path)
    if json_output or not printed:
        show(room.answer, json_output=json_output)
