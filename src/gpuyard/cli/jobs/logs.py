"""`gpuyard logs`: what a job has printed."""

import sys
from typing import Annotated

import typer

from gpuyard.cli.jobs.status import HandleArgument
from gpuyard.cli.output import write_exactly


def logs(
    handle: HandleArgument,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the job has ended.")
    ] = False,
) -> None:
    """Show the output of a job, from every time that it was started.

    Example: gpuyard logs -f local://17
    """
    from gpuyard.jobs.engines.base import engine
    from gpuyard.jobs.job import Handle

    named = Handle.parse(handle)
    for text in engine(named.engine).logs(named, follow):
        write_exactly(text)
        sys.stdout.flush()
