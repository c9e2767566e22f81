"""`gpuyard deploy`: from a description to a cluster that trains."""

import os
from typing import Annotated

import typer

from gpuyard.cli.deploy.access import open_app, ssh_config, sync
from gpuyard.cli.deploy.bench import bench
from gpuyard.cli.deploy.cost import cost
from gpuyard.cli.deploy.options import (
    AskSudoPasswordOption,
    FileArgument,
    opened_with_password,
    take_sudo_password,
    telling,
)
from gpuyard.cli.measure.bench.running import results_store
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UnknownName

app = typer.Typer(
    help="Build the cluster that a file describes, and prove that it works.", no_args_is_help=True
)
app.command("ssh-config")(ssh_config)
app.add_typer(open_app, name="open")
app.command()(sync)
app.command()(cost)
app.command()(bench)


@app.callback()
def deploy(context: typer.Context) -> None:
    """Build the cluster that a file describes, and prove that it works."""
    from gpuyard.deploy.clouds.ttl import watch_all

    context.obj = take_sudo_password()
    watch_all()


@app.command()
def plan(file: FileArgument, *, json_output: JsonOption = False) -> None:
    """Show its machines, what `up` would change, and what it costs per hour. Changes nothing.

    Example: gpuyard deploy plan examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.report.answers.deploy import plan_answer

    opened = room.open_deployment(file)
    with telling("Asking Terraform what would change"):
        planned = room.plan(opened)
    show(plan_answer(planned), json_output=json_output)


@app.command()
def up(
    context: typer.Context,
    file: FileArgument,
    *,
    ask_sudo_password: AskSudoPasswordOption = False,
    json_output: JsonOption = False,
) -> None:
    """Make its machines and apply their roles. A second time changes nothing; one that was interrupted continues.

    Example: gpuyard deploy up examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.deploy.access.ssh_entries import entries_file, write_entries
    from gpuyard.report.answers.deploy import up_answer

    opened, password = opened_with_password(context, file, ask=ask_sudo_password)
    with telling("Making machines") as tell:
        changes, outcome = room.up(opened, tell, password)
    if entries_file(opened.state).exists():  # its machines may have other addresses now
        write_entries(opened.state, opened.state.hosts())
    show(up_answer(opened, changes, outcome, file), json_output=json_output)


@app.command()
def verify(
    context: typer.Context,
    file: FileArgument,
    *,
    ask_sudo_password: AskSudoPasswordOption = False,
    json_output: JsonOption = False,
) -> None:
    """Check on the machines themselves that everything works; exits 1 where something does not.

    Example: gpuyard deploy verify examples/pair.deployment.yaml
    """
    from gpuyard.deploy.verify import verify as check
    from gpuyard.report.answers.deploy import verify_answer

    opened, password = opened_with_password(context, file, ask=ask_sudo_password)
    with telling("Reaching every machine") as tell:
        verdict = check(opened, results_store(), tell, password)
    show(verify_answer(verdict), json_output=json_output)
    if not verdict.ok:
        raise typer.Exit(1)


@app.command()
def status(*, json_output: JsonOption = False) -> None:
    """List the deployments that have been brought up from here, and their machines.

    Example: gpuyard deploy status
    """
    from gpuyard.deploy.clouds.ttl import end_of
    from gpuyard.deploy.state import StateDirectory, deployments
    from gpuyard.report.answers.deploy import status_answer

    known = [StateDirectory(name) for name in deployments()]
    ends = {state.name: end.when for state in known if (end := end_of(state)) is not None}
    show(
        status_answer([(state.name, state.hosts()) for state in known], ends),
        json_output=json_output,
    )


@app.command(context_settings={"ignore_unknown_options": True})
def ssh(
    file: FileArgument,
    machine: Annotated[str | None, typer.Argument(help="Its name (default: the head).")] = None,
    command: Annotated[
        list[str] | None, typer.Argument(help="A command to run there (default: a shell).")
    ] = None,
) -> None:
    """Log in to a machine, or run a command on it.

    Example: gpuyard deploy ssh examples/pair.deployment.yaml node1
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.deploy.access.remote import hosts_of

    opened = room.open_deployment(file)
    hosts = hosts_of(opened, file)
    names = [host.name for host in hosts]
    name = machine or names[0]
    if name not in names:
        raise UnknownName("machine", name, names)
    os.execvp(  # noqa: S606  becomes ssh, with the terminal
        "ssh",  # noqa: S607
        ["ssh", "-F", str(opened.state.ssh_config), "--", name, *(command or ())],
    )


@app.command()
def down(file: FileArgument, *, json_output: JsonOption = False) -> None:
    """Remove all that `up` has made, and list what remains; exits 1 if anything does.

    Example: gpuyard deploy down examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.deploy.access.ssh_entries import remove_entries
    from gpuyard.report.answers.deploy import down_answer

    opened = room.open_deployment(file)
    with telling("Removing machines") as tell:
        left = room.down(opened, tell)
    if not opened.state.path.exists():
        remove_entries(opened.state)
    show(down_answer(opened, left), json_output=json_output)
    if left and opened.target.module() is not None:
        raise typer.Exit(1)
