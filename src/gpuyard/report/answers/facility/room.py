"""A designed room: what it takes on a terminal; on a page also drawings, cords, parts, and a sheet each for the
electrician and for the colocation provider."""

from dataclasses import replace

from gpuyard.catalog.facility import Plug, plugs
from gpuyard.draw.fabric import fabric_svg
from gpuyard.draw.plugs import plug_svg
from gpuyard.draw.racks import racks_svg
from gpuyard.facility.bill_of_materials import bill_of_materials, known_total
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.device import RackDevice
from gpuyard.facility.power.cord_list import cord_counts
from gpuyard.facility.power.feed_loss import feed_losses
from gpuyard.facility.requirements import room_requirements
from gpuyard.report.answer import Answer, Bullets, Drawing, Drawings, Part, Section, Sentence
from gpuyard.report.answers.facility import room_tables as tables

_COSTS = (
    "Dollars per month without the hardware itself: energy at the typical draw, rent and construction by the kW"
    " at peak. Construction is written off over ten years. What has no figure is left open."
)


def room_answer(design: FacilityDesign) -> Answer:
    """Figures and tables, without drawings."""
    shown = [
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
            *(Sentence(line) for line in headline(design)),
            *shown,
            *(Sentence(loss.sentence) for loss in feed_losses(design)),
            Sentence(design.rules.tariff.sentence),
            *(Sentence(f"Assumed: {words}.", "quiet") for words in design.assumed),
        ]
    )


def headline(design: FacilityDesign) -> list[str]:
    """What was designed for where, and the few figures that matter most."""
    where = design.site.name if design.site_given else f"no --site given: {design.site.name}"
    racks, server = design.room.floor.racks, design.server
    housing = f"{racks} rack{'s' if racks > 1 else ''}"
    if design.on_desk:
        housing = (
            "beside the desk" if design.site.kind == "office" else "on the floor, without a rack"
        )
    peak, typical = design.peak_watts / 1000, design.typical_watts / 1000
    lines = [
        f"{design.cluster.name} at {where}",
        f"{housing}, {peak:,.1f} kW at peak, {typical:,.1f} kW typical",
        f"one {server.name}: {server.peak_watts:,.0f} W at peak,"
        f" {server.typical_watts:,.0f} W typical ({server.basis})",
        _redundancy(server),
    ]
    fabric = design.network.compute
    if fabric is not None and fabric.request.direct:
        lines.append(f"network: {design.cluster.nodes} machines, cabled to each other")
    elif fabric is not None:
        counts = ", ".join(f"{n} {tier}" for tier, n in fabric.switches.items() if n)
        lines.append(f"network: {fabric.kind}, {counts} of {fabric.switch.name}")
    return lines


def _redundancy(server: RackDevice) -> str:
    spare = server.supplies - server.supplies_needed
    has = f"power supplies: {server.supplies}"
    if not spare:
        return f"{has}, all needed: no redundancy"
    return f"{has}, {server.supplies_needed} needed at full speed: N+{spare}"


def room_page(design: FacilityDesign) -> Answer:
    """Everything, for printing too."""
    title, *facts = headline(design)
    items = bill_of_materials(design)
    faces = [Drawing(plug_svg(plug), caption=plug.name) for plug in _plugs_used(design)]
    alike = "Racks that are alike are listed once. A is the current in the cord in the worst case."
    prices = "A price that is not known is left open. Prices marked “estimate” are ours."
    sections: dict[str, list[Part]] = {
        "Racks": [Drawing(racks_svg(design)), tables.rack_table(design)],
        "Power": _power(design),
        "Networks": _networks(design),
        "Room": [tables.requirement_table(design)],
        "Colocation or on premises": [replace(tables.cost_table(design), note=_COSTS)],
        "Power cords": [replace(tables.cord_table(design), note=alike), Drawings(faces)],
        "Bill of materials": [
            replace(tables.bill_table(items), note=f"{known_total(items)} {prices}")
        ],
        "For the electrician": _electrician(design, faces),
        "For the colocation provider": _provider(design),
        "Assumptions": [Bullets(_assumptions(design)), Sentence("A licensed electrician decides.")],
    }
    parts: list[Part] = [Bullets(facts)]
    for name, inside in sections.items():
        anchor = name.lower().replace(" ", "-")
        if inside:
            parts.append(Section(name, inside, anchor, sheet=name.startswith("For the")))
    return Answer(parts, title=title, verb="facility")


