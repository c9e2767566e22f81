"""`gpuyard deploy ssh-config`, `open`, `sync`, and `fetch`: work on a deployment from your own machine."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.deploy.options import FileArgument, report_progress
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, check_destination, show, write_verbatim
from gpuyard.errors import UserMistake

ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Files and folders to exclude, like '*.pt'; .git and .venv always are.",
        metavar="PATTERN",
    ),
]
open_app = typer.Typer(help="Open what runs on the head as if it ran here.", no_args_is_help=True)


def ssh_config(
    file: FileArgument,
    *,
    write: Annotated[
        bool, typer.Option("--write", help="Write them to a file that ~/.ssh/config includes.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the entries that --write added.")
    ] = False,
) -> None:
    """Print the entries with which ssh, VS Code, and JetBrains Gateway reach its machines.

    The entries are named DEPLOYMENT-MACHINE, and DEPLOYMENT-MACHINE-PERSON for each person in the file. Your other
    entries never change.

    Example: gpuyard deploy ssh-config examples/pair.deployment.yaml --write
    """
    from gpuyard.deploy.access.remote import require_hosts
    from gpuyard.deploy.access.ssh_config import remove_entries, render_entries, write_entries
    from gpuyard.deploy.deployment import load_deployment
    from gpuyard.report.terminal import print_line

    if write and remove:
        raise UserMistake("give --write or --remove, not both")
    loaded = load_deployment(file)
    if remove:
        removed = remove_entries(loaded.state)
        name = loaded.deployment.name
        print_line(f"Removed the entries of {name}." if removed else f"{name} has no entries.")
        return
    hosts = require_hosts(loaded, file)
    people = [user.name for user in loaded.deployment.users]
    if not write:
        write_verbatim(render_entries(loaded.state, hosts, people))
        return
    path = write_entries(loaded.state, hosts, people)
    names = ", ".join(f"{loaded.deployment.name}-{host.name}" for host in hosts)
    more = f" Add -PERSON to log in as {', '.join(people)}." if people else ""
    print_line(f"Wrote {path}, which ~/.ssh/config includes. Hosts: {names}.{more}")


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
    """Open a tunnel to JupyterLab on the head, and print its address with the token; Ctrl-C closes it.

    Example: gpuyard deploy open jupyter examples/pair.deployment.yaml
    """
    from gpuyard.deploy.access.notebook import open_notebook
    from gpuyard.deploy.access.remote import require_hosts
    from gpuyard.deploy.deployment import load_deployment
    from gpuyard.report.terminal import print_line

    loaded = load_deployment(file)
    head = require_hosts(loaded, file)[0]
    try:
        with open_notebook(loaded, head, port) as tunnel:
            # Python discards a KeyboardInterrupt that is raised while it collects garbage.
            signal.signal(signal.SIGINT, lambda *_: tunnel.close())
            sys.stdout.write(f"{tunnel.address}\n")
            sys.stdout.flush()
            print_line("JupyterLab is open at this address until you press Ctrl-C.")
            tunnel.wait()
    except KeyboardInterrupt:  # before JupyterLab answered
        return


def sync(
    file: FileArgument,
    folder: Annotated[Path, typer.Argument(help="Folder to copy.", show_default=False)],
    *,
    to: Annotated[
        str | None,
        typer.Option(help="Name in the shared storage (default: the folder's).", metavar="PATH"),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            help="Person in the file whom the copies belong to (default: your user name, or the only person).",
            metavar="NAME",
        ),
    ] = None,
    exclude: ExcludeOption = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete files there that the folder does not have.")
    ] = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Copy a folder to the shared storage, where every machine sees it. Only changed files are sent.

    Example: gpuyard deploy sync examples/pair.deployment.yaml examples --dry-run
    """
    from gpuyard.deploy.access.remote import choose_person, require_hosts
    from gpuyard.deploy.access.sync import plan_copy, run_copy
    from gpuyard.deploy.deployment import load_deployment
    from gpuyard.report.answers.deploy import sync_answer

    loaded = load_deployment(file)
    head = require_hosts(loaded, file)[0]
    owner = choose_person(loaded, user)
    plan = plan_copy(loaded, head, folder, to, exclude or (), delete=delete, owner=owner)
    with report_progress(f"Connecting to {head.name}", steps=False) as report:
        result = run_copy(loaded, plan, report, dry_run=dry_run)
    show(sync_answer(result, dry_run=dry_run), json_output=json_output)


def fetch(
    file: FileArgument,
    name: Annotated[
        str | None,
        typer.Argument(
            help="File or folder in the shared storage (default: all of it).", show_default=False
        ),
    ] = None,
    *,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Where the copy goes (default: its name, or DEPLOYMENT-shared for all of it, in this folder).",
            metavar="PATH",
            callback=check_destination,
        ),
    ] = None,
    exclude: ExcludeOption = None,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Copy files from the shared storage to this machine. Only new and changed files are sent; none is deleted.

    A file that was changed here later than there stays.

    Example: gpuyard deploy fetch examples/pair.deployment.yaml project/results --dry-run
    """
    from gpuyard.deploy.access.fetch import plan_fetch, run_fetch
    from gpuyard.deploy.access.remote import require_hosts
    from gpuyard.deploy.deployment import load_deployment
    from gpuyard.report.answers.deploy import fetch_answer

    loaded = load_deployment(file)
    head = require_hosts(loaded, file)[0]
    plan = plan_fetch(loaded, head, name, to, exclude or ())
    with report_progress(f"Connecting to {head.name}", steps=False) as report:
        result = run_fetch(loaded, plan, report, dry_run=dry_run)
    show(fetch_answer(result, dry_run=dry_run), json_output=json_output)
