"""A design as one document for programs: keys only get added."""

from collections import Counter
from typing import Any

from gpuyard.facility.bill_of_materials import COLUMNS, bill_of_materials
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.housing import HousingCost
from gpuyard.facility.network.cables import NetworkFigures, network_figures
from gpuyard.facility.power.cord_list import all_cords
from gpuyard.facility.power.feed_loss import feed_losses
from gpuyard.facility.power.rack_power import LoadedPdu
from gpuyard.facility.requirements import RackRequirements, room_requirements


def design_document(design: FacilityDesign) -> dict[str, Any]:
    """Everything that the page shows, as plain values with units in their names."""
    needs = room_requirements(design)
    return {
        "cluster": design.cluster.name,
        "site": {
            "name": design.site.name,
            "kind": design.site.kind,
            "given": design.site_given,
            "continuous_load_share": design.rules.continuous_load,
            "rack_watts": design.rules.rack_watts,
            "assumed": list(design.assumed),
        },
        "server": _server(design),
        "power": {
            "typical_watts": design.typical_watts,
            "peak_watts": design.peak_watts,
            "feeds": design.site.feeds,
            "pdu": design.pdu_choice.model.id if design.pdu_choice.model else None,
            "usable_va_per_circuit": design.pdu_choice.pdus[0].usable_va,
            "feed_losses": [
                {
                    "feed": loss.feed,
                    "full_speed": loss.full_speed,
                    "slower": loss.slower,
                    "off": loss.off,
                    "fullest_line_share": loss.fullest_line,
                    "sentence": loss.sentence,
                }
                for loss in feed_losses(design)
            ],
            "inrush_amps_per_circuit": needs.inrush_amps,
            "supplies_to_switch_on_at_once": needs.supplies_at_once,
        },
        "racks": [_rack(design, need) for need in needs.racks],
        "fewest_racks": design.packing.fewest,
        "cords": _cords(design),
        "network": _network(design),
        "room": {
            "circuits": [
                {
                    "feed": need.feed,
                    "count": need.count,
                    "volts": need.circuit.voltage,
                    "amps": need.circuit.amps,
                    "phases": need.circuit.phases,
                    "receptacle": need.circuit.receptacle,
                }
                for need in needs.circuits
            ],
            "btu_per_hour": needs.btu_per_hour,
            "cooling_tons": needs.cooling_tons,
            "airflow_cfm": needs.airflow_cfm,
            "temperature_rise_kelvin": design.site.temperature_rise,
            "floor_kg_per_m2": needs.floor_kg_per_m2,
            "floor_m2": needs.floor_m2,
            "noise_dba": needs.noise_dba,
        },
        "costs": [_cost(cost) for cost in design.housing_costs],
        "bill": [
            {column: getattr(item, column) for column in COLUMNS}
            for item in bill_of_materials(design)
        ],
    }


def _server(design: FacilityDesign) -> dict[str, Any]:
    server = design.server
    return {
        "name": server.name,
        "rack_units": server.rack_units,
        "weight_kg": server.weight_kg,
        "depth_mm": server.depth_mm,
        "typical_watts": server.typical_watts,
        "peak_watts": server.peak_watts,
        "parts_watts": dict(design.wall_power.parts),
        "supply_loss_watts": design.wall_power.lost_watts,
        "supplies": server.supplies,
        "supplies_needed": server.supplies_needed,
        "inlet": server.inlet,
        "basis": server.basis,
    }


def _rack(design: FacilityDesign, need: RackRequirements) -> dict[str, Any]:
    placed = design.room.in_rack(need.number - 1)
    return {
        "number": need.number,
        "units_used": need.units_used,
        "weight_kg": need.weight_kg,
        "typical_watts": need.typical_watts,
        "peak_watts": need.peak_watts,
        "btu_per_hour": need.btu_per_hour,
        "airflow_cfm": need.airflow_cfm,
        "devices": [
            {"name": p.device.name, "label": p.label, "unit": p.unit, "units": p.device.rack_units}
            for p in placed
        ],
        "pdus": [_pdu(load) for load in design.power[need.number - 1].pdus],
        "feed_losses": [
            {
                "feed": loss.feed,
                "full_speed": loss.full_speed,
                "slower": loss.slower,
                "off": loss.off,
                "fullest_line_share": loss.fullest_line,
                "fullest_bank_share": loss.fullest_bank,
            }
            for loss in feed_losses(design, need.number - 1)
        ],
    }