def _power(design: FacilityDesign) -> list[Part]:
    power, server = design.wall_power, design.server
    full = sum(watts for _, watts in power.parts) + power.lost_watts
    loads = (
        "Loads are those of the worst case: at the servers' peak, and with two feeds after the other one has"
        " failed. “Imbalance” is how far the fullest and the emptiest phase are apart, as a share of their"
        " mean; “optimal” says whether no assignment of outlets can be more even by 5 % or more."
    )
    parts = (
        f"All parts at full load add up to {full:,.0f} W at the wall; the design is for"
        f" {server.peak_watts:,.0f} W at peak ({server.basis})."
    )
    return [
        replace(tables.pdu_table(design), note=loads),
        replace(tables.power_table(design), note=parts),
        tables.loss_table(design),
        Bullets([loss.sentence for loss in feed_losses(design)]),
    ]


def _networks(design: FacilityDesign) -> list[Part]:
    """The management network and a single storage switch are in the table alone."""
    network = design.network
    if not network.fabrics:
        return []
    note = (
        "“Bundles” is how many links join each two switches; “$/port” is what switches and cables cost for"
        " each port of a host, by estimated prices."
    )
    parts: list[Part] = [replace(tables.network_table(design), note=note)]
    if network.compute is not None:
        shared = network.storage_attachment is not None and network.storage_attachment.shared
        drawn = fabric_svg(network.compute, "hosts" if shared else "machines")
        parts.append(Section("Between machines", [Drawing(drawn)]))
    if network.storage is not None and network.storage.shape.tiers > 1:
        parts.append(Section("Storage", [Drawing(fabric_svg(network.storage, "ports"))]))
    return parts


def _electrician(design: FacilityDesign, faces: list[Drawing]) -> list[Part]:
    room = room_requirements(design)
    near = (
        "1.5 m of the machine"
        if design.on_desk
        else "2 m of each rack, overhead or under the floor"
    )
    items = [
        f"Continuous load: planned up to {100 * design.rules.continuous_load:.0f} % of the breaker.",
        f"Inrush: {tables.inrush(room)}.",
        f"Receptacles within {near}.",
        *(loss.sentence for loss in feed_losses(design)),
    ]
    if design.site.feeds == 2:
        items.insert(
            1,
            "Feeds A and B come from separate panels, UPS or utility paths. Each one alone carries"
            f" everything: {room.peak_watts / 1000:,.1f} kW.",
        )
    return [
        Sentence(
            f"{design.cluster.name}, {design.site.name}. Please install, each on a breaker of its own:"
        ),
        tables.circuit_table(design),
        Bullets(items),
        Drawings(faces[:2]),
        Sentence(f"Checked against the local code by: {22 * '_'}  Date: {12 * '_'}", "quiet"),
    ]


def _provider(design: FacilityDesign) -> list[Part]:
    room = room_requirements(design)
    fullest = max(rack.peak_watts for rack in room.racks) / 1000
    heaviest = max(rack.weight_kg for rack in room.racks)
    deepest = max(placed.device.depth_mm for placed in design.room.placed)
    return [
        Sentence(f"{design.cluster.name}: please quote for"),
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


def _assumptions(design: FacilityDesign) -> list[str]:
    return [
        design.rules.tariff.sentence,
        *design.assumed,
        f"{design.server.name}: {design.server.basis}.",
        "UPS, generators, transfer switches, chillers and liquid loops are not sized: the peak, the kVA of"
        " each feed and the heat above are what their makers ask for.",
        "Which outlets of a PDU share a breaker is derived from its rating; check it on the unit.",
    ]


def _plugs_used(design: FacilityDesign) -> list[Plug]:
    names = [pdu.circuit.receptacle for pdu in design.pdu_choice.pdus]
    model = design.pdu_choice.model
    if model is not None and model.inlet is not None:
        names.append(model.inlet)
    for kind in cord_counts(design):
        names += [kind.plug, kind.connector]
    return [plugs().get(name) for name in dict.fromkeys(names)]
