"""The options that say where workers run, how many on each node, and which GPU they stand for."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.run.places import Place

GpuOption = Annotated[
    str | None,
    typer.Option(
        help="Catalog GPU to emulate: steps take its time, gradients are exchanged for real.",
        metavar="ID",
    ),
]
LabOption = Annotated[
    str | None,
    typer.Option(help="Run on the nodes of a lab that is up, or of one for this run: 4x1Gbit."),
]
HostsOption = Annotated[
    str | None, typer.Option(help="Run on these hosts over ssh, like node1,node2.")
]
SlurmOption = Annotated[
    bool, typer.Option("--slurm", help="Run on the nodes of this Slurm allocation.")
]
RanksPerNodeOption = Annotated[
    int | None,
    typer.Option(
        help="Workers per node with --lab, --hosts or --slurm; else one per GPU, or one without "
        "GPUs and in labs. Nodes are filled one after the other.",
        min=1,
        metavar="N",
    ),
]
LauncherOption = Annotated[
    str | None,
    typer.Option(
        help="What starts the workers: torchrun or direct; else torchrun over nodes, direct here."
    ),
]


@contextlib.contextmanager
def chosen_place(
    lab: str | None,
    hosts: str | None,
    *,
    slurm: bool = False,
    ranks_per_node: int | None = None,
    planning: bool = False,
) -> "Iterator[Place]":
    """The place that was asked for; a lab for this run is up as long as this lasts."""
    asked = sum((lab is not None, hosts is not None, slurm))
    if asked > 1:
        raise UserMistake("--lab, --hosts and --slurm exclude each other")
    if ranks_per_node is not None and not asked:
        raise UserMistake(
            "--ranks-per-node goes with --lab, --hosts or --slurm; on this machine alone "
            "--workers says how many there are"
        )
    from gpuyard.run.places import Here, allocation, reach_hosts

    if lab is not None:
        with _nodes(lab, ranks_per_node or 1, planning=planning) as nodes:
            yield nodes
    elif hosts is not None:
        yield reach_hosts([name.strip() for name in hosts.split(",")], ranks_per_node)
    elif slurm:
        yield allocation(ranks_per_node)
    else:
        yield Here()


@contextlib.contextmanager
def _nodes(text: str, ranks_per_node: int, *, planning: bool) -> "Iterator[Place]":
    import os

    from gpuyard import lab
    from gpuyard.run.places import LabNodes

    plan = lab.plan_from_text(text, name=f"bench-{os.getpid()}")
    if plan is None:
        found = lab.find(text)
        with found.held():
            yield LabNodes(found.plan, found, ranks_per_node)
        return
    planned = LabNodes(plan, ranks_per_node=ranks_per_node)
    with contextlib.nullcontext(planned) if planning else planned.up() as nodes:
        yield nodes
