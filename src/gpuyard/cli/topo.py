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


@app.command()
def rings(
    *,
    gpus: Annotated[int, typer.Option(min=2, max=12, help="Number of GPUs in the ring.")] = 4,
    size: Annotated[str, typer.Option(help="Message size, e.g. 46MB.", metavar="BYTES")] = "100MB",
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

    Example: gpuyard topo rings --gpus 4 --size 46MB --rate 1Gbit/s --svg all-reduce.svg
    """
    from gpuyard import units
    from gpuyard.predictor.explain.rings import schedule_all_reduce, schedule_broadcast
    from gpuyard.report.answers.rings import rings_answer

    size_bytes, bytes_per_second = units.parse_bytes(size), units.parse_rate(rate)
    if size_bytes <= 0 or bytes_per_second <= 0:
        raise UserMistake("--size and --rate must be greater than 0")
    broadcasts = [
        schedule_broadcast(gpus, size_bytes, bytes_per_second, count) for count in (1, pieces)
    ]
    all_reduce = schedule_all_reduce(gpus, size_bytes, bytes_per_second)
    if svg is not None:
        from gpuyard.draw.rings import draw_schedule_svg
        from gpuyard.files import write_text

        write_text(svg, draw_schedule_svg(all_reduce))
    answer = rings_answer([*broadcasts, all_reduce], size_bytes, bytes_per_second)
    show(answer, json_output=json_output)
    if svg is not None:
        from gpuyard.report.terminal import print_line

        print_line(f"Wrote {svg}.")
