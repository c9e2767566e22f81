"""`gpuyard facility FILE`: the whole design of a cluster's room."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import JsonOption, console, print_json, print_table
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.facility.design import FacilityDesign


def design(
    cluster: Annotated[str, typer.Argument(help="A *.cluster.yaml, or a catalog machine.")],
    *,
    site: Annotated[
        Path | None, typer.Option(help="A *.site.yaml: where it would stand.", metavar="FILE")
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="Print one page: everything, for printing too.")
    ] = False,
    svg: Annotated[
        bool, typer.Option("--svg", help="Print the racks, front and rear, as SVG.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the bill of materials as CSV.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write that to this file instead.", metavar="FILE")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Design the room of a cluster: power, racks, cords, cooling, switches, cables and parts.

    Example: gpuyard facility rack.cluster.yaml --site machine-room.site.yaml --html --output room.html
    """
    chosen = [name for name, given in _forms(html, svg, csv, json_output) if given]
    if len(chosen) > 1:
        raise UserMistake(f"give one of {' and '.join(chosen)}, not both")
    if output is not None and not chosen:
        raise UserMistake("--output goes with one of --html, --svg, --csv and --json")
    from gpuyard.catalog.specfiles import read_cluster, read_site
    from gpuyard.facility.design import design_facility

    spec = read_cluster(cluster)
    place = read_site(site) if site is not None else None
    with console(stderr=True).status("designing the room"):
        made = design_facility(spec, place)
    if not chosen:
        _show(made)
        return
    if output is None and json_output:
        from gpuyard.facility.document import design_document

        print_json(design_document(made))
        return
    text = _text(made, chosen[0])
    if output is None:
        sys.stdout.write(text)
        return
    from gpuyard.files import write_text

    write_text(output, text)
    console(stderr=True).print(f"written: {output}", highlight=False, soft_wrap=True)


def _forms(html: bool, svg: bool, csv: bool, json_output: bool) -> list[tuple[str, bool]]:
    return [("--html", html), ("--svg", svg), ("--csv", csv), ("--json", json_output)]


def _text(made: "FacilityDesign", form: str) -> str:
    match form:
        case "--svg":
            from gpuyard.draw.racks import racks_svg

            return racks_svg(made)
        case "--csv":
            from gpuyard.facility.bill_of_materials import bill_csv, bill_of_materials

            return bill_csv(bill_of_materials(made))
        case "--html":
            from gpuyard.report.facility_page import render_facility

            return render_facility(made)
        case _:
            import json

            from gpuyard.facility.document import design_document

            return json.dumps(design_document(made), indent=2, ensure_ascii=False) + "\n"


def _show(made: "FacilityDesign") -> None:
    from gpuyard.facility.power.feed_loss import feed_losses
    from gpuyard.facility.tables import (
        circuit_rows,
        cost_rows,
        headline,
        loss_rows,
        need_rows,
        network_rows,
        pdu_rows,
        rack_rows,
    )

    out = console()
    for line in headline(made):
        out.print(line, highlight=False, soft_wrap=True)
    print_table("Racks", *rack_rows(made))
    print_table("PDUs and circuits at worst", *pdu_rows(made))
    print_table("When a feed fails, by rack", *loss_rows(made))
    print_table("Circuits to order", *circuit_rows(made))
    if made.network.fabrics:
        print_table("Networks, with switches and cables a port", *network_rows(made))
    print_table("What the room must offer", *need_rows(made))
    print_table("What it costs a month, without the hardware", *cost_rows(made))
    for loss in feed_losses(made):
        out.print(loss.sentence, highlight=False, soft_wrap=True)
    for assumed in made.assumed:
        out.print(f"assumed: {assumed}", highlight=False, soft_wrap=True)
