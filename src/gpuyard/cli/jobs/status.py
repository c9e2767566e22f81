"""`gpuyard status`: show the state of a job."""

from typing import Annotated

import typer

from gpuyard.cli.jobs.status_view import show_status
from gpuyard.cli.output import JsonOption

HandleArgument = Annotated[
    str,
    typer.Argument(
        metavar="HANDLE", help="Handle of the job, like local://17, as `submit` printed it."
    ),
]


def status(handle: HandleArgument, *, json_output: JsonOption = False) -> None:
    """Show a job's state, restarts, exit status, and GPUs.

    Example: gpuyard status local://17 --json
    """
    show_status(handle, json_output=json_output)
