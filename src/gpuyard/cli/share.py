"""`gpuyard share`: make a server's GPUs leasable."""

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
