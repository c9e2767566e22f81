"""A designed room as one JSON document. Keys are added, but never renamed or removed."""

from collections import Counter
from typing import Any

from gpuyard.facilities.bill_of_materials import COLUMNS, list_bill_items
from gpuyard.facilities.design import FacilityDesign
from gpuyard.facilities.fabric import FabricDesign
from gpuyard.facilities.housing import HousingCost
from gpuyard.facilities.network.cables import NetworkSummary, summarize_networks
from gpuyard.facilities.power.cord_list import PlacedCord
from gpuyard.facilities.power.rack_power import LoadedPdu
from gpuyard.facilities.requirements import (
    CircuitRequirement,
    FeedLoss,
    RackRequirements,
    RoomRequirements,
    calculate_requirements,
    list_feed_losses,
)
from gpuyard.report.answer import select_attrs


def design_document(design: FacilityDesign) -> dict[str, Any]:
    """Return everything that the page shows, as plain values with units in their names."""
    room = calculate_requirements(design)
    return {
        "cluster": design.cluster.name,
        "site": {
            **select_attrs(design.site, "name", "kind"),
            "given": design.site_given,
            "continuous_load_share": design.rules.continuous_load,
            "rack_watts": design.rules.rack_watts,
            "assumed": list(design.assumptions),
        },
        "server": {
            **select_attrs(
                design.server, "name", "rack_units", "weight_kg", "depth_mm", "inlet", "basis"
            ),
            **select_attrs(
                design.server, "typical_watts", "peak_watts", "supplies", "supplies_needed"
            ),
            "parts_watts": dict(design.wall_power.parts),
            "supply_loss_watts": design.wall_power.lost_watts,
        },
        "power": {
            **select_attrs(design, "typical_watts", "peak_watts"),
            "feeds": design.site.feeds,
            "pdu": design.pdu_choice.model.id if design.pdu_choice.model else None,
            "usable_va_per_circuit": design.pdu_choice.pdus[0].usable_va,
            "feed_losses": [
                _loss_document(loss) | {"sentence": loss.sentence}
                for loss in list_feed_losses(design)
            ],
            "inrush_amps_per_circuit": room.inrush_amps,
            "supplies_to_switch_on_at_once": room.max_simultaneous_starts,
        },
        "racks": [_rack_document(design, rack) for rack in room.racks],
        "fewest_racks": design.packing.min_racks,
        "cords": [_cord_document(cord) for cord in design.cords],
        "network": _network_document(design),
        "room": _room_document(design, room),
        "electricity": design.rules.tariff.as_json(),
        "costs": [_cost_document(cost) for cost in design.housing_costs],
        "bill": [select_attrs(item, *COLUMNS) for item in list_bill_items(design)],
    }


def _room_document(design: FacilityDesign, room: RoomRequirements) -> dict[str, Any]:
    return {
        "circuits": [_circuit_document(need) for need in room.circuits],
        **select_attrs(room, "btu_per_hour", "cooling_tons", "airflow_cfm"),
        "temperature_rise_kelvin": design.site.temperature_rise,
        **select_attrs(room, "floor_kg_per_m2", "floor_m2", "noise_dba"),
    }


def _circuit_document(need: CircuitRequirement) -> dict[str, Any]:
    circuit = need.circuit
    return {
        **select_attrs(need, "feed", "count"),
        "volts": circuit.voltage,
        **select_attrs(circuit, "amps", "phases", "receptacle"),
    }


def _rack_document(design: FacilityDesign, rack: RackRequirements) -> dict[str, Any]:
    return {
        **select_attrs(rack, "number", "units_used", "weight_kg", "typical_watts", "peak_watts"),
        **select_attrs(rack, "btu_per_hour", "airflow_cfm"),
        "devices": [
            {"name": p.device.name, "label": p.label, "unit": p.unit, "units": p.device.rack_units}
            for p in design.room.get_rack(rack.number - 1)
        ],
        "pdus": [_pdu_document(load) for load in design.power[rack.number - 1].pdus],
        "feed_losses": [
            _loss_document(loss) | {"fullest_bank_share": loss.fullest_bank_share}
            for loss in list_feed_losses(design, rack.number - 1)
        ],
    }


