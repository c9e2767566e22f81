"""`gpuyard notebook`: your own JupyterLab on a lease."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UserMistake
from gpuyard.files import expand_home

if TYPE_CHECKING:
    from gpuyard.share.notebook.records import Notebook

app = typer.Typer(invoke_without_command=True)


@app.callback(invoke_without_command=True)
def notebook(
    context: typer.Context,
    *,
    gpus: Annotated[int, typer.Option(min=1, metavar="N", help="Number of GPUs.")] = 1,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Time limit, like 8h (default: none)."),
    ] = None,
    idle: Annotated[
        str, typer.Option(metavar="TIME", help="Idle time after which it stops; 0: never.")
    ] = "1h",
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIRECTORY",
            help="Directory of its files (default: the current directory).",
        ),
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
    project: Annotated[
        str, typer.Option(metavar="NAME", help="Project that `usage` counts it under.")
    ] = "",
    json_output: JsonOption = False,
) -> None:
    """Run your own JupyterLab on leased GPUs. It listens only on loopback and has its own token.

    Example: gpuyard notebook --gpus 1 --for 8h
    """
    if context.invoked_subcommand is not None:
        return
    from gpuyard.api.lease import print_place
    from gpuyard.cli.share.lease_command import LeaseOptions
    from gpuyard.share.client import open_client
    from gpuyard.share.notebook.run import NotebookCallbacks, run_notebook
    from gpuyard.units import parse_seconds

    files = expand_home(directory or Path.cwd()).absolute()
    if not files.is_dir():
        raise UserMistake(f"{files} is not a directory; name one with --dir")
    options = LeaseOptions(for_=for_, now=now, wait=wait, project=project)
    request, wait_seconds = options.request(gpus, f"notebook in {files}"), options.wait_seconds
    idle_seconds = None if idle == "0" else parse_seconds(idle)

    def run(callbacks: NotebookCallbacks) -> int:
        return run_notebook(
            open_client(),
            request,
            directory=files,
            environment=python,
            idle_seconds=idle_seconds,
            wait_seconds=wait_seconds,
            callbacks=callbacks,
        )

    try:
        if background:
            from gpuyard.share.notebook.background import run_in_background

            started, log = run_in_background(run, print_place)
            _print_address(started, json_output=json_output)
            _print_message(f"it keeps running in the background; its output is in {log}")
            return
        status = run(
            NotebookCallbacks(
                print_place,
                lambda started: _print_address(started, json_output=json_output),
                _print_message,
            )
        )
    except KeyboardInterrupt:
        _print_message("stopped waiting and left the queue")
        status = 130
    sys.exit(status)


@app.command("list")
def list_(*, json_output: JsonOption = False) -> None:
    """List your running notebooks.

    Example: gpuyard notebook list
    """
    from gpuyard.report.answers.share.leases import notebooks_answer
    from gpuyard.share.client import open_client
    from gpuyard.share.notebook.run import list_running

    notebooks = [notebook.document() for notebook in list_running(open_client())]
    show(notebooks_answer({"notebooks": notebooks}), json_output=json_output)


@app.command()
def stop(
    id_: Annotated[str, typer.Argument(metavar="ID", help="ID of the notebook; see `list`.")],
    *,
    json_output: JsonOption = False,
) -> None:
    """Stop one of your notebooks and give its GPUs back; its files stay.

    Example: gpuyard notebook stop 1f3a09c2
    """
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.share.client import open_client
    from gpuyard.share.notebook.run import stop_notebook

    stopped = stop_notebook(open_client(), id_)
    gpus = ", ".join(map(str, stopped.gpus))
    sentence = f"Notebook {stopped.id} has stopped: GPU {gpus} is free, and the files in {stopped.directory} stay."
    document = {"id": stopped.id, "gpus": list(stopped.gpus), "directory": stopped.directory}
    show(Answer([Sentence(sentence)], document, verb="notebook"), json_output=json_output)


def _print_address(started: "Notebook", *, json_output: bool) -> None:
    """Print directly, never through a logger, because the address contains the token."""
    if json_output:
        import json

        sys.stdout.write(json.dumps(started.document()) + "\n")
    else:
        gpus = ", ".join(map(str, started.gpus))
        sys.stdout.write(
            f"Notebook {started.id} runs on GPU {gpus}. On your own computer, run:\n"
            f"  {started.tunnel}\nand open there:\n  {started.url}\n"
        )
    sys.stdout.flush()


def _print_message(sentence: str) -> None:
    sys.stderr.write(f"gpuyard: {sentence}\n")
    sys.stderr.flush()
