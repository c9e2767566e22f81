"""`gpuyard queue`: list jobs, explain them, and show or set how they share GPUs."""

from typing import Annotated

import typer

from gpuyard.choices import PolicyName
from gpuyard.cli.jobs.status import HandleArgument
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, show
from gpuyard.cli.quick_commands import show_queue
from gpuyard.errors import GpuyardError, UserMistake

app = typer.Typer(invoke_without_command=True)


@app.callback(invoke_without_command=True)
def queue(
    context: typer.Context,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Also show jobs that have ended.")] = False,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, help="Also show the N jobs that ended last."),
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Show the open jobs of all users of this machine.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Show your waiting and running jobs on all available engines.

    Example: gpuyard queue --last 5
    """
    if context.invoked_subcommand is None:
        show_queue(all_=all_, last=last, everyone=everyone, json_output=json_output)
    elif all_ or last is not None or everyone or json_output:
        raise UserMistake(
            f"write the options after {context.invoked_subcommand}; `gpuyard queue "
            f"{context.invoked_subcommand} --help` lists them"
        )


@app.command()
def explain(handle: HandleArgument, *, json_output: JsonOption = False) -> None:
    """Explain why a job waits, when it will start, and how likely it is to meet its deadline.

    Example: gpuyard queue explain local://17
    """
    from gpuyard.api.queue import explain as explain_job

    show(explain_job(handle).answer, json_output=json_output)


@app.command()
def policy(
    policy: Annotated[
        PolicyName | None,
        typer.Argument(metavar="NAME", help="Policy to use from now on."),
    ] = None,
    *,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time between resizes of running jobs (default: as the policy defines).",
        ),
    ] = None,
    explore: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With explore-then-focus: GPU time that each trial gets first (default: 1h).",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show or set the policy by which jobs share GPUs.

    Example: gpuyard queue policy min-time
    """
    from gpuyard.api.queue import policy as choose_policy

    show(choose_policy(policy, every=every, explore=explore).answer, json_output=json_output)


@app.command()
def rebalance(
    *,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time between repetitions, until no job is left."),
    ] = None,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Grow and shrink running Slurm jobs by the policy; on this machine, that happens automatically.

    Example: gpuyard queue rebalance --dry-run
    """
    from gpuyard.api.queue import rebalance as resize_jobs
    from gpuyard.api.queue import rebalance_repeatedly
    from gpuyard.report.terminal import print_line

    if every is None:
        show(resize_jobs(dry_run=dry_run).answer, json_output=json_output)
        return
    if json_output:
        raise UserMistake("--every cannot be combined with --json")
    for result in rebalance_repeatedly(every, dry_run=dry_run):
        if isinstance(result, GpuyardError):
            print_line(f"gpuyard: {result}")
        else:
            show(result.answer)


@app.command()
def keep(
    period: Annotated[
        str, typer.Argument(metavar="TIME", help="Time like 30d, or `forever` (default: 90 days).")
    ],
    *,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Set for how long ended jobs are kept from now on.

    Example: gpuyard queue keep 30d
    """
    from gpuyard.api.queue import keep as keep_jobs

    show(keep_jobs(period, dry_run=dry_run).answer, json_output=json_output)


@app.command()
def prune(*, dry_run: DryRunOption = False, json_output: JsonOption = False) -> None:
    """Delete the records of jobs that ended longer ago than they are kept.

    Example: gpuyard queue prune --dry-run
    """
    from gpuyard.api.queue import prune as prune_jobs

    show(prune_jobs(dry_run=dry_run).answer, json_output=json_output)
