"""Answers of `gpuyard topo`: a machine's topology and bandwidth, a comparison of topologies, and PCIe lane budgets."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpuyard.draw.topology import draw_topology_svg, draw_topology_text
from gpuyard.hardware import AllReduce, MachineGraph
from gpuyard.hardware.lanes import LaneBudget
from gpuyard.hardware.pairs import (
    compute_bandwidth_matrix,
    compute_class_matrix,
    compute_latency_matrix,
)
from gpuyard.predictor.topology import GpuChoice, LayoutPrediction, TopologySummary, name_gpus
from gpuyard.predictor.transport import bound_ring_rate, ring_rate
from gpuyard.report.answer import Answer, Bullets, Column, Drawing, Part, Sentence, Table, Text
from gpuyard.report.answers.predict import choke_cell
from gpuyard.units import format_byte_rate, format_per_second, format_share


def topology_answer(graph: MachineGraph, summary: TopologySummary) -> Answer:
    """Show a drawing of the machine, its all-reduce bandwidth, and the best GPUs for a job."""
    parts: list[Part] = [
        Drawing(draw_topology_svg(graph), renderable=lambda: draw_topology_text(graph))
    ]
    if summary.all_reduces:
        rows = [
            [
                str(len(r.gpus)),
                format_byte_rate(ring_rate(r)),
                " – ".join(map(format_byte_rate, bound_ring_rate(r))),
                name_gpus(r.gpus),
            ]
            for r in summary.all_reduces
        ]
        heads = ("GPUs", "bus bandwidth", Column("90% interval", 1), "best GPUs")
        parts.append(Table("All-reduce", heads, rows))
    if summary.choices:
        headings = ("GPUs", "best", "bandwidth", "worst", "bandwidth", "best / worst")
        rows = [_format_choice(choice) for choice in summary.choices]
        parts.append(Table("Which GPUs to choose", headings, rows))
    parts.append(Sentence(summary.verdict))
    parts += [Sentence(f"Note: {note}") for note in graph.notes]
    return Answer(parts, _document(graph, summary), title=graph.name, verb="topo")


def comparison_answer(
    workload: str,
    gpu: str,
    batch: int,
    compared: Sequence[LayoutPrediction],
    precision_note: str = "",
) -> Answer:
    """Compare topologies by a workload's throughput, the fastest first."""
    columns = (
        "topology",
        "GPUs",
        Column("all-reduce", 1),
        "samples/s",
        "vs best",
        Column("efficiency", 2),
        "choke",
    )
    rows = [
        [
            c.layout,
            str(c.prediction.gpus),
            format_byte_rate(c.all_reduce_bytes_per_second),
            format_per_second(c.prediction.samples_per_second),
            format_share(c.of_best),
            format_share(c.prediction.scaling_efficiency),
            choke_cell(c.prediction),
        ]
        for c in compared
    ]
    precision = compared[0].prediction.precision
    title = f"{workload} on {gpu}, {precision}, batch {batch} per GPU"
    document = {
        "workload": workload,
        "gpu": gpu,
        "precision": precision,
        "precision_note": precision_note,
        "layouts": [c.as_json() for c in compared],
    }
    parts: list[Part] = [Table(title, columns, rows)]
    if precision_note:
        parts.append(Sentence(precision_note))
    return Answer(parts, document, title=title, verb="topo compare", rows="layouts")


def _format_choice(choice: GpuChoice) -> list[str]:
    return [
        str(choice.count),
        name_gpus(choice.best.gpus),
        format_byte_rate(ring_rate(choice.best)),
        name_gpus(choice.worst.gpus),
        format_byte_rate(ring_rate(choice.worst)),
        f"{choice.ratio:.2f}",
    ]


def _document(graph: MachineGraph, summary: TopologySummary) -> dict[str, Any]:
    return {
        "name": graph.name,
        "gpus": list(graph.gpus),
        "devices": [asdict(device) for device in graph.devices],
        "links": [asdict(wire) for wire in graph.wires],
        "classes": compute_class_matrix(graph),
        "bytes_per_second": compute_bandwidth_matrix(graph),
        "latency_seconds": compute_latency_matrix(graph),
        "peer_to_peer": [
            [a == b or graph.has_peer_access(a, b) for b in graph.gpus] for a in graph.gpus
        ],
        "all_reduce": [_all_reduce_document(r) for r in summary.all_reduces],
        "choices": [
            {
                "count": choice.count,
                "best": _all_reduce_document(choice.best),
                "worst": _all_reduce_document(choice.worst),
                "ratio": choice.ratio,
            }
            for choice in summary.choices
        ],
        "verdict": summary.verdict,
        "notes": list(graph.notes),
    }


