"""`gpuyard share`: make a server's GPUs leasable."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show, writable_directory
from gpuyard.errors import UserMistake

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
        int, typer.Option(min=0, max=64, help="Declare this many test GPUs instead of real ones.")
    ] = 0,
    topology: Annotated[
        str | None, typer.Option(help="Topology of the test GPUs, like nvlink-pairs; see `topo`.")
    ] = None,
    admin_group: Annotated[
        str, typer.Option(help="Unix group whose members can release any lease.")
    ] = "gpuyard-admin",
    isolate: Annotated[
        bool | None,
        typer.Option(
            "--isolate/--no-isolate",
            help="As root: close the devices of other GPUs to a lease's processes, by cgroups.",
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
        bool, typer.Option(help="As root: start the service through which other users lease.")
    ] = True,
) -> None:
    """Make the store, and find this machine's GPUs. As root for everybody, else for yourself.

    Example: gpuyard share setup --fake-gpus 8
    """
    from gpuyard.report.answers.share.leases import guard_sentence
    from gpuyard.report.terminal import say
    from gpuyard.share.setup import set_up
    from gpuyard.share.store.config import setup_directory

    directory = setup_directory()
    config = set_up(
        directory,
        fake_gpus=fake_gpus,
        topology=topology,
        admin_group=admin_group,
        isolate=isolate,
        move=move,
    )
    kind = "test GPUs" if fake_gpus else "GPUs"
    say(f"{len(config.gpus)} {kind} can be leased; the store is in {directory}.")
    say(guard_sentence(config.guard))
    if os.geteuid() == 0 and service:
        from gpuyard.share.service.background import start_service

        say(start_service(directory))


@app.command()
def serve() -> None:
    """Answer other users who lease, as the store's owner; `setup` starts it.

    Example: gpuyard share serve
    """
    from gpuyard.report.terminal import say
    from gpuyard.share.service.desk import owned_directory
    from gpuyard.share.service.service import serve as answer

    directory = owned_directory()
    os.chdir("/")  # no file system is kept busy
    answer(directory, lambda: say(f"The lease service of {directory} answers."))


@app.command()
def recover() -> None:
    """Put a damaged store aside and make a new one with all leases that are held, and all else that can be read.

    Example: gpuyard share recover
    """
    from gpuyard.report.terminal import say
    from gpuyard.share.service.desk import owned_directory
    from gpuyard.share.store.recovery import recover as make_anew

    made = make_anew(owned_directory())
    if made is None:
        say("Nothing is wrong with the store; it was left as it is.")
        return
    say(f"The damaged store is now {made.aside}.")
    say(
        f"The new one has the {made.running} leases that are held now, and what could be read: "
        f"{made.ended} that have ended, {made.reservations} reservations."
    )


@export.callback()
def export_group() -> None:
    """Write the rules of a share for another scheduler."""


@export.command()
def slurm(
    *,
    output: Annotated[
        Path,
        typer.Option(metavar="DIRECTORY", help="Where to write them.", callback=writable_directory),
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
    from gpuyard.share.service.desk import open_to_look
    from gpuyard.share.slurm.accounts import accounts_of, admins_of
    from gpuyard.share.slurm.export import slurm_files, write_files

    desk = open_to_look()
    config = desk.config
    accounts = accounts_of(desk.history(), config.rules)
    files = slurm_files(config, output, accounts, admins_of(config.admin_group))
    if dry_run:
        for name, text in files.texts.items():
            sys.stdout.write(f"==> {output / name} <==\n{text}\n")
        return
    write_files(files, output)
    say(f"Written to {output}: {', '.join(files.texts)}.")
    say("Put them into /etc/slurm, start Slurm, then run: gpuyard share use slurm")


@app.command()
def use(
    scheduler: Annotated[
        Scheduler, typer.Argument(help="Scheduler that hands out the GPUs from now on.")
    ],
) -> None:
    """Send everybody's `gpuyard lease` through Slurm, or back to gpuyard's own leases.

    Example: gpuyard share use slurm
    """
    from gpuyard.report.terminal import say
    from gpuyard.share.slurm.switch import use_local, use_slurm
    from gpuyard.share.store.config import share_directory

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

    from gpuyard.cli.share.lease_line import gpu_indices
    from gpuyard.report.terminal import say
    from gpuyard.share.service.desk import open_desk
    from gpuyard.share.turns.when import parse_when, shown

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
    from gpuyard.share.service.desk import open_desk

    if open_desk().resume():
        say("All GPUs can be leased again.")
    else:
        say("Nothing was drained.")


@app.command()
def policy(
    *,
    half_life: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Who used less lately goes first; older use counts half per half-life.",
        ),
    ] = None,
    fair_share: Annotated[
        str | None, typer.Option(metavar="BY", help="Whose use counts: user or group.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP=N", help="Most GPUs that a Unix group may hold at once."),
    ] = None,
    weekly_hours: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP=H", help="Most GPU-hours of a group in 7 days."),
    ] = None,
    priority: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP=N", help="Higher goes first (default: 0)."),
    ] = None,
    idle_grace: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long a lease may be idle.")
    ] = None,
    on_violation: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="What `audit --enforce` does: none, warn, stop."),
    ] = None,
    stop_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With stop: how long after it was first seen."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Show who comes first and who may hold how much, or set it (admins). `none` removes a rule.

    Example: gpuyard share policy --half-life 7d --quota students=2 --priority staff=10
    """
    from gpuyard.report.answer import Answer, Table
    from gpuyard.share.service.desk import open_desk, open_to_look
    from gpuyard.share.turns.rules import Rules
    from gpuyard.units import parse_seconds

    given = locals()
    now = open_to_look().config.rules.document()
    wanted = dict(now)
    for name in ("half_life", "idle_grace", "stop_after"):
        if given[name]:
            none = name == "half_life" and given[name] == "none"
            wanted[f"{name}_seconds"] = None if none else parse_seconds(given[name])
    for name in ("fair_share", "on_violation"):
        wanted[name] = given[name] or wanted[name]
    for name, words in (
        ("quotas", quota),
        ("weekly_hours", weekly_hours),
        ("priorities", priority),
    ):
        wanted[name] = _with_groups(
            now[name], words or [], float if name == "weekly_hours" else int
        )
    rules = Rules.from_document(wanted)
    if wanted != now and not dry_run:
        open_desk().set_rules(rules)
    rows = [[name.replace("_", " "), _rule(value)] for name, value in rules.document().items()]
    title = "Would be" if dry_run else ""
    show(
        Answer([Table(title, ("policy", "value"), rows)], rules.document(), verb="share"),
        json_output=json_output,
    )


def _with_groups(now: dict[str, float], words: list[str], number: type[float]) -> dict[str, float]:
    """ "students=2" added, "students=none" taken away."""
    found = dict(now)
    for word in words:
        group, _, value = word.partition("=")
        try:
            if value == "none":
                found.pop(group, None)
            else:
                found[group] = number(value)
        except ValueError:
            group = ""
        if not group:
            raise UserMistake(f"expected a group and a number like students=2, got {word!r}")
    return found


def _rule(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{group}={limit:g}" for group, limit in value.items()) or "none"
    return "none" if value is None else str(value)
