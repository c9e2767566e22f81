"""`gpuyard share`: make a server's GPUs leasable."""

import os
from typing import Annotated

import typer

app = typer.Typer(help="Set up the GPUs of a server to be leased.", no_args_is_help=True)


@app.callback()
def share() -> None:
    """Set up the GPUs of a server to be leased."""


@app.command()
def setup(
    *,
    fake_gpus: Annotated[
        int, typer.Option(min=0, max=64, help="Declare so many test GPUs instead of real ones.")
    ] = 0,
    topology: Annotated[
        str | None, typer.Option(help="Topology of the test GPUs, like dgx-1; see `topo`.")
    ] = None,
    admin_group: Annotated[
        str, typer.Option(help="Unix group whose members can release any lease.")
    ] = "gpuyard-admin",
    service: Annotated[
        bool, typer.Option(help="As root: start the service through which other users lease.")
    ] = True,
) -> None:
    """Make the store, and find this machine's GPUs. As root for everybody, else for yourself.

    Example: gpuyard share setup --fake-gpus 8
    """
    from gpuyard.report.terminal import say
    from gpuyard.share.location import setup_directory
    from gpuyard.share.setup import set_up

    directory = setup_directory()
    config = set_up(directory, fake_gpus=fake_gpus, topology=topology, admin_group=admin_group)
    kind = "test GPUs" if fake_gpus else "GPUs"
    say(f"{len(config.gpus)} {kind} can be leased; the store is in {directory}.")
    if os.geteuid() == 0 and service:
        from gpuyard.share.background import start_service

        say(start_service(directory))


@app.command()
def serve() -> None:
    """Answer other users who lease, as the store's owner; `setup` starts it.

    Example: gpuyard share serve
    """
    from gpuyard.report.terminal import say
    from gpuyard.share.desk import owned_directory
    from gpuyard.share.service import serve as answer

    directory = owned_directory()
    os.chdir("/")  # no file system is kept busy
    answer(directory, lambda: say(f"The lease service of {directory} answers."))


@app.command()
def recover() -> None:
    """Put a damaged store aside and make a new one with all leases that are held now.

    Example: gpuyard share recover
    """
    from gpuyard.report.terminal import say
    from gpuyard.share.desk import owned_directory
    from gpuyard.share.recovery import recover as make_anew

    aside, running = make_anew(owned_directory())
    if aside is None:
        say("Nothing is wrong with the store; it was left as it is.")
        return
    say(f"The damaged store is now {aside}; the history of leases is in it.")
    say(f"The new one has the {len(running)} leases that are held now.")
