"""The tables of a designed room, for a terminal and a page alike."""

from collections import Counter
from collections.abc import Sequence

from gpuyard.catalog.facility import plugs
from gpuyard.facility.bill_of_materials import Item
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.device import RackDevice
from gpuyard.facility.network.cables import NetworkFigures, network_figures
from gpuyard.facility.power.cord_list import rack_cords
from gpuyard.facility.power.electricity import apparent_va
from gpuyard.facility.power.feed_loss import feed_losses
from gpuyard.facility.power.rack_power import LoadedPdu
from gpuyard.facility.racks.floor_plan import number_list
from gpuyard.facility.requirements import RackRequirements, RoomRequirements, room_requirements
from gpuyard.report.answer import Column, Table
from gpuyard.units import format_usd

_CORD_RACKS = 4


def rack_table(design: FacilityDesign) -> Table:
    """Racks that are alike in one row."""
    columns: list[Column | str] = [
        *("rack", "contents", "U", Column("kg", 1), "typical kW", "peak kW"),
        *(Column("BTU/h", 3), Column("CFM", 2)),
    ]
    rows = [
        [
            numbers,
            ", ".join(f"{count} × {name}" for name, count in _names(design, rack).items()),
            str(rack.units_used),
            f"{rack.weight_kg:,.0f}",
            f"{rack.typical_watts / 1000:.1f}",
            f"{rack.peak_watts / 1000:.1f}",
            f"{rack.btu_per_hour:,.0f}",
            f"{rack.airflow_cfm:,.0f}",
        ]
        for numbers, rack in _alike(design)
    ]
    return Table("Racks", columns, rows)


def _names(design: FacilityDesign, rack: RackRequirements) -> Counter[str]:
    names: Counter[str] = Counter()
    for device, count in design.room.contents(rack.number - 1):
        names[device.name] += count
    return names


def _alike(design: FacilityDesign) -> list[tuple[str, RackRequirements]]:
    by_contents: dict[object, list[RackRequirements]] = {}
    for rack in room_requirements(design).racks:
        # the same box takes the same power, whichever tier it serves in
        by_contents.setdefault(frozenset(_names(design, rack).items()), []).append(rack)
    return [(number_list(r.number for r in alike), alike[0]) for alike in by_contents.values()]


def power_table(design: FacilityDesign) -> Table:
    """Where one server's power goes, by its parts at full load; losses are those of its supplies."""
    power = design.wall_power
    parts = [[name, f"{watts:,.0f}"] for name, watts in power.parts]
    rows = [*parts, ["lost in power supplies", f"{power.lost_watts:,.0f}"]]
    return Table(f"What one {design.server.name} draws", ["part", "W"], rows)


def pdu_table(design: FacilityDesign) -> Table:
    """The PDUs of each kind of rack, when the other feed has failed."""
    columns: list[Column | str] = [
        *("rack", "feed", "PDU", Column("cords", 4), "kVA", "max kVA", "line A", "max A"),
        *(Column("fullest bank", 1), Column("imbalance", 2), Column("optimal", 3)),
    ]
    rows = [
        [numbers, *_pdu_cells(load)]
        for numbers, rack in _alike(design)
        for load in design.power[rack.number - 1].pdus
    ]
    return Table("PDU loads in the worst case", columns, rows)


def _pdu_cells(load: LoadedPdu) -> list[str]:
    balance, pdu = load.balance, load.pdu
    imbalance = optimal = ""
    if pdu.legs == 3:
        imbalance = f"{100 * balance.difference_va * pdu.legs / load.va:.0f} %" if load.va else ""
        optimal = "yes" if balance.proven else "not proven"
    return [
        load.feed,
        pdu.name,
        str(len(load.cords)),
        f"{load.va / 1000:.1f}",
        f"{pdu.usable_va / 1000:.1f}",
        " / ".join(f"{amps:.1f}" for amps in load.line_amps),
        f"{pdu.usable_line_amps:.1f}",
        f"{100 * load.fullest_bank:.0f} %",
        imbalance,
        optimal,
    ]


def loss_table(design: FacilityDesign) -> Table:
    """What each kind of rack does when it loses a feed."""
    columns = [
        *("rack", "lost feed", "full speed", "slower", "off", "kVA on the other feed"),
        *("fullest line", "fullest bank"),
    ]
    rows = []
    for numbers, rack in _alike(design):
        for loss in feed_losses(design, rack.number - 1):
            carried = " + ".join(
                f"{load.va / 1000:.1f} of {load.pdu.usable_va / 1000:.1f}" for load in loss.left
            )
            rows.append(
                [
                    *(numbers, loss.feed, str(loss.full_speed), str(loss.slower), str(loss.off)),
                    carried or "none left",
                    f"{100 * loss.fullest_line:.0f} %" if loss.left else "",
                    f"{100 * loss.fullest_bank:.0f} %" if loss.left else "",
                ]
            )
    return Table("If a feed fails, by rack", columns, rows)


def network_table(design: FacilityDesign) -> Table:
    """One row a network."""
    columns: list[Column | str] = [
        *("network", "kind", "switches", "Gbit/s", Column("ports used", 1)),
        *(Column("bundles", 3), Column("cables", 2), "$/port"),
    ]
    figures = network_figures(design.network, design.cables)
    return Table("Networks", columns, [_network_cells(one) for one in figures])


