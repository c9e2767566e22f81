"""`gpuyard logs`: show the output of a job."""

import sys
from typing import Annotated

import typer

from gpuyard.cli.jobs.status import HandleArgument
from gpuyard.cli.output import write_verbatim


def logs(
    handle: HandleArgument,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the job has ended.")
    ] = False,
) -> None:
    """Show the output of a job from all of its starts.

    Example: gpuyard logs -f local://17
    """
    from gpuyard.jobs.engines.base import load_engine
    from gpuyard.jobs.find_job import find_handle

    parsed = find_handle(handle)
    for text in load_engine(parsed.engine).logs(parsed, follow):
        write_verbatim(text)
        sys.stdout.flush()
