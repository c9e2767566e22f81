"""The tables of a designed room, for the terminal and the page."""

from collections import Counter
from collections.abc import Sequence

from gpuyard.catalog.facility import plugs
from gpuyard.facilities.bill_of_materials import BillItem
from gpuyard.facilities.design import FacilityDesign
from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.network.cables import NetworkSummary, summarize_networks
from gpuyard.facilities.power.electricity import apparent_va
from gpuyard.facilities.power.rack_power import LoadedPdu
from gpuyard.facilities.racks.floor_plan import format_ranges
from gpuyard.facilities.requirements import (
    RackRequirements,
    RoomRequirements,
    calculate_requirements,
    list_feed_losses,
)
from gpuyard.report.answer import Column, Table
from gpuyard.units import format_usd

_MAX_CORD_RACKS = 4


def rack_table(design: FacilityDesign) -> Table:
    """Return the racks, with identical racks in one row."""
    columns: list[Column | str] = [
        *("rack", "contents", "U", Column("kg", 1), "typical kW", "peak kW"),
        *(Column("BTU/h", 3), Column("CFM", 2)),
    ]
    rows = [
        [
            numbers,
            ", ".join(f"{count} × {name}" for name, count in _count_names(design, rack).items()),
            str(rack.units_used),
            f"{rack.weight_kg:,.0f}",
            f"{rack.typical_watts / 1000:.1f}",
            f"{rack.peak_watts / 1000:.1f}",
            f"{rack.btu_per_hour:,.0f}",
            f"{rack.airflow_cfm:,.0f}",
        ]
        for numbers, rack in _group_racks(design)
    ]
    return Table("Racks", columns, rows)


def _count_names(design: FacilityDesign, rack: RackRequirements) -> Counter[str]:
    names: Counter[str] = Counter()
    for device, count in design.room.count_contents(rack.number - 1):
        names[device.name] += count
    return names


def _group_racks(design: FacilityDesign) -> list[tuple[str, RackRequirements]]:
    groups: dict[object, list[RackRequirements]] = {}
    for rack in calculate_requirements(design).racks:
        # a switch draws the same power in every tier
        groups.setdefault(frozenset(_count_names(design, rack).items()), []).append(rack)
    return [(format_ranges(r.number for r in group), group[0]) for group in groups.values()]


def power_table(design: FacilityDesign) -> Table:
    """Return the power of one server by part at full load, with the losses of its supplies."""
    power = design.wall_power
    parts = [[name, f"{watts:,.0f}"] for name, watts in power.parts]
    rows = [*parts, ["lost in power supplies", f"{power.lost_watts:,.0f}"]]
    return Table(f"Power of one {design.server.name}", ["part", "W"], rows)


def pdu_table(design: FacilityDesign) -> Table:
    """Return the loads of the PDUs in each kind of rack after the other feed has failed."""
    columns: list[Column | str] = [
        *("rack", "feed", "PDU", Column("cords", 4), "kVA", "max kVA", "line A", "max A"),
        *(Column("fullest bank", 1), Column("imbalance", 2), Column("optimal", 3)),
    ]
    rows = [
        [numbers, *_format_pdu(load)]
        for numbers, rack in _group_racks(design)
        for load in design.power[rack.number - 1].pdus
    ]
    return Table("PDU loads in the worst case", columns, rows)


def _format_pdu(load: LoadedPdu) -> list[str]:
    balance, pdu = load.balance, load.pdu
    imbalance = optimal = ""
    if pdu.legs == 3:
        imbalance = f"{100 * balance.difference_va * pdu.legs / load.va:.0f}%" if load.va else ""
        optimal = "yes" if balance.proven else "not proven"
    return [
        load.feed,
        pdu.name,
        str(len(load.cords)),
        f"{load.va / 1000:.1f}",
        f"{pdu.usable_va / 1000:.1f}",
        " / ".join(f"{amps:.1f}" for amps in load.line_amps),
        f"{pdu.usable_line_amps:.1f}",
        f"{100 * load.fullest_bank_share:.0f}%",
        imbalance,
        optimal,
    ]


def loss_table(design: FacilityDesign) -> Table:
    """Return the effect of a failed feed on each kind of rack."""
    columns = [
        *("rack", "lost feed", "full speed", "slower", "off", "kVA on the other feed"),
        *("fullest line", "fullest bank"),
    ]
    rows = []
    for numbers, rack in _group_racks(design):
        for loss in list_feed_losses(design, rack.number - 1):
            carried = " + ".join(
                f"{load.va / 1000:.1f} of {load.pdu.usable_va / 1000:.1f}"
                for load in loss.remaining_pdus
            )
            rows.append(
                [
                    *(numbers, loss.feed, str(loss.full_speed), str(loss.slower), str(loss.off)),
                    carried or "none",
                    f"{100 * loss.fullest_line_share:.0f}%" if loss.remaining_pdus else "",
                    f"{100 * loss.fullest_bank_share:.0f}%" if loss.remaining_pdus else "",
                ]
            )
    return Table("If a feed fails, by rack", columns, rows)


