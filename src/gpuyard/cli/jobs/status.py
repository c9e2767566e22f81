"""`gpuyard status`: show the state of a job."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption
from gpuyard.cli.quick_commands import show_status

HandleArgument = Annotated[
    str,
    typer.Argument(metavar="HANDLE", help="Handle of the job, like local://17, or its number."),
]


def status(
    handle: Annotated[
        str | None, typer.Argument(metavar="HANDLE", help="Handle or number of the job.")
    ] = None,
    *,
    json_output: JsonOption = False,
) -> None:
    """Show a job's state, restarts, exit status, and GPUs; without HANDLE, list your open jobs.

    Example: gpuyard status 17 --json
    """
    show_status(handle, json_output=json_output)
