"""A design in words and rows, for the terminal and the page alike."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from gpuyard.catalog.facility import plugs
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.device import Device
from gpuyard.facility.network.cables import NetworkFigures, network_figures
from gpuyard.facility.power.electricity import apparent_va
from gpuyard.facility.power.feed_loss import feed_losses
from gpuyard.facility.power.rack_power import LoadedPdu
from gpuyard.facility.requirements import RackRequirements, RoomRequirements, room_requirements
from gpuyard.units import format_usd

Rows = tuple[list[str], list[list[str]]]
"""Columns, and the cells of each row."""


def headline(design: FacilityDesign) -> list[str]:
    """What was designed for where, and the few figures that matter most."""
    where = design.site.name if design.site_given else f"no --site given: {design.site.name}"
    racks = design.room.floor.racks
    housing = "beside the desk" if design.on_desk else f"{racks} rack{'s' if racks > 1 else ''}"
    peak, typical = design.peak_watts / 1000, design.typical_watts / 1000
    lines = [
        f"{design.cluster.name} at {where}",
        f"{housing}, {peak:,.1f} kW at peak, {typical:,.1f} kW typical",
        f"one {design.server.name}: {design.server.peak_watts:,.0f} W at peak,"
        f" {design.server.typical_watts:,.0f} W typical ({design.server.basis})",
        _supplies(design.server),
    ]
    fabric = design.network.compute
    if fabric is not None:
        counts = ", ".join(f"{n} {tier}" for tier, n in fabric.switches.items() if n)
        lines.append(f"network: {fabric.kind}, {counts} of {fabric.switch.name}")
    return lines


def _supplies(server: Device) -> str:
    spare = server.supplies - server.supplies_needed
    has = f"it has {server.supplies} {'supply' if server.supplies == 1 else 'supplies'}"
    if not spare:
        return f"{has} and needs {'it' if server.supplies == 1 else 'all'}: no redundancy"
    return f"{has} and needs {server.supplies_needed} at full speed: N+{spare}"


def rack_rows(design: FacilityDesign) -> Rows:
    """Racks that are alike in one row."""
    columns = ["rack", "inside", "U", "kg", "kW typical", "kW peak", "BTU/h", "CFM"]
    rows = []
    for numbers, need in _alike(design):
        names = _names(design, need)
        inside = ", ".join(f"{count} × {name}" for name, count in names.items())
        rows.append(
            [
                numbers,
                inside,
                str(need.units_used),
                f"{need.weight_kg:,.0f}",
                f"{need.typical_watts / 1000:.1f}",
                f"{need.peak_watts / 1000:.1f}",
                f"{need.btu_per_hour:,.0f}",
                f"{need.airflow_cfm:,.0f}",
            ]
        )
    return columns, rows


def _names(design: FacilityDesign, need: RackRequirements) -> Counter[str]:
    names: Counter[str] = Counter()
    for device, count in design.contents(need.number - 1):
        names[device.name] += count
    return names


def _alike(design: FacilityDesign) -> list[tuple[str, RackRequirements]]:
    needs = room_requirements(design).racks
    by_contents: dict[object, list[RackRequirements]] = {}
    for need in needs:
        # the same box takes the same power, whichever tier it serves in
        by_contents.setdefault(frozenset(_names(design, need).items()), []).append(need)
    return [(number_list(n.number for n in alike), alike[0]) for alike in by_contents.values()]


def number_list(numbers: Iterable[int]) -> str:
    """1, 2, 3, 5 → "1-3, 5"."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ", ".join(runs)


def draw_rows(design: FacilityDesign) -> Rows:
    """Where one server's power goes, by its parts at full load; losses are those of its supplies."""
    parts = [[name, f"{watts:,.0f}"] for name, watts in design.wall_power.parts]
    return ["part", "W"], [*parts, ["lost in supplies", f"{design.wall_power.lost_watts:,.0f}"]]


def pdu_rows(design: FacilityDesign) -> Rows:
    """The PDUs of each kind of rack, when the other feed has failed."""
    columns = [
        "rack",
        "feed",
        "PDU",
        "cords",
        "kVA",
        "of kVA",
        "A by line",
        "of A",
        "fullest bank",
        "uneven",
        "best",
    ]
    rows = [
        [numbers, *_pdu_cells(load)]
        for numbers, need in _alike(design)
        for load in design.power[need.number - 1].pdus
    ]
    return columns, rows