def network_table(design: FacilityDesign) -> Table:
    """Return one row per network."""
    columns: list[Column | str] = [
        *("network", "kind", "switches", "Gbit/s", Column("ports used", 1)),
        *(Column("bundles", 3), Column("cables", 2), "$/port"),
    ]
    summaries = summarize_networks(design.network, design.cables)
    return Table("Networks", columns, [_format_network(summary) for summary in summaries])


def _format_network(summary: NetworkSummary) -> list[str]:
    fabric, shape = summary.fabric, summary.fabric.shape
    bundles = [n for n in (shape.leaf_spine_bundle, shape.spine_core_bundle) if n]
    per_port = summary.usd_per_port
    return [
        summary.name,
        fabric.kind,
        ", ".join(
            _format_switches(device, count, shape.tiers) for device, count in summary.switches
        ),
        f"{fabric.switch.port_gbit_per_second:g}",
        f"{fabric.ports_used:,} of {fabric.ports_total:,}",
        " and ".join(str(n) for n in bundles),
        f"{summary.cables:,}",
        format_usd(per_port) if per_port is not None else "",
    ]


def _format_switches(device: RackDevice, count: int, tiers: int) -> str:
    tier = device.kind.removeprefix("storage ").removeprefix("management ")
    switches = f"{count} × {device.name}"
    return f"{switches} ({'leaf' if tier == 'management' else tier})" if tiers > 1 else switches


def circuit_table(design: FacilityDesign) -> Table:
    """Return the circuits for the electrician to install."""
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
        for need in calculate_requirements(design).circuits
    ]
    return Table("Circuits to order", columns, rows)


def requirement_table(design: FacilityDesign) -> Table:
    """Return the power, cooling, floor, and noise of the whole room."""
    room = calculate_requirements(design)
    place = "under it" if design.on_desk else "under the heaviest rack"
    feeds = "; each feed alone carries that" if design.site.feeds == 2 else ""
    kilowatts, kilo_va = room.peak_watts / 1000, apparent_va(room.peak_watts) / 1000
    rise = design.site.temperature_rise
    rows = [
        ["power", f"{kilowatts:,.1f} kW or {kilo_va:,.1f} kVA at peak{feeds}"],
        ["heat", f"{room.btu_per_hour:,.0f} BTU/h"],
        ["cooling", f"{room.cooling_tons:,.1f} tons of refrigeration"],
        ["airflow", f"{room.airflow_cfm:,.0f} CFM at a temperature rise of {rise:g} K"],
        ["floor load", f"{room.floor_kg_per_m2:,.0f} kg/m² {place}"],
        ["floor space", f"about {room.floor_m2:,.1f} m²"],
        ["noise", f"about {room.noise_dba:.0f} dB(A) at 1 m"],
        ["inrush", describe_inrush(room)],
    ]
    return Table("Room requirements", ["requirement", "amount"], rows)


def describe_inrush(room: RoomRequirements) -> str:
    amps = f"up to {room.inrush_amps:,.0f} A for milliseconds on one circuit"
    if room.max_supplies_per_circuit <= room.max_simultaneous_starts:
        return f"{amps}; its breaker holds, so all may start together"
    return f"{amps} if all power supplies start together; start {room.max_simultaneous_starts} at a time"


def cost_table(design: FacilityDesign) -> Table:
    """Return the monthly costs of each place; a blank cell has no known value."""
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
    """Return the power cords, with identical racks once and at most a few kinds of racks."""
    columns = ["rack", "feed", "PDU", "bank", "device", "supply", "plug", "connector", "m", "A"]
    first_racks = {
        frozenset(design.room.count_contents(r)): r
        for r in reversed(range(design.room.floor.racks))
    }
    rows = [
        [
            *(str(cord.rack), cord.feed, str(cord.pdu), str(cord.bank)),
            *(cord.device.label, str(cord.supply), cord.kind.plug, cord.kind.connector),
            *(f"{cord.kind.length_m:g}", f"{cord.amps:.1f}"),
        ]
        for rack in sorted(first_racks.values())[:_MAX_CORD_RACKS]
        for cord in design.list_rack_cords(rack)
    ]
    return Table("Power cords", columns, rows)


def bill_table(items: Sequence[BillItem]) -> Table:
    """Return the bill of materials; a blank price is not known."""
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
