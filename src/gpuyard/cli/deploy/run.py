"""`gpuyard deploy run`: runs a command on a deployment's machines, with the files of the current folder."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.deploy.options import FileArgument, report_progress
from gpuyard.cli.jobs.submit import parse_variables
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, show, write_verbatim


def run(
    file: FileArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="Command to run on every machine."),
    ] = None,
    *,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", help="Number of machines (default: all).")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Name in the shared storage (default: the folder's).", metavar="PATH"),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            help="Files to neither send nor fetch, like '*.pt'; .git and .venv never are.",
            metavar="PATTERN",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Environment variable; repeatable."),
    ] = None,
    slurm: Annotated[
        bool, typer.Option("--slurm/--no-slurm", help="Use Slurm if it is deployed, or only ssh.")
    ] = True,
    fetch: Annotated[
        bool, typer.Option("--fetch/--no-fetch", help="Copy new and changed files back here.")
    ] = True,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Copy this folder to the machines, run a command on all of them, and fetch the files that it creates.

    The exit status is the command's. Ctrl-C stops it on every machine. torchrun gets the options for the machines
    and their GPUs. With Slurm, the command is a job, which continues if the connection is lost.

    Example: gpuyard deploy run examples/pair.deployment.yaml --dry-run -- torchrun train.py
    """
    from gpuyard.deploy.access.remote import require_hosts
    from gpuyard.deploy.access.sync import run_copy
    from gpuyard.deploy.deployment import load_deployment
    from gpuyard.deploy.run.over_ssh import run_over_ssh
    from gpuyard.deploy.run.plan import RunOptions, plan_run
    from gpuyard.deploy.run.results import FetchedResults, fetch_results, list_folder
    from gpuyard.deploy.run.through_slurm import run_through_slurm
    from gpuyard.report.answer import Sentence
    from gpuyard.report.answers.deploy_run import run_answer, run_plan_answer
    from gpuyard.report.terminal import print_line

    loaded = load_deployment(file)
    options = RunOptions(nodes, to, exclude or (), parse_variables(env or []), slurm)
    plan = plan_run(loaded, require_hosts(loaded, file), Path.cwd(), command or (), options)
    with report_progress(f"Connecting to {plan.head.name}") as report:
        copied = run_copy(loaded, plan.copy, report, dry_run=dry_run)
    if dry_run:
        show(run_plan_answer(plan, copied, fetch=fetch), json_output=json_output)
        return
    before = list_folder(plan) if fetch else {}

    def write(line: str) -> None:
        if json_output:  # stdout has only the answer
            print_line(line)
        else:
            write_verbatim(f"{line}\n")
            sys.stdout.flush()

    status = (run_through_slurm if plan.launcher == "slurm" else run_over_ssh)(plan, write)
    results = FetchedResults()
    if fetch:
        with report_progress(f"Connecting to {plan.head.name}") as report:
            results = fetch_results(plan, before, report)
    answer = run_answer(plan, copied, results, status)
    if json_output:
        show(answer, json_output=True)
    else:  # stdout has only the log
        for part in answer.parts:
            if isinstance(part, Sentence):
                print_line(part.text, part.tone)
    if status:
        raise typer.Exit(status)
