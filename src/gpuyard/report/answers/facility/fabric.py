"""The answers for a designed network, and for a network proposed for a workload."""

from collections.abc import Mapping
from typing import Any

from gpuyard.facilities.fabric import FabricBill, FabricDesign
from gpuyard.planner.fabric_choice import (
    FabricCandidate,
    FabricChoice,
    describe_fabric,
    exchange_bytes_per_second,
)
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table, Text, select_attrs
from gpuyard.report.answers.facility.room_document import basic_fabric_document
from gpuyard.report.answers.predict import choke_cell
from gpuyard.units import (
    format_bit_rate,
    format_byte_rate,
    format_per_second,
    format_share,
    format_usd,
)


def fabric_answer(design: FabricDesign, others: Mapping[str, FabricDesign]) -> Answer:
    """Return the network, with one line each for the storage and management networks."""
    document = fabric_document(design) | {k: fabric_document(o) for k, o in others.items()}
    summaries = [Sentence(_summarize(name, other)) for name, other in others.items()]
    return Answer([*_list_parts(design, "Fabric"), *summaries], document)


def proposal_answer(choice: FabricChoice) -> Answer:
    """Return the networks tried, from the cheapest up, the verdict, and the proposed network."""
    columns = ("network", "price", Column("samples/s", 1), "efficiency", Column("choke", 2), "")
    rows = [
        [
            describe_fabric(c),
            format_usd(c.price_usd),
            format_per_second(c.prediction.samples_per_second),
            format_share(c.efficiency),
            choke_cell(c.prediction),
            Text("proposed", "good") if c is choice.chosen else "",
        ]
        for c in choice.frontier
    ]
    title = (
        f"Networks: the cheapest for each efficiency, of {choice.tried} tried, training in "
        f"{choice.chosen.prediction.precision}"
    )
    parts: list[Part] = [Table(title, columns, rows), Sentence(choice.verdict)]
    parts += _list_parts(choice.chosen.design, "Proposed")
    return Answer(parts, _choice_document(choice))


def _list_parts(design: FabricDesign, title: str) -> list[Part]:
    request, bill = design.request, design.bill
    rate = format_bit_rate(design.switch.port_bytes_per_second)
    ports = _format_count(request.ports_per_node, "port")
    switches = [
        [tier, f"{number:,}", _format_model(design, tier)]
        for tier, number in design.switches.items()
        if number
    ]
    cables = [
        [
            r.from_tier,
            r.to_tier,
            r.kind,
            f"{r.length_m:g} m",
            f"{r.count:,}",
            format_usd(r.price_usd),
        ]
        for r in design.cables
    ]
    return [
        Sentence(
            f"{title}: {request.nodes:,} machines × {ports} of {rate}, {design.kind}", "strong"
        ),
        *([Table("Switches", ("tier", "count", "model"), switches)] if switches else []),
        Table("Cables", ("from", "to", "kind", "length", "count", "price each"), cables),
        *(Sentence(line) for line in _list_facts(design, bill)),
    ]


def _list_facts(design: FabricDesign, bill: FabricBill) -> list[str]:
    shape, ratio = design.shape, design.oversubscription
    if design.request.direct:
        return _list_direct_facts(design, bill)
    lines = [
        ("non-blocking" if ratio == 1 else f"{ratio:.3g}:1 oversubscribed")
        + f"; bisection {format_byte_rate(design.bisection_bytes_per_second)}, up to"
        f" {_format_count(design.hops, 'switch hop')}; ports used {design.ports_used:,} of"
        f" {design.ports_total:,}, {design.spare_leaf_ports:,} free for machines"
    ]
    if design.request.nodes > 1:
        rate = format_byte_rate(exchange_bytes_per_second(design))
        lines.append(
            f"an all-reduce over all machines gets {rate} per machine, which predictions use"
        )
    if shape.tiers > 1:
        above = f", {shape.spine_core_bundle} from each spine to each of its cores"
        lines.append(
            f"links per bundle: {shape.leaf_spine_bundle} from each leaf to each of its spines"
            f"{above if shape.tiers == 3 else ''}"
        )
    if bill.total_usd is not None and bill.usd_per_port is not None:
        lines.append(
            f"about {format_usd(bill.total_usd)} at estimated prices: switches"
            f" {format_usd(bill.switches_usd or 0)}, cables {format_usd(bill.cables_usd)}, cards"
            f" {format_usd(bill.cards_usd)}; {format_usd(bill.usd_per_port)} per port without cards"
        )
    watts = f"{bill.switch_watts:,.0f} W" if bill.switch_watts is not None else "unknown watts"
    plural = "" if bill.rack_units == 1 else "s"
    return [*lines, f"{bill.rack_units:g} rack unit{plural}, {watts} at most"]


