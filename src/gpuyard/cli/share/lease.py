"""`gpuyard lease`: hold GPUs for a command, a shell, or the shell that asks."""

import sys
from typing import Annotated

import typer

from gpuyard.cli.share.lease_line import run_lease


def lease(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[N] -- COMMAND", help="How many GPUs, and the command after --."),
    ] = None,
    *,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="Longest time to hold them, like 2h (default: until the command ends).",
        ),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="LIST", help="Which GPUs, by index, like 3,4.")
    ] = None,
    share: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Only a part of each GPU, like 0.5.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Only this much memory of each, like 12GB.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Fail instead of waiting.")] = False,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait at most this long, like 10min.")
    ] = None,
    shell: Annotated[
        bool, typer.Option("--shell", help="Open a shell instead of running a command.")
    ] = False,
    export: Annotated[
        bool,
        typer.Option("--export", help='For eval "$(…)": hold them as long as this shell lives.'),
    ] = False,
    project: Annotated[str, typer.Option(help="Project that `usage` counts it under.")] = "",
) -> None:
    """Wait for free GPUs, run a command on them, and give them back when it ends.

    The command sees CUDA_VISIBLE_DEVICES and GPUYARD_LEASE, and its exit status is this command's. 75 means that
    --now or --wait found no GPUs.

    Example: gpuyard lease 2 -- python train.py
    """
    sys.exit(
        run_lease(
            what or [],
            for_=for_,
            gpus=gpus,
            share=share,
            memory=memory,
            now=now,
            wait=wait,
            shell=shell,
            export=export,
            project=project,
        )
    )
