"""`gpuyard bench collectives`: time all-reduce and other collectives over real links, by size."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import Backend, Collective
from gpuyard.cli.completion import complete_list
from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.measure.places import (
    HostsOption,
    LabOption,
    RanksPerNodeOption,
    SlurmOption,
)
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import GpuyardError, UserMistake


def collectives(
    *,
    operations: Annotated[
        str,
        typer.Option(
            "--op",
            metavar="NAME,…",
            autocompletion=complete_list(Collective),
            help="A list of all_reduce, broadcast, reduce, all_gather, and reduce_scatter; or all.",
        ),
    ] = "all_reduce",
    size: Annotated[
        str, typer.Option("--bytes", metavar="SIZE,…", help="Sizes, e.g. 1KB..1GB or 1MB,10MB.")
    ] = "1KB..16MB",
    factor: Annotated[int, typer.Option(help="Factor between two sizes of a range.")] = 4,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Workers in total (default: 2 here, or as many as the nodes have slots)."
        ),
    ] = None,
    lab: LabOption = None,
    hosts: HostsOption = None,
    slurm: SlurmOption = False,
    ranks_per_node: RanksPerNodeOption = None,
    link: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Nominal rate of each host's link, like '10 Gbit/s'."),
    ] = None,
    backend: Annotated[
        Backend | None,
        typer.Option(help="Library that communicates (default: nccl with GPUs, gloo without)."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Number of repeats per size.")] = 5,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Judge this output of nccl-tests, rccl-tests, OSU, ib_write_bw, p2pBandwidthLatencyTest, "
            "nvbandwidth, lspci -vv, or nvidia-smi -q, and measure nothing; - reads standard input.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="CLUSTER", help="With --from: the machine or cluster, e.g. 8xh100."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=2, help="With --from: the number of GPUs, if the file does not say it."),
    ] = None,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Time collectives by size, check their results, and report whether the speed is normal.

    Bandwidths are defined as in nccl-tests. Each is compared with the model's rate for the link. If it is more
    than 25% below, gpuyard lists the likely causes.

    Example: gpuyard bench collectives --lab 4x1Gbit --op all_reduce,broadcast --bytes 1KB..64MB

    Example: gpuyard bench collectives --from nccl.log --on 8xh200
    """
    if from_file is not None:
        from gpuyard.api.tool_output import judge_tool_output

        judged = judge_tool_output(from_file, on=on, gpus=gpus, link=link).answer
        show(judged, json_output=json_output)
        if judged.document["verdict"] == "wrong":
            raise typer.Exit(1)
        return
    if on is not None or gpus is not None:
        raise UserMistake("--on and --gpus need --from FILE; to measure, use --workers and --hosts")
    from gpuyard.api.hardware_bench import collectives as measure_collectives

    run = partial(
        measure_collectives,
        operations,
        size=size,
        factor=factor,
        workers=workers,
        lab=lab,
        hosts=hosts,
        slurm=slurm,
        ranks_per_node=ranks_per_node,
        link=link,
        backend=backend,
        repeats=repeats,
    )
    bench = run_bench(run, dry_run=dry_run, json_output=json_output)
    wrong = [row for row in bench.rows if not row.correct] if bench else []
    if wrong:
        raise GpuyardError(
            f"{wrong[0].operation} of {wrong[0].bytes} bytes and {len(wrong) - 1} others gave a wrong "
            "result; check memory, network cards, and drivers before you train over this network"
        )
