"""`gpuyard share`: set up and administer the GPUs of a server that users lease."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import CommandVisibility, FairShareOwner, Topology, ViolationAction
from gpuyard.cli.options import GpuIdsOption
from gpuyard.cli.output import JsonOption, check_output_directory, show

app = typer.Typer(help="Set up the GPUs of a server for leases.", no_args_is_help=True)

export = typer.Typer(help="Write the rules of a share for another scheduler.", no_args_is_help=True)
app.add_typer(export, name="export")


class Scheduler(StrEnum):
    """Schedulers that can hand out the GPUs."""

    LOCAL = "local"
    SLURM = "slurm"


@app.callback()
def share() -> None:
    """Set up the GPUs of a server for leases."""


@app.command()
def setup(
    *,
    fake_gpus: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="Number of test GPUs instead of the real ones; 0 for the real ones.",
            show_default=False,
        ),
    ] = None,
    topology: Annotated[
        Topology | None, typer.Option(help="Topology of the test GPUs; see `topo`.")
    ] = None,
    admin_group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Unix group whose members can release any lease (default: gpuyard-admin).",
            show_default=False,
        ),
    ] = None,
    isolate: Annotated[
        bool | None,
        typer.Option(
            "--isolate/--no-isolate",
            help="As root: close the devices of other GPUs to a lease's processes, with cgroups.",
            show_default=False,
        ),
    ] = None,
    move: Annotated[
        bool,
        typer.Option(
            "--move",
            help="Take over a store that was set up on another machine or under another name.",
        ),
    ] = False,
    service: Annotated[
        bool,
        typer.Option(help="As root: start (or restart) the service that leases to other users."),
    ] = True,
) -> None:
    """Create the store and discover this machine's GPUs: as root for everyone, otherwise for yourself.

    If it exists, its leases, its policy, and the settings that you do not name stay.

    Example: gpuyard share setup --fake-gpus 8
    """
    from gpuyard.report.answers.share.leases import guard_sentence
    from gpuyard.report.terminal import print_line
    from gpuyard.share.config import setup_directory
    from gpuyard.share.setup import check_public_install, set_up

    directory = setup_directory()
    for_everyone = os.geteuid() == 0 and service
    if for_everyone:
        check_public_install(directory)
    config = set_up(
        directory,
        fake_gpus=fake_gpus,
        topology=topology,
        admin_group=admin_group,
        isolate=isolate,
        move=move,
    )
    kind = "test GPUs" if any(gpu.fake for gpu in config.gpus) else "GPUs"
    print_line(f"{len(config.gpus)} {kind} can be leased; the store is in {directory}.")
    print_line(guard_sentence(config.guard))
    if for_everyone:
        from gpuyard.share.service import restart_service

        print_line(restart_service(directory))


@app.command()
def restart() -> None:
    """Restart the lease service, for example after an upgrade. Leases and the queue stay, and clients wait.

    Example: gpuyard share restart
    """
    from gpuyard.report.terminal import print_line
    from gpuyard.share.client import owned_directory
    from gpuyard.share.service import restart_service

    print_line(restart_service(owned_directory()))


@app.command()
def serve() -> None:
    """Run the service that leases to other users, as the owner of the store; `setup` starts it.

    Example: gpuyard share serve
    """
    from gpuyard.report.terminal import print_line
    from gpuyard.share import service
    from gpuyard.share.client import owned_directory

    directory = owned_directory()
    os.chdir("/")  # so that every file system can be unmounted
    service.serve(directory, lambda: print_line(f"The lease service of {directory} is ready."))


@app.command()
def recover() -> None:
    """Replace a damaged store with a new one that has all current leases and everything else that can be read.

    Example: gpuyard share recover
    """
    from gpuyard.report.terminal import print_line
    from gpuyard.share import recovery
    from gpuyard.share.client import owned_directory

    recovered = recovery.recover(owned_directory())
    if recovered is None:
        print_line("The store is not damaged; nothing was changed.")
        return
    print_line(f"The damaged store is now {recovered.damaged}.")
    print_line(
        f"The new store has the {recovered.running} current leases, and what could be read: "
        f"{recovered.ended} past leases and {recovered.reservations} reservations."
    )


@export.callback()
def export_group() -> None:
    """Write the rules of a share for another scheduler."""


@export.command()
def slurm(
    *,
    output_dir: Annotated[
        Path,
        typer.Option(
            metavar="DIRECTORY",
            help="Directory to write the files to.",
            callback=check_output_directory,
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the files instead of writing them.")
    ] = False,
) -> None:
    """Write slurm.conf, gres.conf, cgroup.conf, and a script of accounts, QOS, and limits that equal the current rules.

    Example: gpuyard share export slurm --output-dir slurm --dry-run
    """
    import sys

    from gpuyard.report.terminal import print_line
    from gpuyard.share.client import open_reader
    from gpuyard.share.slurm.accounts import collect_accounts, list_admins
    from gpuyard.share.slurm.export import render_slurm_files, write_slurm_files

    client = open_reader()
    config = client.config
    accounts = collect_accounts(client.history(), config.rules)
    files = render_slurm_files(config, output_dir, accounts, list_admins(config.admin_group))
    if dry_run:
        for name, text in files.texts.items():
            sys.stdout.write(f"==> {output_dir / name} <==\n{text}\n")
        return
    write_slurm_files(files, output_dir)
    print_line(f"Written to {output_dir}: {', '.join(files.texts)}.")
    print_line("Put them into /etc/slurm, start Slurm, then run: gpuyard share use slurm")


@app.command()
def use(
    scheduler: Annotated[
        Scheduler, typer.Argument(help="Scheduler that hands out the GPUs from now on.")
    ],
) -> None:
    """Switch `gpuyard lease` for all users to Slurm, or back to gpuyard's own leases.

    Example: gpuyard share use slurm
    """
    from gpuyard.report.terminal import print_line
    from gpuyard.share.config import share_directory
    from gpuyard.share.slurm.switch import use_local, use_slurm

    if scheduler is Scheduler.SLURM:
        use_slurm(share_directory())
        print_line("`gpuyard lease` now uses Slurm; undo it with: gpuyard share use local")
        return
    use_local(share_directory())
    print_line("`gpuyard lease` now hands out the GPUs itself.")


@app.command()
def drain(
    *,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="End of the drain, like 'Mon 18:00' (default: until `resume`)."
        ),
    ] = None,
    gpu_ids: GpuIdsOption = None,
) -> None:
    """Grant no new leases of all or some GPUs, for maintenance; running ones continue. For admins.

    Example: gpuyard share drain --until "tomorrow 8:00"
    """
    import time

    from gpuyard.api.lease import parse_indices
    from gpuyard.report.terminal import print_line
    from gpuyard.share.client import open_client
    from gpuyard.share.timeparse import format_time, parse_time

    end = parse_time(until, time.time()) if until else None
    client = open_client()
    drained = client.drain(parse_indices(gpu_ids or ()), end)
    when = "`gpuyard share resume`" if drained.end is None else format_time(drained.end)
    print_line(f"GPU {', '.join(map(str, drained.gpus))}: no new leases until {when}.")
    running = {
        lease.id for lease in client.state().held if set(lease.gpus).intersection(drained.gpus)
    }
    if running:
        print_line(f"Leases that continue: {', '.join(sorted(running))}.")


@app.command()
def resume() -> None:
    """End all drains, so that GPUs can be leased again. For admins.

    Example: gpuyard share resume
    """
    from gpuyard.report.terminal import print_line
    from gpuyard.share.client import open_client

    if open_client().resume():
        print_line("All GPUs can be leased again.")
    else:
        print_line("No GPU was drained.")


@app.command()
def policy(
    *,
    half_life: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time after which past use counts half; users with less recent use go first.",
        ),
    ] = None,
    fair_share: Annotated[
        FairShareOwner | None, typer.Option(help="Owner whose use counts.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP=N", help="Maximum GPUs that a Unix group can hold at once."),
    ] = None,
    weekly_hours: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP=H", help="Maximum GPU-hours of a group in 7 days."),
    ] = None,
    group_priority: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP=N", help="Priority of a group; higher goes first (default: 0)."
        ),
    ] = None,
    max_gpus_per_user: Annotated[
        str | None,
        typer.Option(metavar="N", help="Maximum GPUs that one user can hold at once."),
    ] = None,
    max_lease: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Maximum time of a lease or reservation, like 24h."),
    ] = None,
    idle_grace: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time that a lease may be idle.")
    ] = None,
    on_violation: Annotated[
        ViolationAction | None, typer.Option(help="Action of `audit --enforce`.")
    ] = None,
    stop_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Grace period before a violation is stopped."),
    ] = None,
    keep_history: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time for which `usage` knows leases that have ended."),
    ] = None,
    commands: Annotated[
        CommandVisibility | None,
        typer.Option(help="Commands that users see; admins see all."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Show or set (as an admin) the order of the queue and the limits of groups. `none` removes a rule.

    Example: gpuyard share policy --half-life 7d --quota students=2 --group-priority staff=10
    """
    from gpuyard.api.share_rules import change_rules

    result = change_rules(
        half_life=half_life,
        fair_share=fair_share,
        quota=quota or (),
        weekly_hours=weekly_hours or (),
        group_priority=group_priority or (),
        max_gpus_per_user=max_gpus_per_user,
        max_lease=max_lease,
        idle_grace=idle_grace,
        on_violation=on_violation,
        stop_after=stop_after,
        keep_history=keep_history,
        commands=commands,
        dry_run=dry_run,
    )
    show(result.answer, json_output=json_output)
