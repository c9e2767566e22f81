"""What `gpuyard topo` says: how the GPUs of a machine are connected, what that costs in bandwidth, what topologies cost a
workload, and whether CPUs have the PCIe lanes for a machine's cards."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpuyard.draw.topology import topology_svg, topology_terminal
from gpuyard.hardware import AllReduce, MachineGraph
from gpuyard.hardware.lanes import LaneBudget
from gpuyard.hardware.pairs import bandwidth_matrix, class_matrix, latency_matrix
from gpuyard.predict.topology import GpuChoice, LayoutPrediction, TopologySummary, name_gpus
from gpuyard.report.answer import Answer, Bullets, Column, Drawing, Part, Sentence, Table, Text
from gpuyard.report.answers.predict import choke_cell
from gpuyard.units import format_byte_rate, format_per_second, format_share


def topology_answer(graph: MachineGraph, summary: TopologySummary) -> Answer:
    """A drawing, the bandwidth of an all-reduce, and which GPUs to take for it."""
    parts: list[Part] = [Drawing(topology_svg(graph), drawn=lambda: topology_terminal(graph))]
    if summary.all_reduces:
        rows = [
            [str(len(r.gpus)), format_byte_rate(r.bytes_per_second), name_gpus(r.gpus)]
            for r in summary.all_reduces
        ]
        parts.append(Table("All-reduce", ("GPUs", "bus bandwidth", "best GPUs"), rows))
    if summary.choices:
        heads = ("GPUs", "best", "bandwidth", "worst", "bandwidth", "best / worst")
        parts.append(Table("Which GPUs to choose", heads, [_row(c) for c in summary.choices]))
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
    """What each topology makes of a workload, the fastest first; the note is about the precision."""
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
    return Answer(parts, document, title=title, verb="topo compare")


def _row(choice: GpuChoice) -> list[str]:
    return [
        str(choice.count),
        name_gpus(choice.best.gpus),
        format_byte_rate(choice.best.bytes_per_second),
        name_gpus(choice.worst.gpus),
        format_byte_rate(choice.worst.bytes_per_second),
        f"{choice.ratio:.2f}",
    ]


def _document(graph: MachineGraph, summary: TopologySummary) -> dict[str, Any]:
    return {
        "name": graph.name,
        "gpus": list(graph.gpus),
        "devices": [asdict(device) for device in graph.devices],
        "links": [asdict(wire) for wire in graph.wires],
        "classes": class_matrix(graph),
        "bytes_per_second": bandwidth_matrix(graph),
        "latency_seconds": latency_matrix(graph),
        "peer_to_peer": [
            [a == b or graph.offers_peer_to_peer(a, b) for b in graph.gpus] for a in graph.gpus
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
    return {
        "count": len(reduce.gpus),
        "gpus": list(reduce.gpus),
        "bytes_per_second": reduce.bytes_per_second,
        "rings": [list(ring) for ring in reduce.rings],
        "limited_by": reduce.kind,
        "staged_through_host": reduce.staged,
    }


def lanes_answer(budgets: Sequence[LaneBudget], *, one: bool) -> Answer:
    """One CPU card by card, with what would help; or all of them, those that suffice first."""
    if one:
        (budget,) = budgets
        return Answer(
            _lanes_of_one(budget), _lanes_document(budget), title="PCIe lanes", verb="topo lanes"
        )
    ordered = sorted(budgets, key=lambda b: (not b.fits, abs(b.left), b.cpu.date))
    return Answer(
        _lanes_of_all(ordered),
        {"cpus": [_lanes_document(budget) for budget in ordered]},
        title="PCIe lanes",
        verb="topo lanes",
    )


def _lanes_of_one(budget: LaneBudget) -> list[Part]:
    rows = [
        [cards.what, str(cards.count), f"x{cards.lanes_each}", str(cards.lanes)]
        for cards in budget.cards
    ]
    rows.append(["wanted", "", "", str(budget.wanted)])
    rows.append([f"on {_cpus(budget)}", "", "", str(budget.there)])
    parts: list[Part] = [
        Table(
            f"PCIe lanes of {_cpus(budget)}, PCIe {budget.cpu.pcie_generation}.0",
            ("what", "cards", "each", "lanes"),
            rows,
        ),
        _lanes_verdict(budget),
    ]
    if budget.slot.generation < budget.gpu.pcie_generation:
        parts.append(
            Sentence(
                f"The CPU has PCIe {budget.cpu.pcie_generation}.0, the GPU could do "
                f"{budget.gpu.pcie_generation}.0: its slot runs as {budget.slot}.",
                "caution",
            )
        )
    remedies = budget.remedies()
    if remedies:
        parts += [Sentence("What would feed them:"), Bullets(remedies)]
    if budget.cpu.note:
        parts.append(Sentence(f"{budget.cpu.name}: {budget.cpu.note}", "quiet"))
    return parts


def _lanes_verdict(budget: LaneBudget) -> Sentence:
    cards = ", ".join(f"{c.count} × {c.what} at x{c.lanes_each}" for c in budget.cards)
    if budget.fits:
        return Sentence(
            f"Yes: {_cpus(budget)} can feed {cards}; {budget.left} lanes are left.", "good"
        )
    return Sentence(
        f"No: {cards} want {budget.wanted} lanes, {budget.there} are on {_cpus(budget)}: "
        f"{-budget.left} are missing.",
        "bad",
    )


def _lanes_of_all(budgets: Sequence[LaneBudget]) -> list[Part]:
    wanted = " + ".join(f"{c.count} × x{c.lanes_each}" for c in budgets[0].cards)
    rows: list[list[str | Text]] = [
        [
            budget.cpu.id,
            f"{budget.cpu.pcie_generation}.0",
            str(budget.there),
            str(budget.wanted),
            Text("yes", "good") if budget.fits else Text(f"{-budget.left} missing", "bad"),
            str(budget.slot),
            f"x{budget.gpu_lanes_left}" if budget.gpu_lanes_left else "none",
        ]
        for budget in budgets
    ]
    columns = (
        "CPU",
        Column("PCIe", 1),
        "lanes",
        Column("wanted", 2),
        "enough",
        Column("a GPU's slot", 3),
        "widest for all GPUs",
    )
    sockets = budgets[0].sockets
    machine = "one CPU" if sockets == 1 else f"{sockets} CPUs"
    return [Table(f"Which {machine} can feed {wanted}", columns, rows)]


def _cpus(budget: LaneBudget) -> str:
    name = budget.cpu.name
    return f"one {name}" if budget.sockets == 1 else f"{budget.sockets} × {name}"


def _lanes_document(budget: LaneBudget) -> dict[str, Any]:
    return {
        "cpu": budget.cpu.id,
        "sockets": budget.sockets,
        "gpu": budget.gpu.id,
        "pcie_generation": budget.cpu.pcie_generation,
        "lanes": budget.there,
        "wanted": budget.wanted,
        "left": budget.left,
        "fits": budget.fits,
        "gpu_slot": str(budget.slot),
        "gpu_lanes_left": budget.gpu_lanes_left,
        "cards": [
            {"what": c.what, "count": c.count, "lanes_each": c.lanes_each, "lanes": c.lanes}
            for c in budget.cards
        ],
        "remedies": list(budget.remedies()),
        "source": budget.cpu.source,
        "date": budget.cpu.date.isoformat(),
    }
