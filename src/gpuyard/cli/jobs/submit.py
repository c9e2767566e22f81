"""`gpuyard submit`: submit a job to an engine."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from gpuyard.cli.completion import complete_engines
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, write_verbatim
from gpuyard.cli.show import write_document
from gpuyard.errors import UserMistake, quote

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        autocompletion=complete_engines,
        help="Engine: local, slurm, or kubernetes (default: the first available).",
    ),
]


def submit(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [-- COMMAND]", help="Job file, the command after --, or both."
        ),
    ] = None,
    *,
    engine: EngineOption = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the job.")] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="N|N..M", help="Number of GPUs, or a usable range, like 2..8."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of machines.")] = None,
    workload: Annotated[
        str | None,
        typer.Option(metavar="WORKLOAD", help="Workload that it trains: a file or a model."),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Time by which it should finish, like 'Fri 18:00'."),
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time after which it is stopped, like 12h.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Priority; higher comes first.")] = None,
    checkpoint_dir: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Directory of its checkpoints.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="Number of restarts after a lost machine.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Environment variable; repeatable."),
    ] = None,
    cwd: Annotated[
        str | None,
        typer.Option(metavar="DIRECTORY", help="Working directory (default: the current one)."),
    ] = None,
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="Project that `usage` counts it under.")
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(metavar="HANDLE", help="Job that must succeed first; repeatable."),
    ] = None,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Submit a command that needs GPUs, and print only its handle on stdout.

    Options override the file. The command runs with the current environment and working directory, and without a
    shell.

    Example: gpuyard submit --gpus 2..8 --deadline "Fri 18:00" -- torchrun train.py
    """
    from gpuyard.api.submit import prepare

    options = {
        "name": name,
        "gpus": gpus,
        "nodes": nodes,
        "workload": workload,
        "deadline": deadline,
        "time_limit": time_limit,
        "priority": priority,
        "checkpoint": checkpoint_dir,
        "retries": retries,
        "env": parse_variables(env or []),
        "cwd": cwd,
        "project": project,
        "after": after,
    }
    submission = prepare(
        what or [],
        {key: value for key, value in options.items() if value is not None},
        engine=engine,
        dry_run=dry_run,
    )
    request, chosen = submission.request, submission.engine
    if dry_run:
        if json_output:
            write_document({"engine": chosen.name, **request.document()})
        else:
            write_verbatim(request.text())
        return
    if not json_output:
        print_caveats(request.caveats)
    handle = submission.submit()
    if json_output:
        document = {
            "handle": str(handle),
            "engine": chosen.name,
            "uuid": submission.job.uuid,
            "caveats": list(request.caveats),
        }
        write_document(document)
    else:
        sys.stdout.write(f"{handle}\n")


def print_caveats(caveats: Sequence[str]) -> None:
    """Print on stderr which settings the engine treats differently."""
    from gpuyard.report.terminal import print_line

    for caveat in caveats:
        print_line(f"note: {caveat}", "caution")


def parse_variables(texts: list[str]) -> dict[str, str] | None:
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserMistake(f"--env: expected NAME=VALUE, got {quote(text)}")
        variables[name] = value
    return variables or None