def _all_reduce_document(reduce: AllReduce) -> dict[str, Any]:
    low, high = bound_ring_rate(reduce)
    return {
        "count": len(reduce.gpus),
        "gpus": list(reduce.gpus),
        "bytes_per_second": ring_rate(reduce),
        "low_bytes_per_second": low,
        "high_bytes_per_second": high,
        "rings": [list(ring) for ring in reduce.rings],
        "limited_by": reduce.kind,
        "staged_through_host": reduce.staged,
    }


def cpu_lanes_answer(budget: LaneBudget) -> Answer:
    """Show the lane budget of one CPU, card by card, with remedies if lanes are missing."""
    rows = [
        [cards.name, str(cards.count), f"x{cards.lanes_each}", str(cards.lanes)]
        for cards in budget.cards
    ]
    cpus = _name_cpus(budget)
    rows.append(["needed", "", "", str(budget.required_lanes)])
    rows.append([f"on {cpus}", "", "", str(budget.available_lanes)])
    parts: list[Part] = [
        Table(
            f"PCIe lanes of {cpus}, PCIe {budget.cpu.pcie_generation}.0",
            ("card", "count", "each", "lanes"),
            rows,
        ),
        _lanes_verdict(budget),
    ]
    if budget.slot.generation < budget.gpu.pcie_generation:
        parts.append(
            Sentence(
                f"The CPU has PCIe {budget.cpu.pcie_generation}.0, and the GPU supports "
                f"{budget.gpu.pcie_generation}.0: its slot runs as {budget.slot}.",
                "caution",
            )
        )
    remedies = budget.remedies()
    if remedies:
        parts += [Sentence("Ways to connect all cards:"), Bullets(remedies)]
    if budget.cpu.note:
        parts.append(Sentence(f"{budget.cpu.name}: {budget.cpu.note}", "quiet"))
    return Answer(parts, _lanes_document(budget), title="PCIe lanes", verb="topo lanes")


def _lanes_verdict(budget: LaneBudget) -> Sentence:
    cards = ", ".join(f"{c.count} × {c.name} at x{c.lanes_each}" for c in budget.cards)
    cpus = _name_cpus(budget)
    if budget.fits:
        return Sentence(
            f"Yes: {cpus} can connect {cards}; {budget.spare_lanes} lanes remain free.", "good"
        )
    has = "has" if budget.sockets == 1 else "have"
    return Sentence(
        f"No: {cards} need {budget.required_lanes} lanes; {cpus} {has} {budget.available_lanes}, "
        f"{-budget.spare_lanes} too few.",
        "bad",
    )


def all_lanes_answer(budgets: Sequence[LaneBudget]) -> Answer:
    """Compare the lane budgets of several CPUs, those with enough lanes first."""
    ordered = sorted(budgets, key=lambda b: (not b.fits, abs(b.spare_lanes), b.cpu.date))
    rows: list[list[str | Text]] = [
        [
            budget.cpu.id,
            f"{budget.cpu.pcie_generation}.0",
            str(budget.available_lanes),
            str(budget.required_lanes),
            Text("yes", "good") if budget.fits else Text(f"{-budget.spare_lanes} missing", "bad"),
            str(budget.slot),
            f"x{budget.max_lanes_per_gpu}" if budget.max_lanes_per_gpu else "none",
        ]
        for budget in ordered
    ]
    columns = (
        "CPU",
        Column("PCIe", 1),
        "lanes",
        Column("needed", 2),
        "enough",
        Column("slot per GPU", 3),
        "widest for all GPUs",
    )
    cards = " + ".join(f"{c.count} × x{c.lanes_each}" for c in ordered[0].cards)
    sockets = ordered[0].sockets
    machine = "one CPU" if sockets == 1 else f"{sockets} CPUs"
    return Answer(
        [Table(f"PCIe lanes of {machine} for {cards}", columns, rows)],
        {"cpus": [_lanes_document(budget) for budget in ordered]},
        title="PCIe lanes",
        verb="topo lanes",
    )


def _name_cpus(budget: LaneBudget) -> str:
    name = budget.cpu.name
    return f"one {name}" if budget.sockets == 1 else f"{budget.sockets} × {name}"


def _lanes_document(budget: LaneBudget) -> dict[str, Any]:
    return {
        "cpu": budget.cpu.id,
        "sockets": budget.sockets,
        "gpu": budget.gpu.id,
        "pcie_generation": budget.cpu.pcie_generation,
        "lanes": budget.available_lanes,
        "required_lanes": budget.required_lanes,
        "spare_lanes": budget.spare_lanes,
        "fits": budget.fits,
        "gpu_slot": str(budget.slot),
        "max_lanes_per_gpu": budget.max_lanes_per_gpu,
        "cards": [
            {"name": c.name, "count": c.count, "lanes_each": c.lanes_each, "lanes": c.lanes}
            for c in budget.cards
        ],
        "remedies": list(budget.remedies()),
        "source": budget.cpu.source,
        "date": budget.cpu.date.isoformat(),
    }
