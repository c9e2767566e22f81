"""`gpuyard notebook`: your own JupyterLab on a lease."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.share.notebook.records import Notebook

app = typer.Typer(invoke_without_command=True)


@app.callback(invoke_without_command=True)
def notebook(
    context: typer.Context,
    *,
    gpus: Annotated[int, typer.Option(min=1, metavar="N", help="How many GPUs.")] = 1,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="How long at most, like 8h (default: no end)."),
    ] = None,
    idle: Annotated[
        str, typer.Option(metavar="TIME", help="End it when idle for this long; 0: never.")
    ] = "1h",
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIRECTORY", help="Of its files (default: this one)."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(metavar="ENV", help="Environment with JupyterLab: directory or Python."),
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Fail instead of waiting.")] = False,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait at most this long, like 10min.")
    ] = None,
    background: Annotated[
        bool,
        typer.Option(
            "--background", help="Return once it runs; it keeps running after you log out."
        ),
    ] = False,
    project: Annotated[str, typer.Option(help="Project that `usage` counts it under.")] = "",
    json_output: JsonOption = False,
) -> None:
    """Run your own JupyterLab on leased GPUs, on this machine's loopback with a token of its own.

    Example: gpuyard notebook --gpus 1 --for 8h
    """
    if context.invoked_subcommand is not None:
        return
    from gpuyard.cli.share.lease_line import tell
    from gpuyard.share.notebook.run import NotebookCallbacks, run_notebook
    from gpuyard.share.service.desk import open_desk
    from gpuyard.share.store.lease import LeaseRequest
    from gpuyard.units import parse_seconds

    if now and wait:
        raise UserMistake("use either --now or --wait")
    where = (directory or Path.cwd()).expanduser().absolute()
    if not where.is_dir():
        raise UserMistake(f"{where} is no directory; name one with --dir")
    request = LeaseRequest(
        count=gpus,
        seconds=parse_seconds(for_) if for_ else None,
        command=f"notebook in {where}",
        project=project,
        waits=not now,
    )
    idle_seconds = None if idle == "0" else parse_seconds(idle)
    wait_seconds = parse_seconds(wait) if wait else None

    def run(callbacks: NotebookCallbacks) -> int:
        return run_notebook(
            open_desk(),
            request,
            directory=where,
            environment=python,
            idle_seconds=idle_seconds,
            wait_seconds=wait_seconds,
            callbacks=callbacks,
        )

    try:
        if background:
            from gpuyard.share.notebook.background import run_in_background

            started, log = run_in_background(run, tell)
            _ready(started, json_output=json_output)
            _say(f"gpuyard: it keeps running in the background; its output is in {log}")
            return
        status = run(
            NotebookCallbacks(
                tell,
                lambda started: _ready(started, json_output=json_output),
                lambda sentence: _say(f"gpuyard: {sentence}"),
            )
        )
    except KeyboardInterrupt:
        _say("gpuyard: stopped waiting; the place in the queue is given up")
        status = 130
    sys.exit(status)


@app.command("list")
def list_(*, json_output: JsonOption = False) -> None:
    """List your running notebooks.

    Example: gpuyard notebook list
    """
    from gpuyard.report.answers.share.leases import notebooks_answer
    from gpuyard.share.notebook.run import running
    from gpuyard.share.service.desk import open_desk

    found = [one.document() for one in running(open_desk())]
    show(notebooks_answer({"notebooks": found}), json_output=json_output)


@app.command()
def stop(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The notebook, as `list` shows it.")],
    *,
    json_output: JsonOption = False,
) -> None:
    """End a notebook of yours and give its GPUs back; its files stay.

    Example: gpuyard notebook stop 1f3a09c2
    """
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.share.notebook.run import stop as end
    from gpuyard.share.service.desk import open_desk

    ended = end(open_desk(), id_)
    gpus = ", ".join(map(str, ended.gpus))
    sentence = (
        f"Notebook {ended.id} is stopped: GPU {gpus} is free, {ended.directory} is as it was."
    )
    document = {"id": ended.id, "gpus": list(ended.gpus), "directory": ended.directory}
    show(Answer([Sentence(sentence)], document, verb="notebook"), json_output=json_output)


def _ready(started: "Notebook", *, json_output: bool) -> None:
    """By the program itself, not by a logger: the address has the token."""
    if json_output:
        import json

        sys.stdout.write(json.dumps(started.document()) + "\n")
    else:
        gpus = ", ".join(map(str, started.gpus))
        sys.stdout.write(
            f"Notebook {started.id} runs on GPU {gpus}. On your own computer:\n"
            f"  {started.tunnel}\nand open there:\n  {started.url}\n"
        )
    sys.stdout.flush()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