def _pdu_cells(load: LoadedPdu) -> list[str]:
    mean = load.va / len(load.balance.leg_va)
    uneven = f"{100 * load.balance.difference_va / mean:.0f} %" if mean else ""
    return [
        load.feed,
        load.pdu.name,
        str(len(load.cords)),
        f"{load.va / 1000:.1f}",
        f"{load.pdu.usable_va / 1000:.1f}",
        " / ".join(f"{amps:.1f}" for amps in load.line_amps),
        f"{load.pdu.usable_line_amps:.1f}",
        f"{100 * load.fullest_bank:.0f} %",
        uneven if load.pdu.legs == 3 else "",
        ("yes" if load.balance.proven else "not proven") if load.pdu.legs == 3 else "",
    ]


def loss_rows(design: FacilityDesign) -> Rows:
    """What each kind of rack does when it loses a feed."""
    columns = [
        "rack",
        "lost",
        "full speed",
        "slower",
        "off",
        "the other carries kVA",
        "fullest line",
        "fullest bank",
    ]
    rows = []
    for numbers, need in _alike(design):
        for loss in feed_losses(design, need.number - 1):
            carried = " + ".join(
                f"{load.va / 1000:.1f} of {load.pdu.usable_va / 1000:.1f}" for load in loss.left
            )
            rows.append(
                [
                    numbers,
                    loss.feed,
                    str(loss.full_speed),
                    str(loss.slower),
                    str(loss.off),
                    carried or "none is left",
                    f"{100 * loss.fullest_line:.0f} %" if loss.left else "",
                    f"{100 * loss.fullest_bank:.0f} %" if loss.left else "",
                ]
            )
    return columns, rows


def network_rows(design: FacilityDesign) -> Rows:
    """One row a network."""
    columns = ["network", "kind", "switches", "Gbit/s", "ports used", "bundles", "cables", "a port"]
    return columns, [
        _network_cells(figures) for figures in network_figures(design.network, design.cables)
    ]


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
        f"{format_usd(per_port)}" if per_port is not None else "",
    ]


def _boxes(device: Device, count: int, tiers: int) -> str:
    tier = device.kind.removeprefix("storage ").removeprefix("management ")
    named = f"{count} × {device.name}"
    return f"{named} ({'leaf' if tier == 'management' else tier})" if tiers > 1 else named


def circuit_rows(design: FacilityDesign) -> Rows:
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
    return columns, rows


def need_rows(design: FacilityDesign) -> Rows:
    """Power, cooling, floor and noise of the whole room."""
    needs = room_requirements(design)
    rise = design.site.temperature_rise
    return ["what", "how much"], [
        ["power", _power(design, needs)],
        ["heat", f"{needs.btu_per_hour:,.0f} BTU/h"],
        ["cooling", f"{needs.cooling_tons:,.1f} tons of refrigeration"],
        ["air", f"{needs.airflow_cfm:,.0f} CFM at a rise of {rise:g} K"],
        [
            "floor",
            f"{needs.floor_kg_per_m2:,.0f} kg/m² under {'it' if design.on_desk else 'the heaviest rack'}",
        ],
        ["space", f"about {needs.floor_m2:,.1f} m²"],
        ["noise", f"about {needs.noise_dba:.0f} dB(A) at 1 m"],
        ["inrush", _inrush(needs)],
    ]


def _power(design: FacilityDesign, needs: RoomRequirements) -> str:
    feeds = "; each feed alone carries that" if design.site.feeds == 2 else ""
    kilo_va = apparent_va(needs.peak_watts) / 1000
    return f"{needs.peak_watts / 1000:,.1f} kW or {kilo_va:,.1f} kVA at peak{feeds}"


def _inrush(needs: RoomRequirements) -> str:
    amps = f"up to {needs.inrush_amps:,.0f} A for milliseconds on one circuit"
    if needs.most_supplies <= needs.supplies_at_once:
        return f"{amps}; its breaker takes that, all may start together"
    return f"{amps} if all supplies start together; start {needs.supplies_at_once} at a time"


def cost_rows(design: FacilityDesign) -> Rows:
    """Side by side; an open figure is left open."""
    columns = ["way", "energy", "rent", "building", "together", "PUE", "$/kWh"]
    rows = [
        [
            cost.terms.where,
            format_usd(cost.energy_usd_per_month),
            format_usd(cost.rent_usd_per_month) if cost.rent_usd_per_month is not None else "",
            format_usd(cost.build_usd_per_month) if cost.build_usd_per_month is not None else "",
            format_usd(cost.usd_per_month) + ("" if cost.complete else " and the room"),
            f"{cost.terms.pue:g}",
            f"{cost.terms.usd_per_kwh:g}",
        ]
        for cost in design.housing_costs
    ]
    return columns, rows
