"""`gpuyard deploy`: from a description to a cluster that trains."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.measure.bench.running import results_store
from gpuyard.cli.output import JsonOption, progress_bar, show
from gpuyard.errors import GpuyardError, UnknownName

app = typer.Typer(
    help="Build the cluster that a file describes, and prove that it works.", no_args_is_help=True
)
FileArgument = Annotated[
    Path, typer.Argument(help="The deployment, NAME.deployment.yaml.", show_default=False)
]


@app.callback()
def deploy() -> None:
    """Build the cluster that a file describes, and prove that it works."""
    from gpuyard.deploy.clouds.ttl import watch_all

    watch_all()


@app.command()
def plan(file: FileArgument, *, json_output: JsonOption = False) -> None:
    """Show its machines, what `up` would change, and what it costs an hour. Changes nothing.

    Example: gpuyard deploy plan examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.report.answers.deploy import plan_answer

    opened = room.open_deployment(file)
    with _telling("Asking Terraform what would change"):
        planned = room.plan(opened)
    show(plan_answer(planned), json_output=json_output)


@app.command()
def up(file: FileArgument, *, json_output: JsonOption = False) -> None:
    """Make its machines and apply their roles. A second time changes nothing; one that was cut off goes on.

    Example: gpuyard deploy up examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.report.answers.deploy import up_answer

    opened = room.open_deployment(file)
    with _telling("Making machines") as tell:
        changes, outcome = room.up(opened, tell)
    show(up_answer(opened, changes, outcome, file), json_output=json_output)


@app.command()
def verify(file: FileArgument, *, json_output: JsonOption = False) -> None:
    """Check on the machines themselves that everything works; exits 1 where something does not.

    Example: gpuyard deploy verify examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.deploy.verify import verify as check
    from gpuyard.report.answers.deploy import verify_answer

    opened = room.open_deployment(file)
    with _telling("Reaching every machine") as tell:
        verdict = check(opened, tell)
    if verdict.bench is not None:
        results_store().add(verdict.bench)
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

    opened = room.open_deployment(file)
    hosts = opened.state.hosts()
    if not hosts:
        raise GpuyardError(f"it is not up; bring it up with: gpuyard deploy up {file}")
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
    """Remove all that `up` has made, and list what remains; exits 1 where something does.

    Example: gpuyard deploy down examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.report.answers.deploy import down_answer

    opened = room.open_deployment(file)
    with _telling("Removing machines") as tell:
        left = room.down(opened, tell)
    show(down_answer(opened, left), json_output=json_output)
    if left and opened.target.module() is not None:
        raise typer.Exit(1)


@contextmanager
def _telling(first: str) -> Iterator[Callable[[str], None]]:
    from gpuyard.measure.clock import Progress

    with progress_bar(first) as tell:
        yield lambda what: tell(Progress(what))
