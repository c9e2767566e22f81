"""`gpuyard submit`: submit a job to an engine."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, write_verbatim
from gpuyard.errors import UserMistake, quote
from gpuyard.files import expand_home

if TYPE_CHECKING:
    from gpuyard.jobs.job import Job

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
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
    name: Annotated[str | None, typer.Option(help="Name of the job.")] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="N|N..M", help="Number of GPUs, or a usable range, like 2..8."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of machines.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="Workload that it trains: a file or a model.")
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Time by which it should finish, like 'Fri 18:00'."),
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time after which it is stopped, like 12h.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Priority; higher comes first.")] = None,
    checkpoint: Annotated[
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
        str | None, typer.Option(help="Project to which `usage` assigns it.")
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
    from gpuyard.jobs.engines.base import choose_engine
    from gpuyard.report.answer import format_json

    options = {
        "name": name,
        "gpus": gpus,
        "nodes": nodes,
        "workload": workload,
        "deadline": deadline,
        "time_limit": time_limit,
        "priority": priority,
        "checkpoint": checkpoint,
        "retries": retries,
        "env": parse_variables(env or []),
        "cwd": cwd,
        "project": project,
        "after": after,
    }
    job = _create_job(
        what or [], {key: value for key, value in options.items() if value is not None}
    )
    chosen = choose_engine(engine or job.spec.engine, dry_run=dry_run)
    request = chosen.plan(job)
    if dry_run:
        if json_output:
            sys.stdout.write(format_json({"engine": chosen.name, **request.document()}))
        else:
            write_verbatim(request.text())
        return
    if not json_output:
        print_caveats(request.caveats)
    handle = chosen.submit(request)
    if json_output:
        document = {
            "handle": str(handle),
            "engine": chosen.name,
            "uuid": job.uuid,
            "caveats": list(request.caveats),
        }
        sys.stdout.write(format_json(document))
    else:
        sys.stdout.write(f"{handle}\n")


def print_caveats(caveats: Sequence[str]) -> None:
    """Print on stderr which settings the engine treats differently."""
    from gpuyard.report.terminal import print_line

    for caveat in caveats:
        print_line(f"note: {caveat}", "caution")


def _create_job(what: list[str], options: dict[str, Any]) -> "Job":
    import time

    from gpuyard.jobs.job import Job
    from gpuyard.specs.job import JobSpec

    document: dict[str, Any] = {}
    if what and what[0].endswith((".yaml", ".yml")):
        document = _read_file(Path(what.pop(0)))
    if what:
        options["command"] = what
    if "command" not in {**document, **options}:
        raise UserMistake(
            "the command is missing; use gpuyard submit --gpus 2 -- python train.py, or "
            "gpuyard submit train.job.yaml"
        )
    if "env" in options:
        options["env"] = {**document.get("env", {}), **options["env"]}
    spec: JobSpec = _validate({**document, **options})
    return Job.create(spec, now=time.time(), directory=Path.cwd())


def _read_file(path: Path) -> dict[str, Any]:
    """Read a job file and make its paths, which are relative to the file, absolute."""
    from gpuyard.catalog.specfiles import read_job

    spec = read_job(path)
    directory = path.absolute().parent
    document = spec.model_dump(mode="json", exclude_defaults=True)
    if spec.cwd is not None:
        document["cwd"] = str(directory / expand_home(spec.cwd))
    if spec.workload is not None and spec.workload.endswith((".yaml", ".yml")):
        document["workload"] = str(directory / spec.workload)
    cluster = spec.slurm.cluster if spec.slurm else None
    if cluster is not None and cluster.endswith((".yaml", ".yml")):
        document["slurm"]["cluster"] = str(directory / cluster)
    return document


def _validate(document: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    from gpuyard.catalog.specfiles import known_names
    from gpuyard.specs.job import JobSpec
    from gpuyard.specs.spec_errors import explain_value

    try:
        return JobSpec.model_validate(document, context=known_names())
    except ValidationError as invalid:
        mistake = invalid.errors()[0]
        sentence = explain_value(mistake)
        if not mistake["loc"] or mistake["loc"][0] == "command":
            raise UserMistake(sentence) from None
        option = str(mistake["loc"][0]).replace("_", "-")
        raise UserMistake(f"--{option}: {sentence}") from None


def parse_variables(texts: list[str]) -> dict[str, str] | None:
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserMistake(f"--env: expected NAME=VALUE, got {quote(text)}")
        variables[name] = value
    return variables or None
