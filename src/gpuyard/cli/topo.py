"""`gpuyard topo`: how the GPUs of a machine are connected, and what that costs in bandwidth."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import PrecisionOption, parse_counts, parse_precision, trained_in_asked
from gpuyard.cli.output import JsonOption, show, writable
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.hardware import MachineGraph

app = typer.Typer(help="Show how the GPUs of a machine are connected.", invoke_without_command=True)


@app.callback()
def topo(
    context: typer.Context,
    *,
    preset: Annotated[
        str | None, typer.Option(help="A topology by name, e.g. dual-root.", metavar="NAME")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Output of nvidia-smi topo -m, topo -p2p r or -q -x, or lstopo XML.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="CLUSTER",
            help="The machine of a *.cluster.yaml, a catalog machine, or e.g. 8xrtx-3090.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="Catalog GPU, where the source does not name it.", metavar="ID"),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=72, help="Number of GPUs of the preset.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write the drawing to this SVG file.", callback=writable)
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Draw a machine, and say what its topology costs in bandwidth. Without options: this machine.

    Example: gpuyard topo --preset dual-root --gpu gtx-1080-ti --svg dual-root.svg
    """
    if context.invoked_subcommand is not None:
        return
    if sum(source is not None for source in (preset, from_file, on)) > 1:
        raise UserMistake("give only one of --preset, --from and --on")
    if gpus is not None and preset is None:
        raise UserMistake("--gpus goes with --preset: elsewhere the number of GPUs is known")
    from gpuyard.predict.topology import summarise
    from gpuyard.report.answers.topology import topology_answer

    graph = _graph(preset, from_file, on, gpu=gpu, gpus=gpus)
    if svg is not None:
        from gpuyard.draw.topology import topology_svg
        from gpuyard.files import write_text

        write_text(svg, topology_svg(graph))
    show(topology_answer(graph, summarise(graph)), json_output=json_output)
    if svg is not None:
        from gpuyard.report.terminal import say

        say(f"Wrote {svg}.")


@app.command()
def compare(
    layouts: Annotated[list[str], typer.Argument(help="Topologies, e.g. dual-root single-root.")],
    *,
    workload: Annotated[
        str, typer.Option(help="A *.workload.yaml, or a catalog model.")
    ] = "resnet50",
    gpu: Annotated[str, typer.Option(help="Catalog GPU.", metavar="ID")] = "gtx-1080-ti",
    gpus: Annotated[str, typer.Option(help="Numbers of GPUs, e.g. 2,4,8.")] = "2,4,8",
    batch: Annotated[int | None, typer.Option(min=1, help="Batch size per GPU.")] = None,
    precision: PrecisionOption = None,
    json_output: JsonOption = False,
) -> None:
    """Compare topologies by the samples/s that a workload reaches.

    Example: gpuyard topo compare dual-root single-root cascaded --workload resnet50 --gpu gtx-1080-ti
    """
    from gpuyard.catalog import gpus as catalog_gpus
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.predict.compute import precision_words
    from gpuyard.predict.topology import compare_layouts
    from gpuyard.report.answers.topology import comparison_answer
    from gpuyard.workloads import profile_of

    if precision is not None:
        parse_precision(precision)
    spec = read_workload(workload)
    profile = profile_of(spec)
    spec = trained_in_asked(spec, profile, precision)
    samples = batch or spec.batch_per_gpu
    counts = parse_counts(gpus, "number of GPUs")
    model = catalog_gpus().get(gpu)
    compared = compare_layouts(spec, profile, layouts, model, counts, batch=samples)
    note = precision_words(model, spec, profile)
    show(comparison_answer(spec.name, gpu, samples, compared, note), json_output=json_output)


@app.command()
def lanes(
    *,
    cpu: Annotated[
        str | None,
        typer.Option(help="Catalog CPU; if left out, all of them are tried.", metavar="ID"),
    ] = None,
    sockets: Annotated[int, typer.Option(min=1, max=8, help="CPUs in the machine.")] = 1,
    gpu: Annotated[str, typer.Option(help="Catalog GPU.", metavar="ID")] = "rtx-4090",
    gpus: Annotated[int, typer.Option(min=1, max=72, help="Number of GPUs.")] = 4,
    nic: Annotated[
        str | None, typer.Option(help="Catalog link of the network cards.", metavar="LINK")
    ] = None,
    nics: Annotated[int, typer.Option(min=1, max=32, help="Number of network cards.")] = 1,
    nvme: Annotated[int, typer.Option(min=0, max=32, help="Number of NVMe drives.")] = 1,
    json_output: JsonOption = False,
) -> None:
    """Say whether a CPU has the PCIe lanes for a machine's GPUs, network cards and drives.

    Example: gpuyard topo lanes --cpu epyc-7742 --gpu rtx-3090 --gpus 4 --nic infiniband-hdr
    """
    from gpuyard.catalog import gpus as catalog_gpus
    from gpuyard.catalog import links
    from gpuyard.catalog.hardware import cpus
    from gpuyard.hardware.lanes import lane_budget
    from gpuyard.report.answers.topology import lanes_answer

    model = catalog_gpus().get(gpu)
    card = links().get(nic) if nic else None
    if card is not None and card.kind not in ("ethernet", "infiniband"):
        raise UserMistake(f"--nic: {nic} joins GPUs inside a machine, not machines")
    tried = [cpus().get(cpu)] if cpu else [c for c in cpus() if c.most_sockets >= sockets]
    budgets = [
        lane_budget(c, sockets, model, gpus, nic=card, nics=nics, drives=nvme) for c in tried
    ]
    show(lanes_answer(budgets, one=cpu is not None), json_output=json_output)


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
        from gpuyard.hardware.clusters import machine_of, read_cluster

        of_cluster, machine = machine_of(read_cluster(cluster))
        return build_preset(machine.topology, of_cluster, machine.gpus, machine.socket_link)
    if from_file is not None:
        from gpuyard.hardware.readers.read import read_topology

        return read_topology(from_file, gpu)
    from gpuyard.hardware.discover import discover_machine

    return discover_machine()
