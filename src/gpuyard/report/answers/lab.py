"""Answers of `gpuyard lab`: the nodes of an emulated cluster, and its health."""

from collections.abc import Sequence

from gpuyard.lab import Health, LabPlan, LabState
from gpuyard.report.answer import Answer, Column, Table
from gpuyard.units import format_bit_rate, format_seconds


def lab_answer(plan: LabPlan, *, dry_run: bool) -> Answer:
    """Show the nodes of a new lab, or those that it would have."""
    table = _build_table(plan, "would be created" if dry_run else "is up")
    return Answer([table], plan.describe(), rows="nodes")


def labs_answer(labs: Sequence[tuple[LabState, Health, Sequence[int]]]) -> Answer:
    """Show the nodes of each lab, its health, and how many processes run in it."""
    tables, documents = [], []
    for state, health, processes in labs:
        count = f"{len(processes)} process{'' if len(processes) == 1 else 'es'}"
        tables.append(_build_table(state.plan, f"is {health}, {count} in it"))
        documents.append(
            {
                **state.plan.describe(),
                "health": health,
                "made_at": state.made_at,
                "namespaces": list(state.namespaces),
                "processes": processes,
            }
        )
    return Answer(tables, documents)


def _build_table(plan: LabPlan, condition: str) -> Table:
    facts = [f"lab {plan.name!r} {condition}"]
    if plan.racks > 1:
        uplink = plan.uplink_bytes_per_second
        rate = f" with uplinks of {format_bit_rate(uplink)}" if uplink else ""
        facts.append(f"{plan.racks} racks{rate}")
    if plan.latency_seconds:
        facts.append(f"{format_seconds(plan.latency_seconds)} latency")
    if plan.dilation > 1:
        facts.append(f"time dilated {plan.dilation:g} times")
    return Table(
        ", ".join(facts),
        ["node", "address", "link", "rack", Column("cores", 1)],
        [
            [
                node.name,
                node.address,
                format_bit_rate(node.rate_bytes_per_second),
                str(node.rack),
                ",".join(map(str, node.cores)),
            ]
            for node in plan.nodes
        ],
    )
