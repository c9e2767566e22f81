"""`gpuyard share`: make a server's GPUs leasable."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.output import writable_directory

app = typer.Typer(help="Set up the GPUs of a server to be leased.", no_args_is_help=True)

export = typer.Typer(help="Write the rules of a share for another scheduler.", no_args_is_help=True)
app.add_typer(export, name="export")


class Scheduler(StrEnum):
    """Who gives GPUs out."""

    LOCAL = "local"
    SLURM = "slurm"


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


@export.callback()
def export_group() -> None:
    """Write the rules of a share for another scheduler."""


@export.command()
def slurm(
    *,
    output: Annotated[
        Path, typer.Option(help="Directory to write into.", callback=writable_directory)
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the files instead of writing them.")
    ] = False,
) -> None:
    """Write slurm.conf, gres.conf, cgroup.conf and a script of accounts, QOS and limits, equal to today's rules.

    Example: gpuyard share export slurm --output slurm --dry-run
    """
    import sys

    from gpuyard.report.terminal import say
    from gpuyard.share.desk import open_to_look
    from gpuyard.share.slurm.accounts import accounts_of, admins_of
    from gpuyard.share.slurm.export import slurm_files, write_files

    desk = open_to_look()
    config = desk.config
    files = slurm_files(config, output, accounts_of(desk.history()), admins_of(config.admin_group))
    if dry_run:
        for name, text in files.texts.items():
            sys.stdout.write(f"==> {output / name} <==\n{text}\n")
        return
    write_files(files, output)
    say(f"Written to {output}: {', '.join(files.texts)}.")
    say("Put them into /etc/slurm, start Slurm, then run: gpuyard share use slurm")


@app.command()
def use(
    scheduler: Annotated[Scheduler, typer.Argument(help="Who gives the GPUs out from now on.")],
) -> None:
    """Send everybody's `gpuyard lease` through Slurm, or back to gpuyard's own leases.

    Example: gpuyard share use slurm
    """
    from gpuyard.report.terminal import say
    from gpuyard.share.location import share_directory
    from gpuyard.share.slurm.switch import use_local, use_slurm

    if scheduler is Scheduler.SLURM:
        use_slurm(share_directory())
        say("`gpuyard lease` goes through Slurm now; undo it with: gpuyard share use local")
        return
    caveat = use_local(share_directory())
    if caveat:
        say(caveat)
    say("`gpuyard lease` gives the GPUs out itself now.")


@app.command()
def drain(
    *,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Until when, like 'Mon 18:00' (default: until `resume`)."
        ),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="LIST", help="Which GPUs, by index (default: all).")
    ] = None,
) -> None:
    """Give no new leases, for maintenance; running ones go on. For admins.

    Example: gpuyard share drain --until "tomorrow 8:00"
    """
    import time

    from gpuyard.cli.lease_line import gpu_indices
    from gpuyard.report.terminal import say
    from gpuyard.share.desk import open_desk
    from gpuyard.share.when import parse_when, shown

    end = parse_when(until, time.time()) if until else None
    desk = open_desk()
    drained = desk.drain(gpu_indices(gpus), end)
    when = "`gpuyard share resume`" if drained.end is None else shown(drained.end)
    say(f"GPU {', '.join(map(str, drained.gpus))}: no new leases until {when}.")
    running = {
        lease.id for lease in desk.state().held if set(lease.gpus).intersection(drained.gpus)
    }
    if running:
        say(f"Leases that go on: {', '.join(sorted(running))}.")


@app.command()
def resume() -> None:
    """Lease again what was drained. For admins.

    Example: gpuyard share resume
    """
    from gpuyard.report.terminal import say
    from gpuyard.share.desk import open_desk

    if open_desk().resume():
        say("All GPUs can be leased again.")
    else:
        say("Nothing was drained.")
