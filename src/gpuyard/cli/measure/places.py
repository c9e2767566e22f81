"""Options for where workers run, how many run on each node, and which GPU they emulate."""

from typing import Annotated

import typer

from gpuyard.choices import Launcher
from gpuyard.cli.completion import complete_gpus

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
