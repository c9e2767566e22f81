"""`gpuyard deploy`: builds a cluster from its description, and verifies it."""

import os
from functools import partial
from typing import Annotated

import typer

from gpuyard.cli.deploy.access import fetch, open_app, ssh_config, sync
from gpuyard.cli.deploy.bench import bench
from gpuyard.cli.deploy.confirm import (
    DeletionNotConfirmed,
    ForceOption,
    YesOption,
    ask,
    check_loss,
)
from gpuyard.cli.deploy.cost import cost
from gpuyard.cli.deploy.options import (
    AskSudoPasswordOption,
    FileArgument,
    confirm_host_keys,
    load_with_password,
    pop_sudo_password,
    report_progress,
)
from gpuyard.cli.deploy.run import run
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UnknownName

app = typer.Typer(
    help="Build the cluster that a file describes, and prove that it works.", no_args_is_help=True
)
app.command("ssh-config")(ssh_config)
app.add_typer(open_app, name="open")
app.command()(sync)
app.command()(fetch)
app.command()(run)
app.command()(cost)
app.command()(bench)


@app.callback()
def deploy(context: typer.Context) -> None:
    """Build the cluster that a file describes, and prove that it works."""
    from gpuyard.deploy.expiry import start_all_reapers

    context.obj = pop_sudo_password()
    start_all_reapers()


ReplaceOption = Annotated[
    list[str] | None,
    typer.Option(metavar="MACHINE", help="Machine to create anew, with an empty disk."),
]


@app.command()
def plan(
    file: FileArgument, *, replace: ReplaceOption = None, json_output: JsonOption = False
) -> None:
    """Show its machines, what `up` would change, and what it costs per hour. Changes nothing.

    It exits with status 1 if ssh does not reach a machine that exists.

    Example: gpuyard deploy plan examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment
    from gpuyard.report.answers.deploy import plan_answer

    loaded = deployment.load_deployment(file)
    with report_progress("Asking Terraform what would change"):
        planned = deployment.plan(loaded, replace or ())
    show(plan_answer(planned), json_output=json_output)
    if planned.unreachable:
        raise typer.Exit(1)


@app.command()
def up(
    context: typer.Context,
    file: FileArgument,
    *,
    replace: ReplaceOption = None,
    restart: Annotated[
        list[str] | None,
        typer.Option(metavar="MACHINE", help="Machine of a lab to restart, with its disk."),
    ] = None,
    yes: YesOption = False,
    force: ForceOption = False,
    ask_sudo_password: AskSudoPasswordOption = False,
    accept_new_host_keys: Annotated[
        bool,
        typer.Option(
            "--accept-new-host-keys",
            help="Trust your machines whose host keys are unknown, instead of asking; never a changed key.",
        ),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Create the machines and apply their roles. Repeating it changes nothing; after an interruption it continues.

    If the shared storage would be deleted, it asks first. It stops no job without --force.

    Example: gpuyard deploy up examples/pair.deployment.yaml
    """
    from gpuyard.deploy import deployment
    from gpuyard.deploy.access.host_keys import HostKey, UnknownHostKeys
    from gpuyard.deploy.access.ssh_config import entries_file, write_entries
    from gpuyard.report.answers.deploy import up_answer

    loaded, password = load_with_password(context, file, ask=ask_sudo_password)
    accepted: list[HostKey] = []

    def accept_key(key: HostKey) -> bool:
        return accept_new_host_keys or key in accepted

    check = partial(check_loss, loaded, file=file, yes=yes, force=force, removes_storage=False)
    finished, to_restart = None, tuple(restart or ())
    while finished is None:  # jobs may begin while the user is asked, so it checks again
        try:
            with report_progress("Creating machines") as report:
                finished = deployment.up(
                    loaded,
                    report,
                    password,
                    accept_key,
                    replace=replace or (),
                    restart=to_restart,
                    approve=check,
                )
        except UnknownHostKeys as error:
            if not confirm_host_keys(error.keys):
                raise
            accepted += error.keys
        except DeletionNotConfirmed as refusal:
            ask(loaded, refusal)
            check = partial(check, agreed=refusal.loss)
        to_restart = ()  # each machine once
    changes, recap = finished
    if entries_file(loaded.state).exists():  # the machines may have new addresses
        people = [user.name for user in loaded.deployment.users]
        write_entries(loaded.state, loaded.state.hosts(), people)
    show(up_answer(loaded, changes, recap, file), json_output=json_output)


