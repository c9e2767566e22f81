"""`gpuyard facility FILE`: the whole design of a cluster's room."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import CountryOption, write_or_print
from gpuyard.cli.output import STDOUT, JsonOption, show, working, writable_or_printed
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.facility.design import FacilityDesign


def design(
    cluster: Annotated[
        str, typer.Argument(help="A *.cluster.yaml, a catalog machine, or e.g. 2x4xrtx-3090@10G.")
    ],
    *,
    site: Annotated[
        Path | None, typer.Option(help="A *.site.yaml: where it would stand.", metavar="FILE")
    ] = None,
    country: CountryOption = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write one page with everything.", callback=writable_or_printed
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw the racks, front and rear.", callback=writable_or_printed
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the bill of materials.", callback=writable_or_printed
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(hidden=True, callback=writable_or_printed)] = None,
    json_output: JsonOption = False,
) -> None:
    """Design the room of a cluster: power, racks, cords, cooling, switches, cables and parts.

    Example: gpuyard facility rack.cluster.yaml --site machine-room.site.yaml --html room.html
    """
    files = {"--html": html, "--svg": svg, "--csv": csv, "--json": STDOUT if json_output else None}
    forms = {form: path for form, path in files.items() if path is not None}
    printed = [form for form, path in forms.items() if path == STDOUT]
    if len(printed) > 1:
        raise UserMistake(
            f"only one of {' and '.join(printed)} can be printed: name a file, like --html room.html"
        )
    if output is not None:  # before each form took its own file
        if not printed:
            raise UserMistake("--output goes with one of --html, --svg, --csv and --json")
        forms[printed[0]] = output
    from gpuyard.catalog.specfiles import read_site
    from gpuyard.facility.design import design_facility
    from gpuyard.hardware.clusters import read_cluster

    spec = read_cluster(cluster)
    place = read_site(site) if site is not None else None
    with working("designing the room"):
        made = design_facility(spec, place, country)
    for form, path in forms.items():
        write_or_print(_text(made, form), path)
    if not forms:
        from gpuyard.report.answers.facility.room import room_answer

        show(room_answer(made))


def _text(made: "FacilityDesign", form: str) -> str:
    match form:
        case "--svg":
            from gpuyard.draw.racks import racks_svg

            return racks_svg(made)
        case "--csv":
            from gpuyard.facility.bill_of_materials import bill_csv, bill_of_materials

            return bill_csv(bill_of_materials(made))
        case "--html":
            from gpuyard.report.answers.facility.room import room_page
            from gpuyard.report.html import render_page

            return render_page(room_page(made))
        case _:
            from gpuyard.report.answer import json_text
            from gpuyard.report.answers.facility.room_document import design_document

            return json_text(design_document(made))
