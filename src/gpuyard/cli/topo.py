"""`gpuyard topo`: show how the GPUs of a machine are connected, and the resulting bandwidth."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import Topology
from gpuyard.cli.completion import complete_cpus, complete_gpus, complete_links, complete_list
from gpuyard.cli.options import PrecisionOption
from gpuyard.cli.output import JsonOption, check_output_file, show, show_with_drawing

CatalogGpuOption = Annotated[
    str, typer.Option(help="Catalog GPU.", metavar="ID", autocompletion=complete_gpus)
]

app = typer.Typer(help="Show how the GPUs of a machine are connected.", invoke_without_command=True)


@app.callback()
def topo(
    context: typer.Context,
    *,
    preset: Annotated[
        Topology | None, typer.Option(help="Topology to draw.", metavar="NAME")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="File with the output of nvidia-smi topo -m, topo -p2p r, or -q -x, or lstopo XML.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="CLUSTER",
            help="Cluster file whose machine to show, a catalog machine, or e.g. 8xrtx-3090.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="Catalog GPU, if the source does not name it.",
            metavar="ID",
            autocompletion=complete_gpus,
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=72, help="Number of GPUs in the preset.")
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(help="SVG file for the drawing.", callback=check_output_file),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Draw a machine, by default this one, and show the bandwidth of its topology.

    Example: gpuyard topo --preset dual-root --gpu gtx-1080-ti --svg dual-root.svg
    """
    if context.invoked_subcommand is not None:
        return
    from gpuyard.api.topology import topology

    machine = topology(preset, gpu=gpu, gpus=gpus, on=on, file=from_file)
    show_with_drawing(machine, svg, json_output=json_output)


@app.command()
def compare(
    layouts: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPOLOGY",
            autocompletion=complete_list(Topology),
            help="Topologies, e.g. dual-root single-root.",
        ),
    ],
    *,
    workload: Annotated[
        str,
        typer.Option(
            metavar="WORKLOAD", help="Workload file (*.workload.yaml), or a catalog model."
        ),
    ] = "resnet50",
    gpu: CatalogGpuOption = "gtx-1080-ti",
    gpus: Annotated[
        str, typer.Option(metavar="N,N,…", help="Numbers of GPUs, e.g. 2,4,8.")
    ] = "2,4,8",
    batch: Annotated[int | None, typer.Option(min=1, help="Batch size per GPU.")] = None,
    precision: PrecisionOption = None,
    json_output: JsonOption = False,
) -> None:
    """Compare topologies by the throughput of a workload.

    Example: gpuyard topo compare dual-root single-root cascaded --workload resnet50 --gpu gtx-1080-ti
    """
    from gpuyard.api.topology import compare_topologies

    result = compare_topologies(
        layouts, workload=workload, gpu=gpu, gpus=gpus, batch=batch, precision=precision
    )
    show(result.answer, json_output=json_output)


@app.command()
def lanes(
    *,
    cpu: Annotated[
        str | None,
        typer.Option(
            help="Catalog CPU (default: all of them).", metavar="ID", autocompletion=complete_cpus
        ),
    ] = None,
    sockets: Annotated[int, typer.Option(min=1, max=8, help="CPUs in the machine.")] = 1,
    gpu: CatalogGpuOption = "rtx-4090",
    gpus: Annotated[int, typer.Option(min=1, max=72, help="Number of GPUs.")] = 4,
    nic: Annotated[
        str | None,
        typer.Option(
            help="Catalog link of the network cards.",
            metavar="LINK",
            autocompletion=complete_links,
        ),
    ] = None,
    nics: Annotated[int, typer.Option(min=1, max=32, help="Number of network cards.")] = 1,
    nvme: Annotated[int, typer.Option(min=0, max=32, help="Number of NVMe drives.")] = 1,
    json_output: JsonOption = False,
) -> None:
    """Show whether a CPU has enough PCIe lanes for a machine's GPUs, network cards, and drives.

    Example: gpuyard topo lanes --cpu epyc-7742 --gpu rtx-3090 --gpus 4 --nic infiniband-hdr
    """
    from gpuyard.api.topology import lanes as budget_lanes

    result = budget_lanes(cpu, sockets=sockets, gpu=gpu, gpus=gpus, nic=nic, nics=nics, drives=nvme)
    show(result.answer, json_output=json_output)


@app.command()
def rings(
    *,
    gpus: Annotated[int, typer.Option(min=2, max=12, help="Number of GPUs in the ring.")] = 4,
    size: Annotated[
        str, typer.Option("--bytes", help="Message size, e.g. 46MB.", metavar="SIZE")
    ] = "100MB",
    rate: Annotated[
        str, typer.Option(help="Rate of every link, e.g. 12GB/s or 10Gbit/s.", metavar="RATE")
    ] = "10Gbit/s",
    pieces: Annotated[
        int, typer.Option(min=2, max=16, help="Pieces of the pipelined broadcast.")
    ] = 4,
    svg: Annotated[
        Path | None,
        typer.Option(
            help="SVG file for the drawing of the all-reduce.", callback=check_output_file
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show a broadcast and an all-reduce over a ring step by step.

    Example: gpuyard topo rings --gpus 4 --bytes 46MB --rate 1Gbit/s --svg all-reduce.svg
    """
    from gpuyard.api.topology import rings as schedule_rings

    result = schedule_rings(gpus, size=size, rate=rate, pieces=pieces)
    show_with_drawing(result, svg, json_output=json_output)
