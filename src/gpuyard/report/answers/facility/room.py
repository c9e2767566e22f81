"""The answers for a designed room: tables for the terminal, and a page.

The page adds drawings, cords, parts, a sheet for the electrician, and a sheet for the colocation provider.
"""

from dataclasses import replace

from gpuyard.catalog.facility import Plug, plugs
from gpuyard.draw.fabric import draw_fabric_svg
from gpuyard.draw.plugs import draw_plug_svg
from gpuyard.draw.racks import draw_racks_svg
from gpuyard.facilities.bill_of_materials import describe_total, list_bill_items
from gpuyard.facilities.design import FacilityDesign
from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.requirements import calculate_requirements, list_feed_losses
from gpuyard.report.answer import Answer, Bullets, Drawing, Drawings, Part, Section, Sentence
from gpuyard.report.answers.facility import room_tables as tables
from gpuyard.report.answers.facility.room_document import design_document

_COSTS = (
    "Dollars per month, without the hardware itself. Energy follows the typical draw; rent and construction follow"
    " the peak in kW. Construction is depreciated over ten years. A blank cell has no known value."
)


def room_answer(design: FacilityDesign, note: str = "") -> Answer:
    """Return the tables for the terminal; the note says what a short form of the cluster left open."""
    room_tables = [
        tables.rack_table(design),
        tables.pdu_table(design),
        tables.loss_table(design),
        tables.circuit_table(design),
        *([tables.network_table(design)] if design.network.fabrics else []),
        tables.requirement_table(design),
        tables.cost_table(design),
    ]
    return Answer(
        [
            *(Sentence(line) for line in _describe(design)),
            *([Sentence(note)] if note else []),
            *room_tables,
            *(Sentence(loss.sentence) for loss in list_feed_losses(design)),
            Sentence(design.rules.tariff.sentence),
            *(Sentence(f"Assumed: {assumption}.", "quiet") for assumption in design.assumptions),
        ],
        design_document(design),
        title=design.cluster.name,
        verb="facility",
        rows="racks",
    )


def _describe(design: FacilityDesign) -> list[str]:
    """Return the title, and the most important facts about the room."""
    site = design.site.name if design.site_given else f"{design.site.name} (assumed; set --site)"
    racks, server = design.room.floor.racks, design.server
    housing = f"{racks} rack{'s' if racks > 1 else ''}"
    if design.on_desk:
        housing = (
            "beside the desk" if design.site.kind == "office" else "on the floor, without a rack"
        )
    peak, typical = design.peak_watts / 1000, design.typical_watts / 1000
    lines = [
        f"{design.cluster.name} at {site}",
        f"{housing}, {peak:,.1f} kW at peak, {typical:,.1f} kW typical",
        f"one {server.name}: {server.peak_watts:,.0f} W at peak,"
        f" {server.typical_watts:,.0f} W typical ({server.basis})",
        _describe_redundancy(server),
    ]
    fabric = design.network.compute
    if fabric is not None and fabric.request.direct:
        lines.append(f"network: {design.cluster.nodes} machines, cabled to each other")
    elif fabric is not None:
        counts = ", ".join(f"{n} {tier}" for tier, n in fabric.switches.items() if n)
        lines.append(f"network: {fabric.kind}, {counts} of {fabric.switch.name}")
    return lines


def _describe_redundancy(server: RackDevice) -> str:
    spare = server.supplies - server.supplies_needed
    supplies = f"power supplies: {server.supplies}"
    if not spare:
        return f"{supplies}, all needed: no redundancy"
    return f"{supplies}, {server.supplies_needed} needed at full speed: N+{spare}"


def room_page(design: FacilityDesign) -> Answer:
    """Return the whole design as a page that can be printed."""
    title, *facts = _describe(design)
    items = list_bill_items(design)
    faces = [Drawing(draw_plug_svg(plug), caption=plug.name) for plug in _list_plugs(design)]
    cords_note = (
        "Identical racks are listed once. “A” is the current in the cord in the worst case."
    )
    prices = "A blank price is not known. Prices marked “estimate” are gpuyard's own."
    sections: dict[str, list[Part]] = {
        "Racks": [Drawing(draw_racks_svg(design)), tables.rack_table(design)],
        "Power": _list_power_parts(design),
        "Networks": _list_network_parts(design),
        "Room": [tables.requirement_table(design)],
        "Colocation or on premises": [replace(tables.cost_table(design), note=_COSTS)],
        "Power cords": [replace(tables.cord_table(design), note=cords_note), Drawings(faces)],
        "Bill of materials": [
            replace(tables.bill_table(items), note=f"{describe_total(items)} {prices}")
        ],
        "For the electrician": _list_electrician_parts(design, faces),
        "For the colocation provider": _list_provider_parts(design),
        "Assumptions": [
            Bullets(_list_assumptions(design)),
            Sentence("A licensed electrician decides."),
        ],
    }
    parts: list[Part] = [Bullets(facts)]
    for name, inside in sections.items():
        anchor = name.lower().replace(" ", "-")
        if inside:
            parts.append(Section(name, inside, anchor, sheet=name.startswith("For the")))
    return Answer(parts, title=title, verb="facility")


