"""`gpuyard bench collectives`: all-reduce and its like over real links, by size, and is that normal?"""

from typing import Annotated

import typer

from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.measure.places import (
    HostsOption,
    LabOption,
    RanksPerNodeOption,
    SlurmOption,
    chosen_place,
)
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption
from gpuyard.errors import GpuyardError


def collectives(
    *,
    operations: Annotated[
        str,
        typer.Option(
            "--op",
            help="all_reduce, broadcast, reduce, all_gather, reduce_scatter; a list, or all.",
        ),
    ] = "all_reduce",
    size: Annotated[
        str, typer.Option("--bytes", help="Sizes, e.g. 1KB..1GB or 1MB,10MB.")
    ] = "1KB..16MB",
    factor: Annotated[int, typer.Option(help="Factor between two sizes of a range.")] = 4,
    workers: Annotated[
        int | None,
        typer.Option(help="Workers in total; else 2 here, or as many as the nodes have room for."),
    ] = None,
    lab: LabOption = None,
    hosts: HostsOption = None,
    slurm: SlurmOption = False,
    ranks_per_node: RanksPerNodeOption = None,
    link: Annotated[
        str | None, typer.Option(help="What each host's link should give, like '10 Gbit/s'.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="gloo, nccl or mpi; else NCCL with GPUs and gloo without.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="How often each size is timed.")] = 5,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Time collectives by size, check their results, and say whether the speed is normal.

    Bandwidths are those of nccl-tests. Each is compared with what the model expects of the link; where it
    is more than 25 % below that, the likely causes are named.

    Example: gpuyard bench collectives --lab 4x1Gbit --op all_reduce,broadcast --bytes 1KB..64MB
    """
    from gpuyard import units
    from gpuyard.measure.collectives.plan import OPERATIONS, parse_sizes, plan_collectives
    from gpuyard.measure.collectives.run import run_collectives

    sizes = parse_sizes(size, factor)
    named = OPERATIONS if operations == "all" else operations.split(",")
    rate = units.parse_rate(link) if link is not None else None
    with chosen_place(
        lab, hosts, slurm=slurm, ranks_per_node=ranks_per_node, planning=dry_run
    ) as place:
        plan = plan_collectives(
            place,
            sum(place.ranks_by_node) if workers is None else workers,
            [operation.strip() for operation in named],
            sizes,
            backend=backend,
            link_bytes_per_second=rate,
            repeats=repeats,
        )
        bench = run_bench(plan, run_collectives, dry_run=dry_run, json_output=json_output)
    wrong = [result for result in bench.results if not result.correct] if bench else []
    if wrong:
        raise GpuyardError(
            f"{wrong[0].operation} of {wrong[0].bytes} bytes gave a wrong result, and {len(wrong) - 1} "
            "more did: don't train over this network before memory, cards and drivers are checked"
        )
