"""`gpuyard topo`: the machine's layout, and what it costs in bandwidth."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.options import JsonOption, console, parse_counts, print_json, print_table
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.hardware import AllReduce, MachineGraph, TopologySummary

app = typer.Typer(help="See how the GPUs of a machine hang together.", invoke_without_command=True)


@app.callback()
def topo(
    context: typer.Context,
    *,
    preset: Annotated[
        str | None, typer.Option(help="A layout by name, e.g. dual-root.", metavar="NAME")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Output of nvidia-smi topo -m, topo -p2p r, -q -x, or lstopo XML."
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="CLUSTER", help="The machine of a *.cluster.yaml, or a catalog machine."
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="Which GPU, where the source does not say it.", metavar="ID")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=64, help="How many GPUs a preset has.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the drawing to this file.")] = None,
    json_output: JsonOption = False,
) -> None:
    """Draw a machine, and say what its layout costs; without options, the machine at hand.

    Example: gpuyard topo --preset dual-root --gpu gtx-1080-ti --svg dual-root.svg
    """
    if context.invoked_subcommand is not None:
        return
    if sum(source is not None for source in (preset, from_file, on)) > 1:
        raise UserMistake("give one of --preset, --from and --on, not several")
    if gpus is not None and preset is None:
        raise UserMistake("--gpus goes with --preset: elsewhere the number of GPUs is known")
    from gpuyard.hardware import summarise

    graph = _graph(preset, from_file, on, gpu=gpu, gpus=gpus)
    summary = summarise(graph)
    if svg is not None:
        from gpuyard.draw.topology import topology_svg
        from gpuyard.files import write_text

        write_text(svg, topology_svg(graph))
    if json_output:
        print_json(_document(graph, summary))
        return
    _show(graph, summary)
    if svg is not None:
        console().print(f"drawing: {svg}", highlight=False, soft_wrap=True)


@app.command()
def compare(
    layouts: Annotated[list[str], typer.Argument(help="Presets, e.g. dual-root single-root.")],
    *,
    workload: Annotated[
        str, typer.Option(help="A *.workload.yaml, or a catalog model.")
    ] = "resnet50",
    gpu: Annotated[str, typer.Option(help="Which GPU.", metavar="ID")] = "gtx-1080-ti",
    gpus: Annotated[str, typer.Option(help="How many GPUs, e.g. 2,4,8.")] = "2,4,8",
    batch: Annotated[int | None, typer.Option(min=1, help="Samples a GPU and step.")] = None,
    json_output: JsonOption = False,
) -> None:
    """Say what each layout costs a workload in samples/s.

    Example: gpuyard topo compare dual-root single-root cascaded --workload resnet50 --gpu gtx-1080-ti
    """
    from gpuyard.catalog import gpus as catalog_gpus
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.predict.layouts import compare_layouts
    from gpuyard.units import format_byte_rate, format_share
    from gpuyard.workloads import profile_of

    spec = read_workload(workload)
    compared = compare_layouts(
        spec,
        profile_of(spec),
        layouts,
        catalog_gpus().get(gpu),
        parse_counts(gpus, "number of GPUs"),
        batch=batch or spec.batch_per_gpu,
    )
    if json_output:
        print_json({"workload": spec.name, "gpu": gpu, "layouts": [c.as_json() for c in compared]})
        return
    print_table(
        f"{spec.name} on {gpu}, {batch or spec.batch_per_gpu} samples a GPU and step",
        ["layout", "GPUs", "all-reduce", "samples/s", "of the best", "efficiency", "choke"],
        [
            [
                c.layout,
                str(c.prediction.gpus),
                format_byte_rate(c.all_reduce_bytes_per_second),
                f"{c.prediction.samples_per_second:,.1f}",
                format_share(c.of_best),
                format_share(c.prediction.scaling_efficiency),
                c.prediction.choke,
            ]
            for c in compared
        ],
    )


def _graph(
    preset: str | None,
    from_file: Path | None,
    cluster: str | None,
    *,
    gpu: str | None,
    gpus: int | None,
) -> "MachineGraph":
    from gpuyard.catalog import gpus as catalog_gpus
    from gpuyard.hardware import PRESETS, build_preset

    if gpu is not None:
        catalog_gpus().get(gpu)
    if preset is not None:
        known = PRESETS.get(preset)
        chosen = gpu or (known.usual_gpu if known else "gtx-1080-ti")
        count = gpus or (known.usual_gpus if known else 1)
        return build_preset(preset, catalog_gpus().get(chosen), count)
    if cluster is not None:
        from gpuyard.catalog.specfiles import read_cluster
        from gpuyard.predict import machine_of

        of_cluster, machine = machine_of(read_cluster(cluster))
        return build_preset(machine.topology, of_cluster, machine.gpus)
    if from_file is not None:
        from gpuyard.hardware.readers.read import read_topology

        return read_topology(from_file, gpu)
    from gpuyard.hardware.discover import discover_machine

    return discover_machine()


def _show(graph: "MachineGraph", summary: "TopologySummary") -> None:
    from gpuyard.draw.topology import topology_terminal
    from gpuyard.hardware.summary import name_gpus
    from gpuyard.units import format_byte_rate

    out = console()
    out.print(topology_terminal(graph))
    if summary.all_reduces:
        print_table(
            "All-reduce (bus bandwidth of the best choice)",
            ["GPUs", "rate", "best choice"],
            [
                [str(len(r.gpus)), format_byte_rate(r.bytes_per_second), name_gpus(r.gpus)]
                for r in summary.all_reduces
            ],
        )
    if summary.choices:
        print_table(
            "The choice of GPUs",
            ["GPUs", "best", "rate", "worst", "rate", "best over worst"],
            [
                [
                    str(choice.count),
                    name_gpus(choice.best.gpus),
                    format_byte_rate(choice.best.bytes_per_second),
                    name_gpus(choice.worst.gpus),
                    format_byte_rate(choice.worst.bytes_per_second),
                    f"{choice.ratio:.2f}",
                ]
                for choice in summary.choices
            ],
        )
    out.print(summary.verdict, highlight=False)
    for note in graph.notes:
        out.print(f"Note: {note}", highlight=False, markup=False)


def _document(graph: "MachineGraph", summary: "TopologySummary") -> dict[str, Any]:
    from dataclasses import asdict

    from gpuyard.hardware.rates import bandwidth_matrix, class_matrix, latency_matrix

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


def _all_reduce_document(reduce: "AllReduce") -> dict[str, Any]:
    return {
        "count": len(reduce.gpus),
        "gpus": list(reduce.gpus),
        "bytes_per_second": reduce.bytes_per_second,
        "rings": [list(ring) for ring in reduce.rings],
        "limited_by": reduce.kind,
        "staged_through_host": reduce.staged,
    }