def _network_cells(figures: NetworkFigures) -> list[str]:
    fabric, shape = figures.fabric, figures.fabric.shape
    bundles = [n for n in (shape.leaf_spine_bundle, shape.spine_core_bundle) if n]
    per_port = figures.usd_per_port
    return [
        figures.name,
        fabric.kind,
        ", ".join(_boxes(device, count, shape.tiers) for device, count in figures.boxes),
        f"{fabric.switch.port_gbit_per_second:g}",
        f"{fabric.ports_used:,} of {fabric.ports_total:,}",
        " and ".join(str(n) for n in bundles),
        f"{figures.cables:,}",
        format_usd(per_port) if per_port is not None else "",
    ]


def _boxes(device: RackDevice, count: int, tiers: int) -> str:
    tier = device.kind.removeprefix("storage ").removeprefix("management ")
    named = f"{count} × {device.name}"
    return f"{named} ({'leaf' if tier == 'management' else tier})" if tiers > 1 else named


def circuit_table(design: FacilityDesign) -> Table:
    """What the electrician installs."""
    columns = ["feed", "count", "V", "A", "phases", "receptacle", "usable kVA each"]
    usable = design.pdu_choice.pdus[0].usable_va / 1000
    rows = [
        [
            need.feed,
            str(need.count),
            f"{need.circuit.voltage:.0f}",
            f"{need.circuit.amps:.0f}",
            str(need.circuit.phases),
            plugs().get(need.circuit.receptacle).name,
            f"{usable:.1f}",
        ]
        for need in room_requirements(design).circuits
    ]
    return Table("Circuits to order", columns, rows)


def requirement_table(design: FacilityDesign) -> Table:
    """Power, cooling, floor and noise of the whole room."""
    room = room_requirements(design)
    under = "under it" if design.on_desk else "under the heaviest rack"
    each = "; each feed alone carries that" if design.site.feeds == 2 else ""
    kilowatts, kilo_va = room.peak_watts / 1000, apparent_va(room.peak_watts) / 1000
    rise = design.site.temperature_rise
    rows = [
        ["power", f"{kilowatts:,.1f} kW or {kilo_va:,.1f} kVA at peak{each}"],
        ["heat", f"{room.btu_per_hour:,.0f} BTU/h"],
        ["cooling", f"{room.cooling_tons:,.1f} tons of refrigeration"],
        ["airflow", f"{room.airflow_cfm:,.0f} CFM at a temperature rise of {rise:g} K"],
        ["floor load", f"{room.floor_kg_per_m2:,.0f} kg/m² {under}"],
        ["floor space", f"about {room.floor_m2:,.1f} m²"],
        ["noise", f"about {room.noise_dba:.0f} dB(A) at 1 m"],
        ["inrush", inrush(room)],
    ]
    return Table("What the room must provide", ["requirement", "amount"], rows)


def inrush(room: RoomRequirements) -> str:
    amps = f"up to {room.inrush_amps:,.0f} A for milliseconds on one circuit"
    if room.most_supplies <= room.supplies_at_once:
        return f"{amps}; its breaker takes that, all may start together"
    return f"{amps} if all power supplies start together; start {room.supplies_at_once} at a time"


def cost_table(design: FacilityDesign) -> Table:
    """Side by side; an open figure is left open."""
    columns = ["where", "energy", "rent", "construction", "total", "PUE", "$/kWh"]
    rows = [
        [
            cost.terms.where,
            format_usd(cost.energy_usd_per_month),
            format_usd(cost.rent_usd_per_month) if cost.rent_usd_per_month is not None else "",
            format_usd(cost.build_usd_per_month) if cost.build_usd_per_month is not None else "",
            format_usd(cost.usd_per_month) + ("" if cost.complete else " plus the room"),
            f"{cost.terms.pue:g}",
            f"{cost.terms.usd_per_kwh:g}",
        ]
        for cost in design.housing_costs
    ]
    return Table("Cost per month, without the hardware", columns, rows)


def cord_table(design: FacilityDesign) -> Table:
    """Racks that are alike are listed once, and no more kinds than a few."""
    columns = ["rack", "feed", "PDU", "bank", "device", "supply", "plug", "connector", "m", "A"]
    first_of = {
        frozenset(design.room.contents(r)): r for r in reversed(range(design.room.floor.racks))
    }
    rows = [
        [
            *(str(cord.rack), cord.feed, str(cord.pdu), str(cord.bank)),
            *(cord.device.label, str(cord.supply), cord.kind.plug, cord.kind.connector),
            *(f"{cord.kind.length_m:g}", f"{cord.amps:.1f}"),
        ]
        for rack in sorted(first_of.values())[:_CORD_RACKS]
        for cord in rack_cords(design, rack)
    ]
    return Table("Power cords", columns, rows)


def bill_table(items: Sequence[Item]) -> Table:
    """A price that is not known is left open."""
    columns = ["quantity", "part", "plugs", "m", "W each", "price each", "as of", "total", "note"]
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
    return Table("Bill of materials", columns, rows)
