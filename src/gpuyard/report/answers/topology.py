"""How the GPUs of a machine are connected, what that costs in bandwidth, and what topologies cost a workload."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpuyard.draw.topology import topology_svg, topology_terminal
from gpuyard.hardware import AllReduce, MachineGraph
from gpuyard.hardware.pairs import bandwidth_matrix, class_matrix, latency_matrix
from gpuyard.predict.machine_summary import GpuChoice, TopologySummary, name_gpus
from gpuyard.report.answer import Answer, Column, Drawing, Part, Sentence, Table
from gpuyard.report.answers.predict import choke_cell
from gpuyard.units import format_byte_rate, format_per_second, format_share

if TYPE_CHECKING:
    from gpuyard.predict.layouts import LayoutPrediction


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
    compared: Sequence["LayoutPrediction"],
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