def _list_power_parts(design: FacilityDesign) -> list[Part]:
    power, server = design.wall_power, design.server
    full_load_watts = sum(watts for _, watts in power.parts) + power.lost_watts
    loads_note = (
        "Loads are worst-case: at the servers' peak, and with two feeds after the other one has failed."
        " “Imbalance” is the difference between the fullest and the emptiest phase, as a share of the mean."
        " “Optimal” is “yes” if no assignment of outlets is more even by 5% or more."
    )
    parts_note = (
        f"All parts at full load add up to {full_load_watts:,.0f} W at the wall; the design is for"
        f" {server.peak_watts:,.0f} W at peak ({server.basis})."
    )
    return [
        replace(tables.pdu_table(design), note=loads_note),
        replace(tables.power_table(design), note=parts_note),
        tables.loss_table(design),
        Bullets([loss.sentence for loss in list_feed_losses(design)]),
    ]


def _list_network_parts(design: FacilityDesign) -> list[Part]:
    """Return the network parts. The management network and a single storage switch are only in the table."""
    network = design.network
    if not network.fabrics:
        return []
    note = (
        "“Bundles” is the number of links between two connected switches. “$/port” is the estimated price of"
        " switches and cables per port of a host."
    )
    parts: list[Part] = [replace(tables.network_table(design), note=note)]
    if network.compute is not None:
        shared = network.storage_attachment is not None and network.storage_attachment.shared
        drawn = draw_fabric_svg(network.compute, "hosts" if shared else "machines")
        parts.append(Section("Between machines", [Drawing(drawn)]))
    if network.storage is not None and network.storage.shape.tiers > 1:
        parts.append(Section("Storage", [Drawing(draw_fabric_svg(network.storage, "ports"))]))
    return parts


def _list_electrician_parts(design: FacilityDesign, faces: list[Drawing]) -> list[Part]:
    room = calculate_requirements(design)
    near = (
        "1.5 m of the machine"
        if design.on_desk
        else "2 m of each rack, overhead or under the floor"
    )
    items = [
        f"Continuous load: planned up to {100 * design.rules.continuous_load:.0f}% of the breaker.",
        f"Inrush: {tables.describe_inrush(room)}.",
        f"Receptacles within {near}.",
        *(loss.sentence for loss in list_feed_losses(design)),
    ]
    if design.site.feeds == 2:
        items.insert(
            1,
            "Feeds A and B come from separate panels, UPSs, or utility paths. Each one alone carries"
            f" everything: {room.peak_watts / 1000:,.1f} kW.",
        )
    return [
        Sentence(
            f"{design.cluster.name}, {design.site.name}. Please install, each on its own breaker:"
        ),
        tables.circuit_table(design),
        Bullets(items),
        Drawings(faces[:2]),
        Sentence(f"Checked against the local code by: {22 * '_'}  Date: {12 * '_'}", "quiet"),
    ]


def _list_provider_parts(design: FacilityDesign) -> list[Part]:
    room = calculate_requirements(design)
    fullest = max(rack.peak_watts for rack in room.racks) / 1000
    heaviest = max(rack.weight_kg for rack in room.racks)
    deepest = max(placed.device.depth_mm for placed in design.room.placed)
    return [
        Sentence(f"{design.cluster.name}: please quote for the following."),
        tables.rack_table(design),
        Bullets(
            [
                f"{room.peak_watts / 1000:,.1f} kW at peak, {room.typical_watts / 1000:,.1f} kW typical;"
                f" {fullest:.1f} kW in the fullest rack.",
                f"Cooling: {room.cooling_tons:,.1f} tons, {room.btu_per_hour:,.0f} BTU/h,"
                f" {room.airflow_cfm:,.0f} CFM at a temperature rise of"
                f" {design.site.temperature_rise:g} K.",
                f"Racks of {design.site.rack.units} U; the heaviest weighs {heaviest:,.0f} kg,"
                f" {room.floor_kg_per_m2:,.0f} kg/m².",
                f"Devices up to {deepest:.0f} mm deep. Noise about {room.noise_dba:.0f} dB(A).",
            ]
        ),
        tables.circuit_table(design),
    ]


def _list_assumptions(design: FacilityDesign) -> list[str]:
    return [
        design.rules.tariff.sentence,
        *design.assumptions,
        f"{design.server.name}: {design.server.basis}.",
        "UPSs, generators, transfer switches, chillers, and liquid loops are not sized. Their vendors ask for the"
        " peak, the kVA of each feed, and the heat.",
        "The outlets that share a breaker in a PDU are derived from its rating; check them on the unit.",
    ]


def _list_plugs(design: FacilityDesign) -> list[Plug]:
    names = [pdu.circuit.receptacle for pdu in design.pdu_choice.pdus]
    model = design.pdu_choice.model
    if model is not None and model.inlet is not None:
        names.append(model.inlet)
    for cord in design.cords:
        names += [cord.kind.plug, cord.kind.connector]
    return [plugs().get(name) for name in dict.fromkeys(names)]
