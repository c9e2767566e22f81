"""`gpuyard facility FILE`: design the room for a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import CountryOption, write_or_print
from gpuyard.cli.output import STDOUT, JsonOption, check_output_or_stdout, show, show_status
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.facilities.design import FacilityDesign


def design(
    cluster: Annotated[
        str, typer.Argument(help="A *.cluster.yaml, a catalog machine, or e.g. 2x4xrtx-3090@10G.")
    ],
    *,
    site: Annotated[
        Path | None, typer.Option(help="Site file, *.site.yaml.", metavar="FILE")
    ] = None,
    country: CountryOption = None,
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

    Example: gpuyard facility rack.cluster.yaml --site machine-room.site.yaml --html room.html
    """
    files = {"--html": html, "--svg": svg, "--csv": csv, "--json": STDOUT if json_output else None}
    outputs = {option: path for option, path in files.items() if path is not None}
    printed = [option for option, path in outputs.items() if path == STDOUT]
    if len(printed) > 1:
        raise UserMistake(
            f"only one of {' and '.join(printed)} can be printed; name a file, like --html room.html"
        )
    from gpuyard.catalog.specfiles import read_site
    from gpuyard.facilities.refusal import design_or_advise
    from gpuyard.hardware.clusters import read_cluster

    spec = read_cluster(cluster)
    site_spec = read_site(site) if site is not None else None
    with show_status("designing the room"):
        room = design_or_advise(spec, site_spec, country)
    for option, path in outputs.items():
        write_or_print(_render(room, option), path)
    if not printed:
        from gpuyard.report.answers.facility.room import room_answer

        show(room_answer(room))


def _render(room: "FacilityDesign", option: str) -> str:
    match option:
        case "--svg":
            from gpuyard.draw.racks import draw_racks_svg

            return draw_racks_svg(room)
        case "--csv":
            from gpuyard.facilities.bill_of_materials import format_bill_csv, list_bill_items

            return format_bill_csv(list_bill_items(room))
        case "--html":
            from gpuyard.report.answers.facility.room import room_page
            from gpuyard.report.html import render_page

            return render_page(room_page(room))
        case _:
            from gpuyard.report.answer import format_json
            from gpuyard.report.answers.facility.room_document import design_document

            return format_json(design_document(room))
