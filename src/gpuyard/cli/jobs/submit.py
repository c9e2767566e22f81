"""`gpuyard submit`: hand a job to an engine."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, write_exactly
from gpuyard.errors import UserMistake, quoted

if TYPE_CHECKING:
    from gpuyard.jobs.job import Job

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="NAME", help="local, slurm or kubernetes (default: the one that fits)."
    ),
]


def submit(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [-- COMMAND]", help="A job file, or the command after --, or both."
        ),
    ] = None,
    *,
    engine: EngineOption = None,
    name: Annotated[str | None, typer.Option(help="Name of the job.")] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="N|N..M", help="Number of GPUs, or a range that it can use, like 2..8."
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of machines.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="What it trains: a workload file, or a model.")
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="When it should have finished, like 'Fri 18:00'."),
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop it after this long, like 12h.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Where it writes checkpoints.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="How often it is started again when its machine was lost.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set an environment variable; repeatable."),
    ] = None,
    cwd: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Where it runs (default: here).")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Project that `usage` counts it under.")
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option(metavar="HANDLE", help="A job that has to succeed first.")
    ] = None,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Queue a command that needs GPUs, and print only its handle on stdout.

    Options override the file. The command gets this environment and runs in this directory; no
    shell reads it.

    Example: gpuyard submit --gpus 2..8 --deadline "Fri 18:00" -- torchrun train.py
    """
    from gpuyard.jobs.engines.base import choose_engine
    from gpuyard.report.answer import json_text

    given = {
        "name": name,
        "gpus": gpus,
        "nodes": nodes,
        "workload": workload,
        "deadline": deadline,
        "time_limit": time_limit,
        "priority": priority,
        "checkpoint": checkpoint,
        "retries": retries,
        "env": _variables(env or []),
        "cwd": cwd,
        "project": project,
        "after": after,
    }
    job = _job(what or [], {key: value for key, value in given.items() if value is not None})
    chosen = choose_engine(engine or job.spec.engine, dry_run=dry_run)
    request = chosen.plan(job)
    if dry_run:
        if json_output:
            sys.stdout.write(json_text({"engine": chosen.name, **request.document()}))
        else:
            write_exactly(request.text())
        return
    handle = chosen.submit(request)
    if json_output:
        document = {"handle": str(handle), "engine": chosen.name, "uuid": job.uuid}
        sys.stdout.write(json_text(document))
    else:
        sys.stdout.write(f"{handle}\n")


def _job(what: list[str], given: dict[str, Any]) -> "Job":
    import time

    from gpuyard.jobs.job import Job
    from gpuyard.specs.job import JobSpec

    document: dict[str, Any] = {}
    if what and what[0].endswith((".yaml", ".yml")):
        document = _from_file(Path(what.pop(0)))
    if what:
        given["command"] = what
    if "command" not in {**document, **given}:
        raise UserMistake(
            "nothing to run; write it like: gpuyard submit --gpus 2 -- python train.py, or "
            "gpuyard submit train.job.yaml"
        )
    if "env" in given:
        given["env"] = {**document.get("env", {}), **given["env"]}
    spec: JobSpec = _checked({**document, **given})
    return Job.of(spec, now=time.time(), directory=Path.cwd())


def _from_file(path: Path) -> dict[str, Any]:
    """With its paths made absolute: they are meant from where the file is."""
    from gpuyard.catalog.specfiles import read_job

    spec = read_job(path)
    directory = path.absolute().parent
    document = spec.model_dump(mode="json", exclude_defaults=True)
    if spec.cwd is not None:
        document["cwd"] = str(directory / Path(spec.cwd).expanduser())
    if spec.workload is not None and spec.workload.endswith((".yaml", ".yml")):
        document["workload"] = str(directory / spec.workload)
    described = spec.slurm.cluster if spec.slurm else None
    if described is not None and described.endswith((".yaml", ".yml")):
        document["slurm"]["cluster"] = str(directory / described)
    return document


def _checked(document: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    from gpuyard.catalog.specfiles import known_names
    from gpuyard.specs.job import JobSpec
    from gpuyard.specs.mistakes import expected_and_got

    try:
        return JobSpec.model_validate(document, context=known_names())
    except ValidationError as invalid:
        mistake = invalid.errors()[0]
        sentence = expected_and_got(mistake)
        if not mistake["loc"] or mistake["loc"][0] == "command":
            raise UserMistake(sentence) from None
        option = str(mistake["loc"][0]).replace("_", "-")
        raise UserMistake(f"--{option}: {sentence}") from None


def _variables(given: list[str]) -> dict[str, str] | None:
    variables = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserMistake(f"--env: expected NAME=VALUE, got {quoted(text)}")
        variables[name] = value
    return variables or None
