"""A design as one document for programs: keys only get added."""

from collections import Counter
from typing import Any

from gpuyard.facility.bill_of_materials import COLUMNS, bill_of_materials
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.fabric import FabricDesign
from gpuyard.facility.housing import HousingCost
from gpuyard.facility.network.cables import NetworkFigures, network_figures
from gpuyard.facility.power.cord_list import PlacedCord, all_cords
from gpuyard.facility.power.feed_loss import FeedLoss, feed_losses
from gpuyard.facility.power.rack_power import LoadedPdu
from gpuyard.facility.requirements import (
    CircuitRequirement,
    RackRequirements,
    RoomRequirements,
    room_requirements,
)
from gpuyard.report.answer import picked


def design_document(design: FacilityDesign) -> dict[str, Any]:
    """Everything that the page shows, as plain values with units in their names."""
    room = room_requirements(design)
    return {
        "cluster": design.cluster.name,
        "site": {
            **picked(design.site, "name", "kind"),
            "given": design.site_given,
            "continuous_load_share": design.rules.continuous_load,
            "rack_watts": design.rules.rack_watts,
            "assumed": list(design.assumed),
        },
        "server": {
            **picked(
                design.server, "name", "rack_units", "weight_kg", "depth_mm", "inlet", "basis"
            ),
            **picked(design.server, "typical_watts", "peak_watts", "supplies", "supplies_needed"),
            "parts_watts": dict(design.wall_power.parts),
            "supply_loss_watts": design.wall_power.lost_watts,
        },
        "power": {
            **picked(design, "typical_watts", "peak_watts"),
            "feeds": design.site.feeds,
            "pdu": design.pdu_choice.model.id if design.pdu_choice.model else None,
            "usable_va_per_circuit": design.pdu_choice.pdus[0].usable_va,
            "feed_losses": [
                _loss(loss) | {"sentence": loss.sentence} for loss in feed_losses(design)
            ],
            "inrush_amps_per_circuit": room.inrush_amps,
            "supplies_to_switch_on_at_once": room.supplies_at_once,
        },
        "racks": [_rack(design, rack) for rack in room.racks],
        "fewest_racks": design.packing.fewest,
        "cords": [_cord(cord) for cord in all_cords(design)],
        "network": _network(design),
        "room": _room(design, room),
        "electricity": design.rules.tariff.as_json(),
        "costs": [_cost(cost) for cost in design.housing_costs],
        "bill": [picked(item, *COLUMNS) for item in bill_of_materials(design)],
    }


def _room(design: FacilityDesign, room: RoomRequirements) -> dict[str, Any]:
    return {
        "circuits": [_circuit(need) for need in room.circuits],
        **picked(room, "btu_per_hour", "cooling_tons", "airflow_cfm"),
        "temperature_rise_kelvin": design.site.temperature_rise,
        **picked(room, "floor_kg_per_m2", "floor_m2", "noise_dba"),
    }


def _circuit(need: CircuitRequirement) -> dict[str, Any]:
    circuit = need.circuit
    return {
        **picked(need, "feed", "count"),
        "volts": circuit.voltage,
        **picked(circuit, "amps", "phases", "receptacle"),
    }


def _rack(design: FacilityDesign, rack: RackRequirements) -> dict[str, Any]:
    return {
        **picked(rack, "number", "units_used", "weight_kg", "typical_watts", "peak_watts"),
        **picked(rack, "btu_per_hour", "airflow_cfm"),
        "devices": [
            {"name": p.device.name, "label": p.label, "unit": p.unit, "units": p.device.rack_units}
            for p in design.room.in_rack(rack.number - 1)
        ],
        "pdus": [_pdu(load) for load in design.power[rack.number - 1].pdus],
        "feed_losses": [
            _loss(loss) | {"fullest_bank_share": loss.fullest_bank}
            for loss in feed_losses(design, rack.number - 1)
        ],
    }


def _loss(loss: FeedLoss) -> dict[str, Any]:
    return {
        **picked(loss, "feed", "full_speed", "slower", "off"),
        "fullest_line_share": loss.fullest_line,
    }


def _pdu(load: LoadedPdu) -> dict[str, Any]:
    balance, pdu = load.balance, load.pdu
    return {
        "feed": load.feed,
        **picked(pdu, "name", "usable_va"),
        "normal_va": load.normal_va,
        "worst_va": load.va,
        "leg_va": list(balance.leg_va),
        "leg_difference_va": balance.difference_va,
        "least_possible_difference_va": balance.least_va,
        "line_amps": list(load.line_amps),
        "usable_line_amps": pdu.usable_line_amps,
        "bank_amps": list(load.bank_amps()),
        "usable_bank_amps": [bank.usable_amps for bank in pdu.banks],
        "outlets_used": dict(Counter(face for _, face in balance.plugged)),
    }


def _cord(cord: PlacedCord) -> dict[str, Any]:
    return {
        **picked(cord, "rack", "feed", "pdu", "bank"),
        "device": cord.device.label,
        "supply": cord.supply,
        **picked(cord.kind, "plug", "connector", "length_m"),
        "worst_amps": cord.amps,
    }


def _network(design: FacilityDesign) -> dict[str, Any] | None:
    """The fabric between machines; the others beside it under their names."""
    figures = network_figures(design.network, design.cables)
    found = {one.name: _figures(one) for one in figures}
    if not found:
        return None
    storage = design.network.storage_attachment
    return found.get("machines", {}) | {
        "storage": found.get("storage"),
        "storage_servers": storage.servers if storage else 0,
        "storage_shares_the_machines_network": bool(storage and storage.shared),
        "management": found.get("management"),
        "cables": [picked(cable, "use", "cable", "length_m", "count") for cable in design.cables],
    }


def _figures(figures: NetworkFigures) -> dict[str, Any]:
    fabric = figures.fabric
    shared = fabric_figures(fabric)
    return shared | {
        "switch": fabric.switch.id,
        "port_gbit_per_second": fabric.switch.port_gbit_per_second,
        "ports": shared["ports"] | {"hosts": fabric.request.endpoints},
        "cable_count": figures.cables,
        "price_usd": figures.usd,
        "price_usd_per_port": figures.usd_per_port,
    }


def fabric_figures(fabric: FabricDesign) -> dict[str, Any]:
    """What is said of a network of a room, and of one that is designed alone."""
    shape, boards = fabric.shape, fabric.boards or fabric.spine_boards
    return {
        **picked(fabric, "kind", "switches"),
        "spine_switch": fabric.spine_switch.id if shape.tiers > 1 else None,
        "boards": {"leaf": boards.leaf_boards, "spine": boards.spine_boards} if boards else None,
        "bundles": {"leaf_spine": shape.leaf_spine_bundle, "spine_core": shape.spine_core_bundle},
        "ports": {
            "total": fabric.ports_total,
            "used": fabric.ports_used,
            "spare": fabric.ports_spare,
        },
        **picked(fabric, "oversubscription", "bisection_bytes_per_second"),
    }


def _cost(cost: HousingCost) -> dict[str, Any]:
    return {
        "way": cost.terms.where,
        **picked(cost, "usd_per_month", "energy_usd_per_month", "rent_usd_per_month"),
        **picked(cost, "build_usd_per_month", "build_usd", "complete"),
        **picked(cost.terms, "pue", "usd_per_kwh"),
    }