@app.command()
def verify(
    context: typer.Context,
    file: FileArgument,
    *,
    ask_sudo_password: AskSudoPasswordOption = False,
    json_output: JsonOption = False,
) -> None:
    """Check on the machines themselves that everything works; exits with status 1 if something does not.

    Example: gpuyard deploy verify examples/pair.deployment.yaml
    """
    from gpuyard.deploy.verify import verify as check
    from gpuyard.files import results_file
    from gpuyard.measure.store import ResultsStore
    from gpuyard.report.answers.deploy import verify_answer

    loaded, password = load_with_password(context, file, ask=ask_sudo_password)
    with report_progress("Connecting to every machine") as report:
        verdict = check(loaded, ResultsStore(results_file()), report, password)
    show(verify_answer(verdict), json_output=json_output)
    if not verdict.ok:
        raise typer.Exit(1)


@app.command()
def status(*, json_output: JsonOption = False) -> None:
    """List the deployments that have been brought up from here, and their machines.

    Example: gpuyard deploy status
    """
    from gpuyard.deploy.expiry import read_delay, read_expiry
    from gpuyard.deploy.state import StateDirectory, list_deployments
    from gpuyard.report.answers.deploy import status_answer

    states = [StateDirectory(name) for name in list_deployments()]
    expiries = {
        state.name: (expiry.unix_seconds, read_delay(state, expiry))
        for state in states
        if (expiry := read_expiry(state)) is not None
    }
    show(
        status_answer([(state.name, state.hosts()) for state in states], expiries),
        json_output=json_output,
    )


@app.command(context_settings={"ignore_unknown_options": True})
def ssh(
    file: FileArgument,
    machine: Annotated[str | None, typer.Argument(help="Machine name (default: the head).")] = None,
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to run there (default: a shell).")
    ] = None,
) -> None:
    """Log in to a machine, or run a command on it.

    Example: gpuyard deploy ssh examples/pair.deployment.yaml node1
    """
    from gpuyard.deploy import deployment
    from gpuyard.deploy.access.host_keys import check_host_key
    from gpuyard.deploy.access.remote import require_hosts

    loaded = deployment.load_deployment(file)
    hosts = {host.name: host for host in require_hosts(loaded, file)}
    name = machine or next(iter(hosts))
    if name not in hosts:
        raise UnknownName("machine", name, hosts)
    check_host_key(loaded.state, hosts[name])
    os.execvp(  # noqa: S606  becomes ssh, with the terminal
        "ssh",  # noqa: S607
        ["ssh", "-F", str(loaded.state.ssh_config), "--", name, *(command or ())],
    )


@app.command()
def down(
    file: FileArgument,
    *,
    yes: YesOption = False,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Remove everything that `up` created, and list what remains; exits with status 1 if anything does.

    It asks first and offers to copy the shared storage to this machine. It stops no job without --force.

    Example: gpuyard deploy down examples/pair.deployment.yaml --yes
    """
    from gpuyard.deploy import deployment
    from gpuyard.deploy.access.ssh_config import remove_entries
    from gpuyard.report.answers.deploy import down_answer

    loaded = deployment.load_deployment(file)
    hosts = loaded.state.hosts()
    check = partial(check_loss, loaded, hosts, file, yes=yes, force=force, removes_storage=True)
    unchecked = bool(hosts) and loaded.target.module() is not None
    while unchecked:  # jobs may begin while the user is asked
        try:
            with report_progress("Looking for jobs and files on its machines"):
                check()
            unchecked = False
        except DeletionNotConfirmed as refusal:
            ask(loaded, refusal)
            check = partial(check, agreed=refusal.loss)
    with report_progress("Removing machines") as report:
        remaining = deployment.down(loaded, report)
    if not loaded.state.path.exists():
        remove_entries(loaded.state)
    show(down_answer(loaded, remaining), json_output=json_output)
    if remaining and loaded.target.module() is not None:
        raise typer.Exit(1)
