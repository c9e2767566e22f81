"""The options that say where workers run, and with which GPU they pretend to compute."""

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
        help="A catalog GPU to stand for: steps take its time, gradients are exchanged for real.",
        metavar="ID",
    ),
]
LabOption = Annotated[
    str | None,
    typer.Option(help="A lab that is up, or one for this run like 4x1Gbit; a worker a node."),
]
HostsOption = Annotated[
    str | None,
    typer.Option(help="Hosts to start workers on over ssh, like node1,node2; one on each."),
]
SlurmOption = Annotated[
    bool, typer.Option("--slurm", help="Start a worker on each node of this Slurm allocation.")
]

LauncherOption = Annotated[
    str | None,
    typer.Option(
        help="Who starts the ranks: torchrun or direct; else torchrun over nodes and hosts, direct here."
    ),
]


@contextlib.contextmanager
def chosen_place(
    lab: str | None, hosts: str | None, *, slurm: bool = False, planning: bool = False
) -> "Iterator[Place]":
    """The place that was asked for; a lab for this run is up as long as this lasts."""
    if sum((lab is not None, hosts is not None, slurm)) > 1:
        raise UserMistake("--lab, --hosts and --slurm exclude each other")
    from gpuyard.run.places import Here, Hosts, allocation

    if lab is not None:
        with _nodes(lab, planning=planning) as nodes:
            yield nodes
    elif hosts is not None:
        yield Hosts(tuple(name.strip() for name in hosts.split(",")))
    elif slurm:
        yield allocation()
    else:
        yield Here()


@contextlib.contextmanager
def _nodes(text: str, *, planning: bool) -> "Iterator[Place]":
    import os

    from gpuyard import lab
    from gpuyard.run.places import LabNodes

    plan = lab.plan_from_text(text, name=f"bench-{os.getpid()}")
    if plan is None:
        found = lab.find(text)
        with found.held():
            yield LabNodes(found.plan, found)
    elif planning:
        yield LabNodes(plan)
    else:
        with lab.temporary(plan) as made:
            yield LabNodes(made.plan, made)
