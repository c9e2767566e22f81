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
from gpuyard.facility import tables
from gpuyard.facility.bill_of_materials import bill_of_materials, known_total
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.power.cord_list import cord_counts
from gpuyard.facility.power.feed_loss import feed_losses
from gpuyard.facility.requirements import room_requirements

if TYPE_CHECKING:
    from jinja2 import Template


def render_facility(design: FacilityDesign) -> str:
    """The page as text."""
    items = bill_of_materials(design)
    title, *facts = tables.headline(design)
    room = room_requirements(design)
    return _template("facility.html.jinja").render(
        title=title,
        facts=facts,
        design=design,
        room=room,
        inrush=tables.inrush(room),
        racks=tables.rack_table(design),
        pdus=tables.pdu_table(design),
        server_power=tables.power_table(design),
        circuits=tables.circuit_table(design),
        requirements=tables.requirement_table(design),
        costs=tables.cost_table(design),
        losses=[loss.sentence for loss in feed_losses(design)],
        rack_losses=tables.loss_table(design),
        networks=tables.network_table(design),
        rack_drawing=racks_svg(design),
        fabrics=_fabric_drawings(design),
        cords=tables.cord_table(design),
        bill=tables.bill_table(items),
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
