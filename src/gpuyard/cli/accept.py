"""`gpuyard accept`: check a delivered cluster."""

from functools import partial
from typing import Annotated

import typer

from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.measure.places import HostsOption, LabOption, SlurmOption
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, PageOption
from gpuyard.errors import GpuyardError


def accept(
    cluster: Annotated[
        str,
        typer.Argument(
            help="The cluster as ordered: a *.cluster.yaml, a short name like 8x8xh100@ndr, or the "
            "*.deployment.yaml of a deployment that is up.",
        ),
    ],
    *,
    hosts: HostsOption = None,
    slurm: SlurmOption = False,
    lab: LabOption = None,
    time: Annotated[
        str,
        typer.Option(
            help="Time for the whole run; phases are shortened or left out to fit.", metavar="TIME"
        ),
    ] = "30 min",
    phases: Annotated[
        str,
        typer.Option(
            "--checks",
            help="Checks to run: inventory (always read), alone, pairs, all, and training.",
            metavar="LIST",
        ),
    ] = "inventory,alone,pairs,all,training",
    storage: Annotated[
        str,
        typer.Option(
            "--scratch",
            help="Directory on each node whose storage is timed, or 'none'.",
            metavar="DIRECTORY",
        ),
    ] = "/var/tmp",  # noqa: S108 - on a disk of the node, unlike /tmp
    price: Annotated[
        str | None,
        typer.Option(
            help="Price of all machines, like '$98/h' (default: the deployment's rent, or the "
            "cheapest in the catalog).",
            metavar="PRICE",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over, even if an earlier run was stopped.")
    ] = False,
    dry_run: DryRunOption = False,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Check a delivered cluster, and name the nodes and links that are not as ordered.

    It reads the parts of every node, times each node alone, pairs of nodes in log₂ n rounds, an all-reduce over all
    nodes, and a training step. It compares them with the spec, with the prediction, and with each other. If the
    all-reduce is slow for an unknown reason, it measures halves of the nodes until it finds the cause. If you stop it
    and run it again, it continues. The exit status is 0 if the cluster is accepted, and 1 if it is not.

    Example: gpuyard accept 8x8xh100@ndr --slurm --time 30min --html acceptance.html
    """
    from gpuyard.api.accept import accept as accept_cluster

    run = partial(
        accept_cluster,
        cluster,
        hosts=hosts,
        slurm=slurm,
        lab=lab,
        time=time,
        phases=phases,
        storage=None if storage == "none" else storage,
        price=price,
        fresh=fresh,
    )
    result = run_bench(run, dry_run=dry_run, json_output=json_output, html=html)
    if result and not result.accepted:
        raise GpuyardError(
            f"{result.cluster} is not accepted; repair what failed, and run the same command again"
        )