def _loss_document(loss: FeedLoss) -> dict[str, Any]:
    return {
        **select_attrs(loss, "feed", "full_speed", "slower", "off"),
        "fullest_line_share": loss.fullest_line_share,
    }


def _pdu_document(load: LoadedPdu) -> dict[str, Any]:
    balance, pdu = load.balance, load.pdu
    return {
        "feed": load.feed,
        **select_attrs(pdu, "name", "usable_va"),
        "normal_va": load.normal_va,
        "worst_va": load.va,
        "leg_va": list(balance.leg_va),
        "leg_difference_va": balance.difference_va,
        "min_possible_difference_va": balance.min_difference_va,
        "line_amps": list(load.line_amps),
        "usable_line_amps": pdu.usable_line_amps,
        "bank_amps": list(load.bank_amps()),
        "usable_bank_amps": [bank.usable_amps for bank in pdu.banks],
        "outlets_used": dict(Counter(face for _, face in balance.outlets)),
    }


def _cord_document(cord: PlacedCord) -> dict[str, Any]:
    return {
        **select_attrs(cord, "rack", "feed", "pdu", "bank"),
        "device": cord.device.label,
        "supply": cord.supply,
        **select_attrs(cord.kind, "plug", "connector", "length_m"),
        "worst_amps": cord.amps,
    }


def _network_document(design: FacilityDesign) -> dict[str, Any] | None:
    """Return the network between machines, with the other networks under their names."""
    summaries = summarize_networks(design.network, design.cables)
    networks = {summary.name: _summary_document(summary) for summary in summaries}
    if not networks:
        return None
    storage = design.network.storage_attachment
    return networks.get("machines", {}) | {
        "storage": networks.get("storage"),
        "storage_servers": storage.servers if storage else 0,
        "storage_shares_the_machines_network": bool(storage and storage.shared),
        "management": networks.get("management"),
        "cables": [
            select_attrs(cable, "use", "cable", "length_m", "count") for cable in design.cables
        ],
    }


def _summary_document(summary: NetworkSummary) -> dict[str, Any]:
    fabric = summary.fabric
    basics = basic_fabric_document(fabric)
    return basics | {
        "switch": fabric.switch.id,
        "port_gbit_per_second": fabric.switch.port_gbit_per_second,
        "ports": basics["ports"] | {"hosts": fabric.request.endpoints},
        "cable_count": summary.cables,
        "price_usd": summary.usd,
        "price_usd_per_port": summary.usd_per_port,
    }


def basic_fabric_document(fabric: FabricDesign) -> dict[str, Any]:
    """Return the values that documents of a room and of a single fabric share."""
    shape, boards = fabric.shape, fabric.boards or fabric.spine_boards
    return {
        **select_attrs(fabric, "kind", "switches"),
        "spine_switch": fabric.spine_switch.id if shape.tiers > 1 else None,
        "boards": {"leaf": boards.leaf_boards, "spine": boards.spine_boards} if boards else None,
        "bundles": {"leaf_spine": shape.leaf_spine_bundle, "spine_core": shape.spine_core_bundle},
        "ports": {
            "total": fabric.ports_total,
            "used": fabric.ports_used,
            "spare": fabric.ports_spare,
        },
        **select_attrs(fabric, "oversubscription", "bisection_bytes_per_second"),
    }


def _cost_document(cost: HousingCost) -> dict[str, Any]:
    return {
        "way": cost.terms.where,
        **select_attrs(cost, "usd_per_month", "energy_usd_per_month", "rent_usd_per_month"),
        **select_attrs(cost, "build_usd_per_month", "build_usd", "complete"),
        **select_attrs(cost.terms, "pue", "usd_per_kwh"),
    }
