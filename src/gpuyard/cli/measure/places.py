"""Options for where workers run, how many run on each node, and which GPU they emulate."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.choices import Launcher
from gpuyard.cli.completion import complete_gpus
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.run.places import Place

GpuOption = Annotated[
    str | None,
    typer.Option(
        help="Catalog GPU to emulate: steps take its time, gradients are exchanged for real.",
        metavar="ID",
        autocompletion=complete_gpus,
    ),
]
LabOption = Annotated[
    str | None,
    typer.Option(
        metavar="LAB", help="Run on the nodes of a running lab, or of a temporary one like 4x1Gbit."
    ),
]
HostsOption = Annotated[
    str | None,
    typer.Option(metavar="HOST,…", help="Run on these hosts over ssh, like node1,node2."),
]
SlurmOption = Annotated[
    bool, typer.Option("--slurm", help="Run on the nodes of this Slurm allocation.")
]
RanksPerNodeOption = Annotated[
    int | None,
    typer.Option(
        help="Workers per node with --lab, --hosts, or --slurm (default: one per GPU, or one without "
        "GPUs and in labs). Nodes are filled one after another.",
        min=1,
        metavar="N",
    ),
]
LauncherOption = Annotated[
    Launcher | None,
    typer.Option(help="Launcher of the workers (default: torchrun on several nodes, direct here)."),
]


@contextlib.contextmanager
def open_place(
    lab: str | None,
    hosts: str | None,
    *,
    slurm: bool = False,
    ranks_per_node: int | None = None,
    planning: bool = False,
) -> "Iterator[Place]":
    """Open the place that the options select; a temporary lab is removed at the end."""
    count = sum((lab is not None, hosts is not None, slurm))
    if count > 1:
        raise UserMistake("--lab, --hosts, and --slurm exclude each other")
    if ranks_per_node is not None and not count:
        raise UserMistake(
            "--ranks-per-node needs --lab, --hosts, or --slurm; on this machine, use --workers"
        )
    from gpuyard.run.places import LocalMachine, find_allocation, open_lab, reach_hosts

    if lab is not None:
        with open_lab(lab, ranks_per_node or 1, planning=planning) as nodes:
            yield nodes
    elif hosts is not None:
        yield reach_hosts([name.strip() for name in hosts.split(",")], ranks_per_node)
    elif slurm:
        yield find_allocation(ranks_per_node)
    else:
        yield LocalMachine()
