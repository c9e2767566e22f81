"""A room's design as one standalone page: drawings, tables, parts, and a sheet each for the electrician
and for the colocation provider."""

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from gpuyard import __version__
from gpuyard.catalog.facility import Plug, plugs
from gpuyard.draw.fabric import fabric_svg
from gpuyard.draw.plugs import plug_svg
from gpuyard.draw.racks import racks_svg
from gpuyard.facility.bill_of_materials import Item, bill_of_materials, known_total
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.power.cord_list import PlacedCord, cord_counts, rack_cords
from gpuyard.facility.power.feed_loss import feed_losses
from gpuyard.facility.requirements import room_requirements
from gpuyard.facility.tables import (
    circuit_rows,
    cost_rows,
    draw_rows,
    headline,
    loss_rows,
    need_rows,
    network_rows,
    pdu_rows,
    rack_rows,
)
from gpuyard.units import format_usd

if TYPE_CHECKING:
    from jinja2 import Template

_CORD_RACKS = 4  # racks that are alike are listed once, and no more kinds than these


def render_facility(design: FacilityDesign) -> str:
    """The page as text."""
    needs = room_requirements(design)
    items = bill_of_materials(design)
    title, *facts = headline(design)
    return _template("facility.html.jinja").render(
        title=title,
        facts=facts,
        design=design,
        needs=needs,
        racks=rack_rows(design),
        pdus=pdu_rows(design),
        draw=draw_rows(design),
        circuits=circuit_rows(design),
        room=need_rows(design),
        costs=cost_rows(design),
        losses=[loss.sentence for loss in feed_losses(design)],
        rack_losses=loss_rows(design),
        networks=network_rows(design),
        rack_drawing=racks_svg(design),
        fabrics=_fabric_drawings(design),
        cords=_cords(design),
        bill=_bill(items),
        bill_total=known_total(items),
        faces=[(plug.name, plug_svg(plug)) for plug in _plugs_used(design)],
        style=_static("facility.css"),
        version=__version__,
    )


def render_plugs(rows: Sequence[Plug]) -> str:
    """All plugs with their faces."""
    return _template("plugs.html.jinja").render(
        rows=[(plug, plug_svg(plug)) for plug in rows],
        style=_static("facility.css"),
        version=__version__,
    )


def _fabric_drawings(design: FacilityDesign) -> list[tuple[str, str]]:
    """Title and picture; the management network and a single storage switch are in the table alone."""
    network = design.network
    drawn = []
    if network.compute is not None:
        hosts = (
            "hosts"
            if network.storage_attachment is not None and network.storage_attachment.shared
            else "machines"
        )
        drawn.append(("Between machines", fabric_svg(network.compute, hosts)))
    if network.storage is not None and network.storage.shape.tiers > 1:
        drawn.append(("Storage", fabric_svg(network.storage, "ports")))
    return drawn


def _cords(design: FacilityDesign) -> tuple[list[str], list[list[str]]]:
    columns = ["rack", "feed", "PDU", "bank", "device", "supply", "plug", "connector", "m", "A"]
    rows: list[list[str]] = []
    shown: set[object] = set()
    for rack in range(design.room.floor.racks):
        look = frozenset(design.contents(rack))
        if look in shown or len(shown) >= _CORD_RACKS:
            continue
        shown.add(look)
        rows += [_cord_cells(cord) for cord in rack_cords(design, rack)]
    return columns, rows


def _cord_cells(cord: PlacedCord) -> list[str]:
    return [
        str(cord.rack),
        cord.feed,
        str(cord.pdu),
        str(cord.bank),
        cord.device.label,
        str(cord.supply),
        cord.kind.plug,
        cord.kind.connector,
        f"{cord.kind.length_m:g}",
        f"{cord.amps:.1f}",
    ]


def _bill(items: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    columns = [
        "quantity",
        "part",
        "plugs",
        "m",
        "W each",
        "price each",
        "as of",
        "together",
        "note",
    ]
    rows = [
        [
            f"{item.quantity:,}",
            item.part,
            item.plugs,
            f"{item.length_m:g}" if item.length_m is not None else "",
            f"{item.peak_watts_each:,.0f}" if item.peak_watts_each is not None else "",
            format_usd(item.unit_price_usd) if item.unit_price_usd is not None else "",
            item.price_date.replace("-", "\u2011"),
            format_usd(item.total_usd) if item.total_usd is not None else "",
            item.note,
        ]
        for item in items
    ]
    return columns, rows


def _plugs_used(design: FacilityDesign) -> list[Plug]:
    names = [pdu.circuit.receptacle for pdu in design.pdu_choice.pdus]
    if design.pdu_choice.model is not None and design.pdu_choice.model.inlet is not None:
        names.append(design.pdu_choice.model.inlet)
    for kind in cord_counts(design):
        names += [kind.plug, kind.connector]
    return [plugs().get(name) for name in dict.fromkeys(names)]


@cache
def _template(name: str) -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = resources.files("gpuyard.report") / "templates" / name
    return environment.from_string(source.read_text(encoding="utf-8"))


def _static(name: str) -> str:
    return (resources.files("gpuyard.report") / "static" / name).read_text(encoding="utf-8")
