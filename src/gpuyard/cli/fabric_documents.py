"""A designed fabric as a JSON document; keys only get added."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuyard.facility.fabric import FabricDesign
    from gpuyard.planner.fabric_choice import FabricCandidate, FabricChoice


def fabric_document(design: "FabricDesign") -> dict[str, Any]:
    """All that is known of a design."""
    from gpuyard.facility.fabric import bill_of
    from gpuyard.planner.fabric_choice import exchange_bytes_per_second

    bill = bill_of(design)
    shape = design.shape
    return {
        "nodes": design.request.nodes,
        "ports_per_node": design.request.ports_per_node,
        "rails": design.request.rails,
        "kind": design.kind,
        "tiers": shape.tiers,
        "switches": design.switches,
        "chassis": design.chassis,
        "boards": _boards(design),
        "switch": design.switch.model_dump(mode="json"),
        "spine_switch": design.spine_switch.id if shape.tiers > 1 else None,
        "cables": design.cable_counts,
        "cable_runs": [
            {
                "from": run.from_tier,
                "to": run.to_tier,
                "cable": run.cable,
                "kind": run.kind,
                "length_m": run.length_m,
                "count": run.count,
                "price_usd": run.price_usd,
            }
            for run in design.cables
        ],
        "bundles": {"leaf_spine": shape.leaf_spine_bundle, "spine_core": shape.spine_core_bundle},
        "pods": shape.pods if shape.tiers == 3 else 1,
        "ports": {
            "total": design.ports_total,
            "used": design.ports_used,
            "spare": design.ports_spare,
            "spare_for_machines": design.spare_leaf_ports,
        },
        "oversubscription": design.oversubscription,
        "bisection_bytes_per_second": design.bisection_bytes_per_second,
        "hops": design.hops,
        "all_reduce": {
            "wire_bytes_per_second": design.all_reduce_bytes_per_second,
            "leaf_by_leaf_wire_bytes_per_second": design.ordered_all_reduce_bytes_per_second,
            "effective_bytes_per_second": (
                exchange_bytes_per_second(design) if design.request.nodes > 1 else None
            ),
        },
        "network": design.network.model_dump(mode="json", exclude_none=True),
        "rack_units": bill.rack_units,
        "weight_kg": bill.weight_kg,
        "watts": {"switches": bill.switch_watts, "cables": bill.cable_watts},
        "price_usd": {
            "basis": "estimate",
            "switches": bill.switches_usd,
            "cables": bill.cables_usd,
            "cards": bill.cards_usd,
            "total": bill.total_usd,
            "per_port": bill.usd_per_port,
        },
    }


def _boards(design: "FabricDesign") -> dict[str, int] | None:
    """In each director, where there are directors."""
    boards = design.boards or design.spine_boards
    if boards is None:
        return None
    return {"leaf": boards.leaf_boards, "spine": boards.spine_boards}


def candidate_document(candidate: "FabricCandidate") -> dict[str, Any]:
    """One proposed fabric, short."""
    design = candidate.design
    return {
        "switch": design.switch.id,
        "spine_switch": design.spine_switch.id if design.shape.tiers > 1 else None,
        "ports_per_node": design.request.ports_per_node,
        "oversubscription": design.oversubscription,
        "switches": design.switches,
        "price_usd": candidate.price_usd,
        "scaling_efficiency": candidate.efficiency,
        "samples_per_second": candidate.prediction.samples_per_second,
        "choke": candidate.prediction.choke,
    }


def choice_document(choice: "FabricChoice") -> dict[str, Any]:
    """The chosen design in full, and those that it was chosen from."""
    return fabric_document(choice.chosen.design) | {
        "choice": {
            "target_efficiency": choice.target_efficiency,
            "reached": choice.reached,
            "tried": choice.tried,
            "verdict": choice.verdict,
            "chosen": candidate_document(choice.chosen),
            "enough": candidate_document(choice.enough),
            "frontier": [candidate_document(candidate) for candidate in choice.frontier],
        }
    }