def _list_direct_facts(design: FabricDesign, bill: FabricBill) -> list[str]:
    rate = format_byte_rate(exchange_bytes_per_second(design))
    return [
        "two machines, cabled to each other, need no switch; a third machine would need one",
        f"an all-reduce gets {rate} per machine, which predictions use",
        f"about {format_usd(bill.total_usd or 0)} at estimated prices: cables"
        f" {format_usd(bill.cables_usd)}, cards {format_usd(bill.cards_usd)}",
    ]


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


def _summarize(name: str, design: FabricDesign) -> str:
    switches = " and ".join(f"{count} × {switch}" for switch, count in design.chassis.items())
    rate = format_bit_rate(design.switch.port_bytes_per_second)
    return (
        f"{name.capitalize()} network: {switches} for {design.request.endpoints:,} ports of {rate},"
        f" {sum(design.cable_counts.values()):,} cables, about"
        f" {format_usd(design.bill.total_usd or 0)}"
    )


def _format_model(design: FabricDesign, tier: str) -> str:
    if design.boards is not None:
        return f"boards of one {design.switch.id}"
    switch = design.switch if tier == "leaf" else design.spine_switch
    if tier != "leaf" and design.spine_boards is not None:
        boards = design.spine_boards
        return f"{switch.id} with {boards.leaf_boards} leaf and {boards.spine_boards} spine boards"
    return switch.id


def fabric_document(design: FabricDesign) -> dict[str, Any]:
    """Return the whole design as a document."""
    bill, shape = design.bill, design.shape
    basics = basic_fabric_document(design)
    return basics | {
        **select_attrs(design.request, "nodes", "ports_per_node", "rails"),
        "tiers": shape.tiers,
        **select_attrs(design, "chassis", "hops"),
        "switch": design.switch.model_dump(mode="json"),
        "cables": design.cable_counts,
        "cable_runs": [
            {
                "from": run.from_tier,
                "to": run.to_tier,
                **select_attrs(run, "cable", "kind", "length_m", "count", "price_usd"),
            }
            for run in design.cables
        ],
        "pods": shape.pods if shape.tiers == 3 else 1,
        "ports": basics["ports"] | {"spare_for_machines": design.spare_leaf_ports},
        "all_reduce": {
            "wire_bytes_per_second": design.all_reduce_bytes_per_second,
            "leaf_by_leaf_wire_bytes_per_second": design.ordered_all_reduce_bytes_per_second,
            "effective_bytes_per_second": (
                exchange_bytes_per_second(design) if design.request.nodes > 1 else None
            ),
        },
        "network": design.network.model_dump(mode="json", exclude_none=True),
        **select_attrs(bill, "rack_units", "weight_kg"),
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


def _candidate_document(candidate: FabricCandidate) -> dict[str, Any]:
    """Return a summary of one candidate."""
    design = candidate.design
    return {
        "switch": design.switch.id,
        "spine_switch": design.spine_switch.id if design.shape.tiers > 1 else None,
        "ports_per_node": design.request.ports_per_node,
        **select_attrs(design, "oversubscription", "switches"),
        "price_usd": candidate.price_usd,
        "scaling_efficiency": candidate.efficiency,
        **select_attrs(candidate.prediction, "samples_per_second", "choke"),
    }


def _choice_document(choice: FabricChoice) -> dict[str, Any]:
    """Return the chosen design in full, and the candidates on the frontier."""
    return fabric_document(choice.chosen.design) | {
        "choice": {
            **select_attrs(choice, "target_efficiency", "reached", "tried", "verdict"),
            "precision": choice.chosen.prediction.precision,
            "chosen": _candidate_document(choice.chosen),
            "enough": _candidate_document(choice.enough),
            "frontier": [_candidate_document(candidate) for candidate in choice.frontier],
        }
    }
