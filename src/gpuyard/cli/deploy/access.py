"""`gpuyard deploy ssh-config`, `open` and `sync`: a deployment from the machine where people work."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.deploy.options import FileArgument, telling
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, show, write_exactly
from gpuyard.errors import UserMistake

open_app = typer.Typer(help="Open what runs on the head as if it ran here.", no_args_is_help=True)


def ssh_config(
    file: FileArgument,
    *,
    write: Annotated[
        bool, typer.Option("--write", help="Put them into a file that ~/.ssh/config includes.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove what --write has put there.")
    ] = False,
) -> None:
    """Print the entries with which ssh, VS Code and JetBrains Gateway reach its machines.

    Machines are called DEPLOYMENT-MACHINE there. Your other entries are never touched.

    Example: gpuyard deploy ssh-config examples/pair.deployment.yaml --write
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.deploy.access.remote import hosts_of
    from gpuyard.deploy.access.ssh_entries import entries, remove_entries, write_entries
    from gpuyard.report.terminal import say

    if write and remove:
        raise UserMistake("give --write or --remove, not both")
    opened = room.open_deployment(file)
    if remove:
        gone = remove_entries(opened.state)
        name = opened.deployment.name
        say(f"Removed the entries of {name}." if gone else f"{name} has no entries there.")
        return
    hosts = hosts_of(opened, file)
    if not write:
        write_exactly(entries(opened.state, hosts))
        return
    path = write_entries(opened.state, hosts)
    names = ", ".join(f"{opened.deployment.name}-{host.name}" for host in hosts)
    say(f"Wrote {path}, which ~/.ssh/config includes. Hosts: {names}.")


@open_app.callback()
def open_() -> None:
    """Open what runs on the head as if it ran here."""


@open_app.command()
def jupyter(
    file: FileArgument,
    *,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Local port (default: 8888, or a free one)."),
    ] = None,
) -> None:
    """Make a tunnel to JupyterLab on the head and print its address, with the token; Ctrl-C ends it.

    Example: gpuyard deploy open jupyter examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.deploy.access.notebook import open_notebook
    from gpuyard.deploy.access.remote import hosts_of
    from gpuyard.report.terminal import say

    opened = room.open_deployment(file)
    head = hosts_of(opened, file)[0]
    try:
        with open_notebook(opened, head, port) as tunnel:
            sys.stdout.write(f"{tunnel.address}\n")
            sys.stdout.flush()
            say("JupyterLab is open at this address until you press Ctrl-C.")
            tunnel.wait()
    except KeyboardInterrupt:  # as it is meant to end
        return


def sync(
    file: FileArgument,
    folder: Annotated[Path, typer.Argument(help="What to copy.", show_default=False)],
    *,
    to: Annotated[
        str | None,
        typer.Option(
            help="Its name in the shared storage (default: the folder's).", metavar="NAME"
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out files and folders of this name, like '*.pt'; .git and .venv always are.",
            metavar="PATTERN",
        ),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete there what the folder does not have.")
    ] = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Copy a folder to the shared storage, where every machine sees it; only what has changed.

    Example: gpuyard deploy sync examples/pair.deployment.yaml examples --dry-run
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.deploy.access.remote import hosts_of
    from gpuyard.deploy.access.sync import plan_copy, run_copy
    from gpuyard.report.answers.deploy import sync_answer

    opened = room.open_deployment(file)
    head = hosts_of(opened, file)[0]
    copy = plan_copy(opened, head, folder, to, exclude or (), delete=delete)
    with telling(f"Reaching {head.name}") as tell:
        copied = run_copy(opened, copy, tell, dry_run=dry_run)
    show(sync_answer(copied, dry_run=dry_run), json_output=json_output)
