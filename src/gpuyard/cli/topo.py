"""`gpuyard topo`: show how the GPUs of a machine are connected, and the resulting bandwidth."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import PrecisionOption
from gpuyard.cli.output import JsonOption, check_output_file, show
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    pass

app = typer.Typer(help="Show how the GPUs of a machine are connected.", invoke_without_command=True)


@app.callback()
def topo(
    context: typer.Context,
    *,
    preset: Annotated[
        str | None, typer.Option(help="Name of a topology, e.g. dual-root.", metavar="NAME")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Output of nvidia-smi topo -m, topo -p2p r, or -q -x, or lstopo XML.",
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
        typer.Option(help="Catalog GPU, if the source does not name it.", metavar="ID"),
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
    if svg is not None:
        from gpuyard.files import write_text

        write_text(svg, machine.svg())
    show(machine.answer, json_output=json_output)
    if svg is not None:
        from gpuyard.report.terminal import print_line

        print_line(f"Wrote {svg}.")


@app.command()
def compare(
    layouts: Annotated[list[str], typer.Argument(help="Topologies, e.g. dual-root single-root.")],
    *,
    workload: Annotated[
        str, typer.Option(help="Workload file (*.workload.yaml), or a catalog model.")
    ] = "resnet50",
    gpu: Annotated[str, typer.Option(help="Catalog GPU.", metavar="ID")] = "gtx-1080-ti",
    gpus: Annotated[str, typer.Option(help="Numbers of GPUs, e.g. 2,4,8.")] = "2,4,8",
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
        typer.Option(help="Catalog CPU (default: all of them).", metavar="ID"),
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
    """Show whether a CPU has enough PCIe lanes for a machine's GPUs, network cards, and drives.

    Example: gpuyard topo lanes --cpu epyc-7742 --gpu rtx-3090 --gpus 4 --nic infiniband-hdr
    """
    from gpuyard.catalog import gpus as catalog_gpus
    from gpuyard.catalog import links
    from gpuyard.catalog.hardware import cpus
    from gpuyard.hardware.lanes import create_lane_budget
    from gpuyard.report.answers.topology import all_lanes_answer, cpu_lanes_answer

    model = catalog_gpus().get(gpu)
    card = links().get(nic) if nic else None
    if card is not None and card.kind not in ("ethernet", "infiniband"):
        raise UserMistake(f"--nic: {nic} connects GPUs inside a machine, not machines")
    candidates = [cpus().get(cpu)] if cpu else [c for c in cpus() if c.max_sockets >= sockets]
    budgets = [
        create_lane_budget(c, sockets, model, gpus, nic=card, nics=nics, drives=nvme)
        for c in candidates
    ]
    answer = all_lanes_answer(budgets) if cpu is None else cpu_lanes_answer(budgets[0])
    show(answer, json_output=json_output)