def _pdu(load: LoadedPdu) -> dict[str, Any]:
    return {
        "feed": load.feed,
        "name": load.pdu.name,
        "usable_va": load.pdu.usable_va,
        "normal_va": load.normal_va,
        "worst_va": load.va,
        "leg_va": list(load.balance.leg_va),
        "leg_difference_va": load.balance.difference_va,
        "least_possible_difference_va": load.balance.least_va,
        "line_amps": list(load.line_amps),
        "usable_line_amps": load.pdu.usable_line_amps,
        "bank_amps": list(load.bank_amps()),
        "usable_bank_amps": [bank.usable_amps for bank in load.pdu.banks],
        "outlets_used": dict(Counter(face for _, face in load.balance.plugged)),
    }


def _cords(design: FacilityDesign) -> list[dict[str, Any]]:
    return [
        {
            "rack": cord.rack,
            "feed": cord.feed,
            "pdu": cord.pdu,
            "bank": cord.bank,
            "device": cord.device.label,
            "supply": cord.supply,
            "plug": cord.kind.plug,
            "connector": cord.kind.connector,
            "length_m": cord.kind.length_m,
            "worst_amps": cord.amps,
        }
        for cord in all_cords(design)
    ]


def _network(design: FacilityDesign) -> dict[str, Any] | None:
    """The fabric between machines; the others beside it under their names."""
    found = {figures.name: figures for figures in network_figures(design.network, design.cables)}
    if not found:
        return None
    between = _fabric(found["machines"]) if "machines" in found else {}
    return between | {
        "storage": _fabric(found["storage"]) if "storage" in found else None,
        "storage_servers": design.network.storage_attachment.servers
        if design.network.storage_attachment
        else 0,
        "storage_shares_the_machines_network": bool(
            design.network.storage_attachment and design.network.storage_attachment.shared
        ),
        "management": _fabric(found["management"]) if "management" in found else None,
        "cables": [
            {"use": c.use, "cable": c.cable, "length_m": c.length_m, "count": c.count}
            for c in design.cables
        ],
    }


def _fabric(figures: NetworkFigures) -> dict[str, Any]:
    fabric = figures.fabric
    boards = fabric.boards or fabric.spine_boards
    return {
        "kind": fabric.kind,
        "switch": fabric.switch.id,
        "spine_switch": fabric.spine_switch.id if fabric.shape.tiers > 1 else None,
        "switches": fabric.switches,
        "boards": {"leaf": boards.leaf_boards, "spine": boards.spine_boards} if boards else None,
        "bundles": {
            "leaf_spine": fabric.shape.leaf_spine_bundle,
            "spine_core": fabric.shape.spine_core_bundle,
        },
        "port_gbit_per_second": fabric.switch.port_gbit_per_second,
        "ports": {
            "total": fabric.ports_total,
            "used": fabric.ports_used,
            "spare": fabric.ports_spare,
            "hosts": fabric.request.endpoints,
        },
        "oversubscription": fabric.oversubscription,
        "bisection_bytes_per_second": fabric.bisection_bytes_per_second,
        "cable_count": figures.cables,
        "price_usd": figures.usd,
        "price_usd_per_port": figures.usd_per_port,
    }


def _cost(cost: HousingCost) -> dict[str, Any]:
    return {
        "way": cost.terms.where,
        "usd_per_month": cost.usd_per_month,
        "energy_usd_per_month": cost.energy_usd_per_month,
        "rent_usd_per_month": cost.rent_usd_per_month,
        "build_usd_per_month": cost.build_usd_per_month,
        "build_usd": cost.build_usd,
        "pue": cost.terms.pue,
        "usd_per_kwh": cost.terms.usd_per_kwh,
        "complete": cost.complete,
    }
